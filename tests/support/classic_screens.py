"""The tables that Pulsar's own monitor shows, and the options that choose them."""

import json
from pathlib import Path

OURS: dict[str, list[str]] = json.loads(
    (Path(__file__).parents[1] / "data" / "vectors" / "monitor_tables.json").read_text()
)["ours"]


def usage(usage: float, limit: float) -> dict[str, float]:
    return {"usage": usage, "limit": limit}


MODULAR = {
    "webServiceUrl": "http://broker-7.eu.example:8080",
    "loadReportType": "LocalBrokerData",
    "cpu": usage(612.5, 1600.0),
    "memory": usage(2210.4, 6144.0),
    "directMemory": usage(1536.0, 12288.0),
    "bandwidthIn": usage(412000.0, 10240000.0),
    "bandwidthOut": usage(905500.0, 10240000.0),
    "msgThroughputIn": 5242880.0,
    "msgThroughputOut": 9437184.0,
    "msgRateIn": 5120.0,
    "msgRateOut": 9216.0,
    "numTopics": 40,
    "numBundles": 2,
    "numConsumers": 16,
    "numProducers": 7,
    "lastBundleGains": ["acme/audit/0x80000000_0xc0000000"],
    "lastBundleLosses": [],
}
SIMPLE = {
    "name": "broker-3.eu.example:8080",
    "loadReportType": "LoadReport",
    "systemResourceUsage": {
        "cpu": usage(88.4, 800.0),
        "memory": usage(1480.0, 4096.0),
        "directMemory": usage(256.0, 8192.0),
        "bandwidthIn": usage(1450.2, 1024000.0),
        "bandwidthOut": usage(2875.9, 1024000.0),
    },
    "bundleStats": {
        "acme/mail/0x00000000_0xffffffff": {
            "msgRateIn": 210.0,
            "msgRateOut": 420.0,
            "consumerCount": 6,
            "producerCount": 3,
            "topics": 5,
        }
    },
    "bundleGains": [],
    "bundleLosses": ["acme/old/0x00000000_0x80000000"],
    "allocatedCPU": 13.5,
    "allocatedMemory": 64.0,
    "allocatedBandwidthIn": 150000.0,
    "allocatedBandwidthOut": 330000.0,
    "allocatedMsgRateIn": 180.0,
    "allocatedMsgRateOut": 360.0,
}
SEVEN, EIGHT, THREE = (
    ("eu-1", "broker-7.eu.example:8080"),
    ("eu-1", "broker-8.eu.example:8080"),
    ("eu-1", "broker-3.eu.example:8080"),
)
