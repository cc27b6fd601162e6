"""Records of Kafka's topics: whoever may write to a topic chooses their bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import ValidationError

from lb_stream.access.signatures import Signature, SignatureRejected, digest_value
from lb_stream.access.signing_keys import AllowedSigner, Keyring, Signer
from lb_stream.agent.agent import Agent
from lb_stream.agent.config import AgentConfig
from lb_stream.cli.monitor.classic import read_report
from lb_stream.console.sources.live import TopicFollower
from lb_stream.contracts.base import MAX_AMOUNT, canonical_json
from lb_stream.contracts.columnar import digest_of, read_roster, write_roster
from lb_stream.contracts.commands import COMMANDS, LEADERSHIP_RECORDS
from lb_stream.contracts.decisions import Decision, read_decision
from lb_stream.contracts.reads import Reads
from lb_stream.contracts.reports import AGENT_KINDS
from lb_stream.contracts.trace_ids import parse_traceparent
from lb_stream.io.leadership.topic import parse_leadership_record
from lb_stream.io.lookup.client import Lookup, LookupConfig, OwnerRequest
from lb_stream.stream.partition_records import LONGEST_SHOWN, describe_rejection
from lb_stream.stream.records import (
    RecordRejected,
    find_command_sender,
    parse_agent_record,
    parse_command,
    parse_report,
)
from tests.fuzz.registry import find_example, require_message, target
from tests.support.decoding import KNOWN, decoded, record

REPORT_WORDS = (
    '"lastStats":{',
    '"bundles":[',
    '"topicShares":{',
    '"loadReportType":"LocalBrokerData"',
    '"loadReportType":"LoadReport"',
    '"systemResourceUsage":{',
    '"bundleStats":{',
    '"weightedMaxEMA":',
    '"topBundlesLoadData":[',
    '"bundleName":',
    '"stats":{',
    '"msgRateIn":',
    '"cpu":{"usage":',
    '"limit":',
    '"startTimestamp":',
    '"webServiceUrl":"http://',
    "t/n/0x00000000_0x80000000",
    "1e308",
    "9223372036854775807",
    "NaN",
    "\\ud800",
)
ROSTER_BEHIND_A_MOVE = write_roster(
    ["shop/orders/0x00000000_0x80000000", "shop/returns/0x00000000_0x80000000"]
)
"""A roster with one of the bundles of the contract's example, and one that it lacks."""
UNEXPECTED = "a readable record ("
"""How the decoder says that it met an exception that no parser has foreseen."""


def require_rejection(rejection: RecordRejected) -> None:
    """Require that a rejection names field, value and what was expected, short enough to show."""
    shown = describe_rejection(rejection)
    assert shown["field"] and shown["expected"], shown
    assert max(map(len, shown.values())) <= LONGEST_SHOWN
    assert not shown["expected"].startswith(UNEXPECTED), shown


@target(
    "stream.records",
    "stream.topic_shares",
    "contracts.fast",
    "core.model.names",
    records=("modular-report", "simple-report", "broker-load", "top-bundles"),
    words=REPORT_WORDS,
    max_bytes=16_384,
)
def report(data: bytes) -> bool:
    """Load reports of all kinds, with and without a broker in the record's key."""
    taken = False
    for broker in ("b-1:8080", ""):
        try:
            found = parse_report(data, broker)
        except RecordRejected as rejection:
            require_rejection(rejection)
            continue
        taken = True
        assert found.broker and all(isinstance(name, str) for name in found.stats)
        if found.wrong_shares is not None:
            require_rejection(found.wrong_shares)
        for hashes, share in found.topic_shares.values():
            assert len(hashes) == len(share) > 0
    return taken


@target(
    "contracts.arrow_stream",
    "contracts.columnar",
    "stream.columns.record_files",
    "stream.columns.rosters",
    records=("roster",),
    words=("name", "ARROW1", "\xff\xff\xff\xff", "t/n/0x00000000_0x80000000"),
    max_bytes=16_384,
)
def roster(data: bytes) -> bool:
    """Rosters: Arrow streams of bundles' names."""
    rows = decoded([record(b"eu/b-1:8080", data, 7, "roster")], KNOWN)["eu", 0]
    _require_foreseen(rows["events"])
    if rows["events"]:
        return False
    names = read_roster(data).to_pylist()
    assert names == sorted(set(names), key=str.encode)
    return True


@target(
    "contracts.arrow_stream",
    "contracts.columnar",
    "stream.columns.bases",
    "stream.columns.content_digests",
    "stream.columns.reading",
    "stream.report_names",
    "stream.report_samples",
    "stream.records",
    records=("columnar-report", "delta"),
    words=(
        *("report", "roster", "is_base", "base", "row", "measured", "msgRateIn", *REPORT_WORDS),
        digest_of(ROSTER_BEHIND_A_MOVE),
    ),
    max_bytes=16_384,
)
def columnar_report(data: bytes) -> bool:
    """Columnar reports and deltas: Arrow streams of figures, after the contract's examples."""
    given = [
        record(b"eu/b-1:8080", find_example("roster").read_bytes(), 4, "roster"),
        record(b"eu/b-1:8080", ROSTER_BEHIND_A_MOVE, 5, "roster"),
        record(b"eu/b-1:8080", find_example("columnar-report").read_bytes(), 6, "columns"),
        record(b"eu/b-1:8080", data, 7, "columns"),
        record(b"eu/b-1:8080", data, 8, "delta"),
    ]
    rows = decoded(given, KNOWN)["eu", 0]
    _require_foreseen(rows["events"])
    for sample in rows["samples"]:
        for value in sample.values():
            assert not isinstance(value, float) or 0 <= value <= MAX_AMOUNT
    assert len(rows["samples"]) == 2 * len(rows["reports"]), "two bundles are in each roster"
    return len(rows["reports"]) > 1


def _require_foreseen(events: list[dict[str, Any]]) -> None:
    """Require that rejections are of a kind that the decoder foresees, and short enough to show."""
    for event in events:
        shown = json.loads(event["payload"])
        assert shown["field"] and shown["expected"], shown
        assert not shown["expected"].startswith(UNEXPECTED), shown


@target(
    "stream.decode",
    "stream.partition_records",
    "stream.shard_blocks",
    "core.averages.acknowledgements",
    words=(*REPORT_WORDS, "eu/b-1:8080", "heartbeat", "ack", "ask", "goodbye", "commands"),
    max_bytes=16_384,
)
def kafka_record(data: bytes) -> bool:
    """Whole records for the decoder: lines with key, header and topic, then the value."""
    key, kind, topic, value = (data.split(b"\n", 3) + [b""] * 3)[:4]
    header = kind.decode(errors="replace") or None
    given = record(key or None, value, 7, header, "commands" if topic == b"commands" else "reports")
    found = decoded([given])
    rows = [row for block in found.values() for row in (*block["reports"], *block["events"])]
    rejected = [row for row in rows if row.get("kind") == "rejected"]
    for row in rejected:
        shown = json.loads(row["payload"])
        assert not shown["expected"].startswith(UNEXPECTED), shown
    return len(rejected) == 0


@target(
    "stream.records",
    "stream.cluster_input",
    records=("heartbeat", "ack", "ask", "goodbye"),
    words=('"decision_id":', '"outcome":"released"', '"boundaries":[', '"balances":null'),
)
def agent_record(data: bytes) -> bool:
    """Heartbeats, acknowledgements, goodbyes and requests for splits."""
    taken = False
    for kind in (*AGENT_KINDS, "other"):
        try:
            text = parse_agent_record(kind, data)
        except RecordRejected as rejection:
            require_rejection(rejection)
            continue
        taken = True
        # What the round reads later is what was checked here.
        if text != "{}":
            model = AGENT_KINDS[kind].model_validate_json(text)
            assert canonical_json(model.model_dump(mode="json")) == text
    return taken


@target(
    "stream.records",
    "contracts.commands",
    "core.commands.base",
    "io.leadership.topic",
    records=("command", "tick", "standby", "claim", "hand-over"),
    words=(
        *(f'"kind":"{kind}"' for kind in (*COMMANDS, *LEADERSHIP_RECORDS)),
        '"id":"1"',
        '"schema_version":',
        '"namespace":"t/n"',
        '"broker":"a:1"',
        '"values":{',
    ),
    max_bytes=8_192,
)
def command(data: bytes) -> bool:
    """Commands of operators, and the records by which jobs agree on a leader."""
    sender = find_command_sender(data)
    assert sender is None or sender["id"]
    canonical_json(sender).encode()
    leader = parse_leadership_record(data)
    try:
        found = parse_command(data)
    except RecordRejected as rejection:
        require_rejection(rejection)
        return False
    if found is None:
        return leader is not None
    # The job logs a command as JSON, and reads it again.
    again = COMMANDS[found.kind].model_validate_json(
        canonical_json(found.model_dump(mode="json")).encode(errors="replace")
    )
    assert again.kind == found.kind and sender is not None
    canonical_json(dict(found.arguments))
    return True


@dataclass
class _Broker:
    """A broker that serves every bundle; it only counts what it is asked to do."""

    name: str = "broker-7.eu.example:8080"
    asked: list[str] = field(default_factory=list)

    def report(self) -> bytes:
        return b"{}"

    def owns(self, bundle: str) -> bool:
        return True

    def release(self, bundle: str) -> None:
        self.asked.append(bundle)

    def acquire(self, bundle: str) -> None:
        self.asked.append(bundle)


@dataclass
class _Record:
    """A consumed record."""

    topic: str
    key: bytes
    value: bytes
    partition: int = 0
    offset: int = 0
    timestamp: int = 1_767_225_661_000
    headers: list[tuple[str, bytes]] = field(default_factory=list)


class _QuietAgent(Agent):
    """An agent that sends nothing, and whose clock stands."""

    def __init__(self) -> None:
        super().__init__(AgentConfig("nowhere:1", "eu-1"), [_Broker()])
        self.reporter.send = lambda *_, **__: None  # type: ignore[method-assign]
        self.reporter.send_report = lambda *_, **__: None  # type: ignore[method-assign]
        self.clock.local_ms = lambda: 1_767_225_661_000


@target(
    "contracts.decisions",
    "agent.agent",
    records=("decision",),
    words=('"kind":"unload"', '"epoch":', '"expires_ms":', '"explain":{', '"children":['),
    max_bytes=8_192,
)
def decision(data: bytes) -> bool:
    """Decisions, as agents and the console read them; an agent never ends over one."""
    _QuietAgent()._handle_records([_Record("lb-decisions", b"eu-1", data)])
    follower = TopicFollower({}, "lb-decisions", "lb-results", lambda _: None)
    list(follower._parse("lb-decisions", [_Record("lb-decisions", b"", data)]))
    try:
        found = read_decision(data)
    except ValidationError as error:
        require_message(error)
        return False
    assert Decision.model_validate_json(found.to_json()) == found
    return True


@target("contracts.reads", "agent.columnar", records=("reads",), words=('"forms":[', '"columns"'))
def reads(data: bytes) -> bool:
    """What a job reads, as agents are told it; an agent never ends over one."""
    agent = _QuietAgent()
    agent._handle_records([_Record("lb-decisions", b"eu-1/", data, headers=[("kind", b"reads")])])
    try:
        found = Reads.model_validate_json(data)
    except ValidationError as error:
        require_message(error)
        return False
    believed = agent.reporter.encoder._until_s > 0
    assert believed == (found.cluster == "eu-1" and "columns" in found.forms)
    return True


@target(
    "agent.agent",
    "io.lookup.client",
    "core.ownership.lookup",
    records=("ownership",),
    words=('"state":"Owned"', '"state":"Splitting"', '"version":', '"owner":', '"since_ms":'),
)
def ownership(data: bytes) -> bool:
    """Ownership records, as agents and lookups read them: first a line with the bundle's name."""
    bundle, _, value = data.partition(b"\n")
    if bundle.startswith(b"{"):  # without that line
        bundle, value = b"shop/orders/0x00000000_0x80000000", data
    agent = _QuietAgent()
    agent._handle_records([_Record("lb-ownership", b"eu-1/" + bundle, value)])
    lookup = Lookup(LookupConfig("nowhere:1"))
    lookup._take_ownership(_Record("lb-ownership", b"eu-1/" + bundle, value))
    for cluster in lookup._routes.clusters:
        lookup._routes.find(cluster, "shop/orders", 7)
    return len(lookup._routes) > 0


@target(
    "console.sources.live",
    "io.lookup.client",
    records=("command-result",),
    words=('"id":"1"', '"outcome":"done"', '"text":', '"kind":"unload"', '"at_ms":'),
)
def command_result(data: bytes) -> bool:
    """Results of commands, as lookups and the console read them."""
    lookup = Lookup(LookupConfig("nowhere:1"))
    lookup._subjects["1"] = subject = ("eu-1", "shop/orders")
    lookup._requests[subject] = (0.0, OwnerRequest("1"))
    lookup._take_result(_Record("lb-command-results", b"1", data))
    follower = TopicFollower({}, "lb-decisions", "lb-results", lambda _: None)
    rows = list(follower._parse("lb-results", [_Record("lb-results", b"", data)]))
    return bool(rows)


@target("cli.monitor.classic", words=REPORT_WORDS, max_bytes=16_384)
def monitored_report(data: bytes) -> bool:
    """Load reports, as `lbctl monitor` reads them: what is none is left out."""
    return read_report(data) is not None


@target("contracts.trace_ids", words=("00-", "-01", "ff-", "0" * 32), max_bytes=256)
def traceparent(data: bytes) -> bool:
    """The header traceparent: anything but a well-formed one is none."""
    found = parse_traceparent(data)
    if found is None:
        return False
    again = parse_traceparent(found.encode())
    assert again == found
    return True


@cache
def _keyring() -> tuple[Signer, Keyring]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    signer = Signer(Ed25519PrivateKey.from_private_bytes(b"7" * 32))
    public = signer._private_key.public_key().public_bytes_raw()
    return signer, Keyring((AllowedSigner("eu-1/a:1", public),))


@target(
    "access.signatures",
    "access.signing_keys",
    words=("lb-key", "lb-signed-us", "lb-signature", "1767225661000000"),
    max_bytes=512,
)
def signature_headers(data: bytes) -> bool:
    """The three headers of a signature, a line each: nothing but the right ones is accepted."""
    signer, keyring = _keyring()
    key, time_us, value = (data.split(b"\n", 2) + [b""] * 2)[:3]
    if key == b"own":
        key = signer.key_id.encode()
    found = Signature.from_headers(
        [("lb-key", key), ("lb-signed-us", time_us), ("lb-signature", value)]
    )
    try:
        keyring.verify(
            found,
            "reports",
            b"eu-1/a:1",
            "",
            lambda: digest_value(b"{}"),
            1_767_225_661_000,
            "eu-1/a:1",
        )
    except SignatureRejected as error:
        require_message(error)
        return False
    raise AssertionError("a signature that nobody has made is accepted")
