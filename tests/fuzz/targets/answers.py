"""Answers of other systems over HTTP: Pulsar's admin API, and hooks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from unittest import mock

from lb_stream.agent.adapter import BrokerError
from lb_stream.agent.hooks import HookError, _parse_answer
from lb_stream.agent.pulsar import admin
from lb_stream.agent.pulsar.adapter import PulsarAdapter
from lb_stream.agent.pulsar.admin import AdminClient, AdminResponse, AdminSettings, AdminTimeout
from lb_stream.agent.pulsar.guard import read_own_balancing
from lb_stream.agent.pulsar.load_data import LoadDataCompleter
from lb_stream.agent.pulsar.load_topics import build_service_url
from lb_stream.agent.pulsar.namespaces import bundle_boundaries, read_cluster
from lb_stream.agent.pulsar.peers import Peers
from lb_stream.agent.pulsar.report import ReportCheck, find_broker_id
from lb_stream.agent.pulsar.scalable import list_scalable, read_auto_scaling, read_segments
from lb_stream.agent.pulsar.topic_shares import TopicShareReader
from lb_stream.agent.report_throttle import ReportThrottle
from lb_stream.contracts.reports import ReportConfig
from lb_stream.core.model.names import parse_bundle
from lb_stream.settings.differing import read_runtime
from tests.fuzz.registry import require_message, target

BROKER = "a:8080"
BUNDLE = "t/n/0x00000000_0x80000000"
MAX_QUESTIONS = 50
"""A list of many namespaces leads to as many questions: no parser is tried by more of them."""


class ScriptedAdmin(AdminClient):
    """An admin API that answers with given bodies in turn, whatever is asked.

    A body that begins with three digits and a space has this status.
    """

    def __init__(self, data: bytes) -> None:
        # Not by the class's own: it reads the machine's certificates, which takes long.
        self.settings = AdminSettings(f"http://{BROKER}")
        self._bodies = data.split(b"\n---\n")
        self._asked = 0

    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        follow: bool = True,
    ) -> AdminResponse:
        """Return the next answer. Raises AdminTimeout after many."""
        if self._asked == MAX_QUESTIONS:
            raise AdminTimeout("no answer in time")
        body = self._bodies[self._asked % len(self._bodies)]
        self._asked += 1
        status = 200
        if body[:3].isdigit() and body[3:4] == b" ":
            status, body = int(body[:3]), body[4:]
        return AdminResponse(status, body, (self.settings.url,))


def _refuse(*_: object) -> tuple[int, str | None, bytes]:
    """Stand in for a call of an address that an answer has named."""
    raise AdminTimeout("no answer in time")


def _tries(answers: bytes) -> int:
    """Return how many readers take the answers; each of them may raise BrokerError."""
    broker = PulsarAdapter(ScriptedAdmin(answers))
    readers = (
        lambda: read_cluster(ScriptedAdmin(answers), "eu-1"),
        lambda: bundle_boundaries(ScriptedAdmin(answers), "t/n"),
        lambda: find_broker_id(ScriptedAdmin(answers)),
        lambda: list_scalable(ScriptedAdmin(answers), "t/n"),
        lambda: read_segments(ScriptedAdmin(answers), "topic://t/n/x"),
        lambda: read_auto_scaling(ScriptedAdmin(answers), "topic://t/n/x"),
        lambda: read_own_balancing(ScriptedAdmin(answers)),
        broker.report,
        lambda: broker.owns(BUNDLE),
        broker.stats,
        broker.balances,
        lambda: broker.feasible_cut(BUNDLE, [0x40000000]),
        lambda: broker.version,
        lambda: Peers(ScriptedAdmin(answers), BROKER).find_owner(parse_bundle(BUNDLE)),
    )
    taken = 0
    for read in readers:
        try:
            read()
            taken += 1
        except BrokerError as error:
            require_message(error)
    return taken


@target(
    "agent.pulsar.admin",
    "agent.pulsar.adapter",
    "agent.pulsar.cuts",
    "agent.pulsar.guard",
    "agent.pulsar.namespaces",
    "agent.pulsar.ownership",
    "agent.pulsar.peers",
    "agent.pulsar.recorder",
    "agent.pulsar.report",
    "agent.pulsar.scalable",
    "agent.pulsar.stats",
    "agent.pulsar.topic_shares",
    words=(
        "\n---\n",
        "404 ",
        "500 ",
        '{"loadManagerClassName":"org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"',
        '"clusterName":"eu-1"',
        '["a:8080"]',
        f'{{"{BUNDLE}":{{"is_active":true}}}}',
        '{"lastStats":{',
        '{"bundles":{"boundaries":["0x00000000","0xffffffff"]}',
        '{"topicHashPositions":{',
        '{"epoch":1,"nextSegmentId":2,"segments":{"0":{"segmentId":0,"hashRange":{',
        '"namespaceIsolationPolicies"',
        '"auto_failover_policy":{"parameters":{"min_limit":"1"}}',
    ),
    max_bytes=8_192,
)
def pulsar_answers(data: bytes) -> bool:
    """Answers of Pulsar's admin API, with `---` between: every reader takes them or says why not."""
    with (
        mock.patch.object(AdminClient, "_once", _refuse),
        mock.patch.object(admin, "_build_tls_context", lambda _: None),
    ):
        return _tries(data) > 1


@target(
    "agent.pulsar.load_data",
    "agent.pulsar.report",
    "agent.pulsar.topic_shares",
    "agent.report_throttle",
    words=(
        '"lastStats":{',
        '"bundles":[',
        '"topBundlesLoadData":[',
        '"weightedMaxEMA":1',
        "brokerId",
    ),
    max_bytes=8_192,
)
def pulsar_load_data(data: bytes) -> bool:
    """Reports and load data of a broker, on their way through its agent."""
    completer = LoadDataCompleter()
    owned = {BUNDLE}
    for record in completer.complete([data, data], owned, "5.0.1", 1):
        assert isinstance(record, bytes)
    try:
        report = ReportCheck(BROKER, lambda: 0.0).check(data, lambda names: names & owned, 0.0)
    except BrokerError as error:
        require_message(error)
        return False
    assert report is not None, "without patience a report is never held back"
    fields = json.loads(report)
    shares = TopicShareReader(ScriptedAdmin(data), 1.0, lambda: 0.0).add_to(report)
    assert json.loads(shares) == fields or "topicShares" in json.loads(shares)
    throttle = ReportThrottle(ReportConfig())
    for now_ms in (0, 10_000):
        throttle.take(report, now_ms, False)
    return True


@target(
    "settings.differing",
    "agent.pulsar.load_topics",
    words=('"loadBalancerSheddingEnabled":"true"', '"brokerServicePort":"Optional[6650]"'),
)
def pulsar_runtime(data: bytes) -> bool:
    """A broker's settings in force, a JSON object."""
    try:
        runtime = json.loads(data)
    except (ValueError, RecursionError):
        return False
    if not isinstance(runtime, dict):
        return False
    read_runtime(runtime, frozenset())
    try:
        build_service_url(AdminSettings(f"http://{BROKER}"), runtime)
    except BrokerError as error:
        require_message(error)
    return True


@target("agent.hooks", words=('{"allow":true', '"reason":"', "\\ud800"), max_bytes=1_024)
def hook_answer(data: bytes) -> bool:
    """A hook's answer before a move; its reason is one short line."""
    try:
        _, reason = _parse_answer(data)
    except HookError as error:
        require_message(error)
        return False
    assert reason.isprintable() and len(reason) <= 1_000
    reason.encode()
    return True
