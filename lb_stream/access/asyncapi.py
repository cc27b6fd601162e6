"""Describes the Kafka topics as AsyncAPI: channels, messages, and what the job does with them.

The document is the job's: it sends what `send` says, and receives the rest. Extensions name the
roles of docs/security.md that are on the other side: `x-sent-by` and `x-received-by`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lb_stream import __version__
from lb_stream.access.roles import ROLES
from lb_stream.access.signatures import KEY_HEADER, SIGNATURE_HEADER, TIME_HEADER
from lb_stream.contracts.base import LARGEST_RECORD_BYTES
from lb_stream.contracts.columnar import CONTENT_TYPE
from lb_stream.contracts.schemas import BINARY_RECORDS, RECORDS, BinaryRecord, RecordSchema
from lb_stream.contracts.settings import KafkaSettings
from lb_stream.contracts.topics import TOPICS, Topic
from lb_stream.contracts.trace_ids import TRACEPARENT

ASYNCAPI = "3.0.0"
SCHEMA_FORMAT = "application/schema+json;version=draft-2020-12"
KAFKA_BINDING = "0.5.0"
AnyRecord = RecordSchema | BinaryRecord
DESCRIPTION = (
    "The topics of the load balancer. Agents of brokers send load reports and obey decisions; "
    "operators send commands. schemas/README.md has the rules that a broker follows."
)


def build_document() -> dict[str, Any]:
    """Build the AsyncAPI document. Schemas of records are files beside it."""
    return {
        "asyncapi": ASYNCAPI,
        "info": {"title": "lb_stream", "version": __version__, "description": DESCRIPTION},
        "defaultContentType": "application/json",
        "servers": {
            "kafka": {
                "host": KafkaSettings.model_fields["bootstrap_servers"].default,
                "protocol": "kafka",
                "description": "Kafka; the setting kafka.bootstrap_servers names its brokers.",
            }
        },
        "channels": {topic.setting: _build_channel(topic) for topic in TOPICS},
        "operations": dict(_build_operations()),
        "components": {
            "messages": {
                **{record.name: _build_message(record) for record in RECORDS},
                **{record.name: _build_binary_message(record) for record in BINARY_RECORDS},
            }
        },
    }


def find_roles(topic: Topic, operation: str) -> list[str]:
    """Return the roles that have a right on a topic, such as Write."""
    return [role for role, rights in ROLES.items() if operation in rights.get(topic.setting, ())]


def find_senders(record: AnyRecord) -> list[str]:
    """Return the roles that send a record."""
    (topic,) = (topic for topic in TOPICS if topic.setting == record.topic)
    return list(record.senders) or find_roles(topic, "Write")


def _records_of(topic: Topic) -> list[AnyRecord]:
    records: list[AnyRecord] = [*RECORDS, *BINARY_RECORDS]
    return [record for record in records if record.topic == topic.setting]


def _build_channel(topic: Topic) -> dict[str, Any]:
    return {
        "address": topic.name,
        "description": f"{topic.description} The setting topics.{topic.setting} renames it.",
        "messages": {
            record.name: {"$ref": f"#/components/messages/{record.name}"}
            for record in _records_of(topic)
        },
        "bindings": {
            "kafka": {
                "topic": topic.name,
                "partitions": topic.partitions,
                "topicConfiguration": {
                    "cleanup.policy": [topic.cleanup_policy],
                    "max.message.bytes": LARGEST_RECORD_BYTES,
                },
                "bindingVersion": KAFKA_BINDING,
            }
        },
        "x-sent-by": find_roles(topic, "Write"),
        "x-received-by": find_roles(topic, "Read"),
    }


def _build_operations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the job does with each topic. Jobs receive each other's ticks, too."""
    for topic in TOPICS:
        records = _records_of(topic)
        commands = [record for record in records if record.name == "command"]
        others = [record for record in records if record.name != "command"]
        sent = [record for record in records if "job" in find_senders(record)]
        if topic.setting == "reports":
            yield "receive-reports", _build_operation("receive", topic, records)
        if topic.setting == "commands":
            yield "receive-leadership", _build_operation("receive", topic, others)
            reply = {"channel": {"$ref": "#/channels/results"}}
            yield "receive-commands", _build_operation("receive", topic, commands, reply=reply)
        if sent:
            yield f"send-{topic.setting}", _build_operation("send", topic, sent)


def _build_operation(
    action: str, topic: Topic, records: list[AnyRecord], **more: object
) -> dict[str, Any]:
    channel = f"#/channels/{topic.setting}"
    return {
        "action": action,
        "channel": {"$ref": channel},
        "messages": [{"$ref": f"{channel}/messages/{record.name}"} for record in records],
        **more,
    }


def _build_message(record: RecordSchema) -> dict[str, Any]:
    (topic,) = (topic for topic in TOPICS if topic.setting == record.topic)
    reference = {"$ref": f"./{record.name}.schema.json"}
    payload: dict[str, Any] = reference
    description = (record.model.__doc__ or "").strip().splitlines()[0]
    if topic.cleanup_policy == "compact":
        payload = {"anyOf": [reference, {"type": "null"}]}
        description += " An empty value removes its key."
    message: dict[str, Any] = {
        "name": record.name,
        "contentType": "application/json",
        "summary": description,
        "payload": {"schemaFormat": SCHEMA_FORMAT, "schema": payload},
        "examples": [{"name": record.name, "payload": record.example}],
        "bindings": {
            "kafka": {
                "key": {"type": "string", "description": topic.key},
                "bindingVersion": KAFKA_BINDING,
            }
        },
        "x-sent-by": find_senders(record),
    }
    message["headers"] = _build_headers(record)
    if record.headers:
        message["examples"][0]["headers"] = {
            name: value or str(record.example.get(name, record.example.get(f"{name}_version")))
            for name, value in record.headers.items()
        }
    if record.name in ("command", "command-result"):
        message["correlationId"] = {"location": "$message.payload#/id"}
    return message


def _build_binary_message(record: BinaryRecord) -> dict[str, Any]:
    """Return the message of an Arrow IPC stream; its columns are an extension."""
    (topic,) = (topic for topic in TOPICS if topic.setting == record.topic)
    columns = [
        {"name": column.name, "type": str(column.type), "nullable": column.nullable}
        for column in record.schema
    ]
    return {
        "name": record.name,
        "contentType": CONTENT_TYPE,
        "summary": record.about,
        "payload": {
            "schemaFormat": SCHEMA_FORMAT,
            "schema": {"type": "string", "contentMediaType": CONTENT_TYPE},
        },
        "bindings": {
            "kafka": {
                "key": {"type": "string", "description": topic.key},
                "bindingVersion": KAFKA_BINDING,
            }
        },
        "headers": _build_headers(record),
        "x-arrow-columns": columns,
        "x-sent-by": find_senders(record),
    }


def _build_headers(record: AnyRecord) -> dict[str, Any]:
    """Return the schema of a record's headers. A load report may have none.

    A signed record of any kind also has those of its signature.
    """
    names: dict[str, dict[str, Any]] = {
        name: {"type": "string"} | ({"const": value} if value else {})
        for name, value in record.headers.items()
    }
    if record.traced:
        names[TRACEPARENT] = {
            "type": "string",
            "description": "W3C Trace Context, for tracing alone; only where otel.enabled is true",
        }
    required = [name for name, value in record.headers.items() if value != "report"]
    names |= {
        KEY_HEADER: {"type": "string", "description": "id of the key that has signed the record"},
        TIME_HEADER: {"type": "string", "description": "when it was signed, µs since the epoch"},
        SIGNATURE_HEADER: {"type": "string", "description": "the signature's 64 bytes"},
    }
    return {"type": "object", "properties": names} | ({"required": required} if required else {})
