"""Parse single Kafka records: from bytes to a report, an event or a command, or a rejection."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import msgspec
from pydantic import BaseModel, ValidationError

from lb_stream.contracts.base import LONGEST_BROKER, RESOURCES, canonical_json, describe_expected
from lb_stream.contracts.commands import COMMANDS, LEADERSHIP_RECORDS, SCHEMA_VERSION, Command
from lb_stream.contracts.fast import build_struct
from lb_stream.contracts.reports import (
    AGENT_KINDS,
    LOAD_DATA_KINDS,
    REPORT_KINDS,
    BrokerLoadReport,
    BundleStats,
    ModularLoadReport,
    SimpleLoadReport,
    SplitAsk,
    TopBundlesReport,
    find_report_kind,
)
from lb_stream.core.model.names import parse_bundle
from lb_stream.stream.topic_shares import TopicParts, read_topic_shares

MAX_RECORD_BYTES = 32 << 20
"""Bytes of a decompressed record: three times Kafka's own limit, which is for compressed ones."""

LONGEST_BUNDLE = 1_000
"""Bytes of a bundle's name.

Each record about the bundle has it several times, and a record too large for Kafka would hold up
all others.
"""

BUNDLE_EXPECTED = (
    f"<tenant>/<namespace>/0xLLLLLLLL_0xHHHHHHHH, L < H, at most {LONGEST_BUNDLE} bytes"
)

MAX_BOUNDARIES = 1_000
"""Boundaries of one split, whose records name every child."""

MAX_SHOWN = 20
"""Elements of a rejected list that are shown; of a longer list only its length is."""


class RecordRejected(Exception):
    """A rejected record: the wrong field, its value, and what was expected."""

    def __init__(self, field: str, value: str, expected: str) -> None:
        super().__init__(f"{field} = {value}: expected {expected}")
        self.field, self.value, self.expected = field, value, expected


@dataclass(frozen=True, slots=True)
class ReportRecord:
    """A load report of any form.

    `fields`: columns of REPORT_SCHEMA. `stats`: bundle → statistics, a struct of STATS_FIELDS.
    `unmeasured`: bundles that the report names without statistics. `topic_shares`: of some of its
    bundles. `wrong_shares`: the rejection of others' shares.
    """

    broker: str
    fields: dict[str, object]
    stats: Mapping[str, msgspec.Struct]
    unmeasured: list[str]
    topic_shares: TopicParts
    wrong_shares: RecordRejected | None

    @staticmethod
    def build(
        broker: str,
        fields: dict[str, object],
        stats: Mapping[str, Any],
        unmeasured: list[str],
        topic_shares: object = None,
        named: Container[str] | None = None,
    ) -> ReportRecord:
        """Return a report; `stats` are models or structs, `topic_shares` is its field.

        `named`: the bundles that a columnar report names; None: those of `stats` and `unmeasured`.
        """
        rejected = None
        parts, wrong = read_topic_shares(
            topic_shares, lambda: {*stats, *unmeasured} if named is None else named
        )
        if wrong is not None:
            rejected = RecordRejected(wrong.field, wrong.value, wrong.expected)
        return ReportRecord(broker, fields, _structs(stats), unmeasured, parts, rejected)


_STATS = build_struct(BundleStats)
STATS_FIELDS: tuple[str, ...] = _STATS.__struct_fields__

# A record with one of these fields is of another kind than the struct that decodes it.
_OTHER_KINDS = ("topBundlesLoadData", "weightedMaxEMA", "state", "versionId")
_NOT_MODULAR = (*_OTHER_KINDS, "systemResourceUsage")
# The structs have the models' attributes: functions below take either for the model.
_MODULAR = msgspec.json.Decoder(build_struct(ModularLoadReport, _NOT_MODULAR))
_SIMPLE = msgspec.json.Decoder(build_struct(SimpleLoadReport, _OTHER_KINDS))


def parse_report(value: bytes, broker: str) -> ReportRecord:
    """Return a load report of any form.

    `broker`: as the record's key names it; if empty, the report must name it. Raises
    RecordRejected.
    """
    try:
        report = _MODULAR.decode(value)
        if _is_kind(report, _NOT_MODULAR, "LocalBrokerData", bool(report.last_stats)):
            return _modular(report, broker)
        report = _SIMPLE.decode(value)
        if _is_kind(report, _OTHER_KINDS, "LoadReport", False):
            return _simple(report, broker)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # The models raise an error that names the wrong field.
        pass
    return _parse_by_model(value, broker)


def parse_own_fields(value: bytes, broker: str, named: Container[str]) -> ReportRecord:
    """Return the broker's own part of a columnar report, as of a report without bundles.

    `value`: a modular report without `lastStats` and `bundles`. `named`: the bundles that its
    roster names. Raises RecordRejected.
    """
    try:
        report = _MODULAR.decode(value)
        if not _is_kind(report, _NOT_MODULAR, "LocalBrokerData", False):
            report = None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        report = None
    if report is None:
        fields = _parse_object(value)
        if find_report_kind(fields) != "modular":
            raise RecordRejected(
                "loadReportType",
                str(fields.get("loadReportType")),
                "LocalBrokerData: other reports have no columns, and are sent as JSON",
            )
        report = _validate(ModularLoadReport, value)
    for name, bundles in (("lastStats", report.last_stats), ("bundles", report.bundles)):
        if bundles:
            raise RecordRejected(
                name, f"{len(bundles)} bundles", "none: the roster names the bundles"
            )
    return _modular(report, broker, named)


def _is_kind(
    report: ModularLoadReport | SimpleLoadReport,
    other_kinds: tuple[str, ...],
    declared: str,
    looks_like: bool,
) -> bool:
    """Return whether a report is of the kind that it was decoded as.

    `other_kinds`: fields that only other kinds have. `declared`: the kind's name in the report.
    `looks_like`: whether a report that declares no kind is of this one.
    """
    if any(bytes(getattr(report, name)) for name in other_kinds):
        return False
    return report.load_report_type == declared or (report.load_report_type is None and looks_like)


def _parse_by_model(value: bytes, broker: str) -> ReportRecord:
    """Return a report whose kind the structs can't find, by the models: slower, with messages."""
    fields = _parse_object(value)
    kind = find_report_kind(fields)
    if kind in LOAD_DATA_KINDS:
        load_data = _validate(LOAD_DATA_KINDS[kind], value)
        if isinstance(load_data, BrokerLoadReport):
            return _broker_load(load_data, broker)
        return _top_bundles(load_data, broker)
    if kind not in REPORT_KINDS:
        seen = kind or ", ".join(sorted(fields)[:5]) or "{}"
        raise RecordRejected(
            "loadReportType",
            str(fields.get("loadReportType", seen)),
            "LocalBrokerData or LoadReport, or the fields of one of them",
        )
    report = _validate(REPORT_KINDS[kind], value)
    if isinstance(report, ModularLoadReport):
        return _modular(report, broker)
    return _simple(report, broker)


def _structs(stats: Mapping[str, Any]) -> Mapping[str, msgspec.Struct]:
    """Return the bundles' statistics as structs, whether they are models or structs."""
    if not stats or isinstance(next(iter(stats.values())), _STATS):
        return stats
    return {
        name: _STATS(**{field: getattr(bundle_stats, field) for field in STATS_FIELDS})
        for name, bundle_stats in stats.items()
    }


def _parse_object(value: bytes) -> dict[str, object]:
    """Return a JSON object. Raises RecordRejected."""
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RecordRejected(
            "value", value[:100].decode(errors="replace"), f"JSON ({error})"
        ) from None
    if not isinstance(fields, dict):
        raise RecordRejected("value", value[:100].decode(errors="replace"), "a JSON object")
    return fields


_Model = TypeVar("_Model", bound=BaseModel)


def _validate(model: type[_Model], value: bytes) -> _Model:
    """Return the record as the model. Raises RecordRejected."""
    try:
        return model.model_validate_json(value)
    except ValidationError as error:
        _reject(error)


def _reject(error: ValidationError) -> NoReturn:
    """Raise RecordRejected for the first field that is wrong."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"])) or "value"
    raise RecordRejected(field, _show_value(first["input"]), describe_expected(first)) from None


def _show_value(value: object) -> str:
    """Return a rejected value as text; of a list that is too long to read, its length."""
    if isinstance(value, list) and len(value) > MAX_SHOWN:
        return f"{len(value)} of them"
    return repr(value)


def _identity(broker: str, name: str | None, url: str | None) -> str:
    """Return the report's broker: the key's, else the report's own name or address (host:port).

    Raises RecordRejected.
    """
    found = broker or name or _host_and_port(url)
    if not found:
        raise RecordRejected(
            "key",
            "",
            "<cluster>/<broker>, or a report with name or webServiceUrl: the broker can't be known",
        )
    if len(found) > LONGEST_BROKER:
        raise RecordRejected(
            "name" if name else "webServiceUrl",
            found,
            f"at most {LONGEST_BROKER} characters of a broker",
        )
    return found


def _host_and_port(url: str | None) -> str:
    try:
        return urlsplit(url).netloc if url and "//" in url else ""
    except ValueError:
        # For instance an IPv6 address whose bracket isn't closed.
        return ""


def _common_fields(
    report: ModularLoadReport | SimpleLoadReport, resources: object, **own: object
) -> dict[str, object]:
    """Return the columns that reports of both kinds have, and `own`.

    `resources`: an object whose attributes are resources' usages and limits.
    """
    fields: dict[str, object] = {
        "start_timestamp_ms": report.start_timestamp,
        "persistent_topics": report.persistent_topics_enabled,
        "non_persistent_topics": report.non_persistent_topics_enabled,
        "version": report.broker_version_string,
        "load_manager": report.load_manager_class_name,
        "topics": report.num_topics,
        "bundles": report.num_bundles,
        "producers": report.num_producers,
        "consumers": report.num_consumers,
        "latest_rate_in_msgs_per_s": report.msg_rate_in,
        "latest_rate_out_msgs_per_s": report.msg_rate_out,
    }
    for resource in RESOURCES:
        usage = getattr(resources, resource)
        fields[f"{resource}_usage"], fields[f"{resource}_limit"] = usage.usage, usage.limit
    return fields | own


def _modular(
    report: ModularLoadReport, broker: str, named: Container[str] | None = None
) -> ReportRecord:
    """Return a report of the modular manager. `named`: as for `ReportRecord.build`."""
    fields = _common_fields(
        report,
        report,
        kind="modular",
        last_update_ms=report.last_update,
        latest_throughput_in_bytes_per_s=report.msg_throughput_in,
        latest_throughput_out_bytes_per_s=report.msg_throughput_out,
        bundle_gains=len(report.last_bundle_gains),
        bundle_losses=len(report.last_bundle_losses),
    )
    unmeasured: list[str] = []
    if len(report.bundles) > len(report.last_stats):
        unmeasured = sorted(set(report.bundles) - report.last_stats.keys())
    return ReportRecord.build(
        _identity(broker, None, report.web_service_url),
        fields,
        report.last_stats,
        unmeasured,
        report.topic_shares,
        named,
    )


MAX_COUNT = 2**63 - 1
"""The highest count that a column can hold; several bundles together may report more."""


def _simple(report: SimpleLoadReport, broker: str) -> ReportRecord:
    """Return a report of the simple manager: its rates and counts are the sums of its bundles'."""
    stats = report.bundle_stats.values()
    fields = _common_fields(
        report,
        report.system_resource_usage,
        kind="simple",
        last_update_ms=report.timestamp,
        latest_throughput_in_bytes_per_s=sum(bundle.msg_throughput_in for bundle in stats),
        latest_throughput_out_bytes_per_s=sum(bundle.msg_throughput_out for bundle in stats),
        latest_rate_in_msgs_per_s=sum(bundle.msg_rate_in for bundle in stats),
        latest_rate_out_msgs_per_s=sum(bundle.msg_rate_out for bundle in stats),
        topics=min(sum(bundle.topics for bundle in stats), MAX_COUNT),
        bundles=len(report.bundle_stats),
        producers=min(sum(bundle.producer_count for bundle in stats), MAX_COUNT),
        consumers=min(sum(bundle.consumer_count for bundle in stats), MAX_COUNT),
        bundle_gains=len(report.bundle_gains),
        bundle_losses=len(report.bundle_losses),
    )
    return ReportRecord.build(
        _identity(broker, report.name, report.web_service_url),
        fields,
        report.bundle_stats,
        [],
        report.topic_shares,
    )


EXTENSIBLE = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"


def _broker_load(report: BrokerLoadReport, broker: str) -> ReportRecord:
    """Return the first record of an extensible manager's report: all but bundles' statistics."""
    fields: dict[str, object] = {
        "kind": "extensible",
        "start_timestamp_ms": report.start_timestamp,
        "last_update_ms": report.reported_at or report.updated_at,
        "latest_throughput_in_bytes_per_s": report.msg_throughput_in,
        "latest_throughput_out_bytes_per_s": report.msg_throughput_out,
        "latest_rate_in_msgs_per_s": report.msg_rate_in,
        "latest_rate_out_msgs_per_s": report.msg_rate_out,
        "topics": report.topics,
        "bundles": report.bundle_count,
        "version": report.broker_version_string,
        "load_manager": EXTENSIBLE,
        "load_ema": report.weighted_max_ema,
        "throughput_ema_bytes_per_s": report.msg_throughput_ema,
        "some_bundles": report.bundles is None,
    }
    fields |= dict.fromkeys(("producers", "consumers", "bundle_gains", "bundle_losses"), 0)
    fields |= dict.fromkeys(("persistent_topics", "non_persistent_topics"), True)
    for resource in RESOURCES:
        usage = getattr(report, resource)
        fields[f"{resource}_usage"], fields[f"{resource}_limit"] = usage.usage, usage.limit
    return ReportRecord.build(
        _identity(broker, None, None),
        fields,
        {},
        sorted(set(report.bundles or ())),
        report.topic_shares,
    )


def _top_bundles(report: TopBundlesReport, broker: str) -> ReportRecord:
    """Return the second record of an extensible manager's report: statistics of the top bundles.

    It counts only for a broker whose first record is known.
    """
    stats = {bundle.bundle_name: bundle.stats for bundle in report.top_bundles_load_data}
    return ReportRecord.build(
        _identity(broker, None, None),
        {"kind": "extensible", "some_bundles": True, "no_load": True},
        stats,
        [],
    )


def parse_agent_record(kind: str, value: bytes) -> str:
    """Return an agent's heartbeat, acknowledgement, goodbye or request for a split, as JSON.

    The JSON is canonical. Raises RecordRejected.
    """
    model = AGENT_KINDS.get(kind)
    if model is None:
        raise RecordRejected("kind", kind, f"one of report, {', '.join(AGENT_KINDS)}")
    if kind == "heartbeat" and not value:
        return "{}"
    _parse_object(value)
    record = _validate(model, value)
    if isinstance(record, SplitAsk):
        _require_feasible(record)
    return canonical_json(record.model_dump(mode="json"))


LONGEST_ID = 256
"""Characters of an algorithm's name; of an unreadable command's id, kind and sender this many are
kept."""


def _require_feasible(ask: SplitAsk) -> None:
    """Raise RecordRejected for a request that would fail a round, or is too large for Kafka."""
    if len(ask.bundle.encode(errors="replace")) > LONGEST_BUNDLE:
        raise RecordRejected(
            "bundle", ask.bundle, f"at most {LONGEST_BUNDLE} bytes of a bundle's name"
        )
    try:
        parse_bundle(ask.bundle)
    except ValueError:
        raise RecordRejected(
            "bundle", ask.bundle, "<tenant>/<namespace>/0xLLLLLLLL_0xHHHHHHHH, L < H"
        ) from None
    if len(ask.algorithm) > LONGEST_ID:
        raise RecordRejected(
            "algorithm", ask.algorithm, f"at most {LONGEST_ID} characters of an algorithm's name"
        )
    if (count := len(ask.boundaries)) > MAX_BOUNDARIES:
        raise RecordRejected("boundaries", f"{count} of them", f"{MAX_BOUNDARIES} at most")


def parse_command(value: bytes | None) -> Command | None:
    """Return an operator's command; None for a record of leadership, such as a tick.

    Of those only the append time matters here. Raises RecordRejected.
    """
    fields = _parse_object(value or b"")
    kind = str(fields.get("kind"))
    version = fields.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise RecordRejected(
            "schema_version",
            str(version),
            f"{SCHEMA_VERSION} or less: the sender is newer than this balancer",
        )
    if kind in LEADERSHIP_RECORDS:
        _validate(LEADERSHIP_RECORDS[kind], value or b"")
        return None
    if kind not in COMMANDS:
        raise RecordRejected("kind", kind, f"one of {', '.join((*LEADERSHIP_RECORDS, *COMMANDS))}")
    command: Command = _validate(COMMANDS[kind], value or b"")
    return command


def find_command_sender(value: bytes | None) -> dict[str, str] | None:
    """Return id, kind and sender of a command that is rejected, for the answer to it.

    None without an id.
    """
    try:
        fields = _parse_object(value or b"")
    except RecordRejected:
        return None
    sender = {"kind": "", "by": ""}
    for name in ("id", "kind", "by"):
        text = fields.get(name, "")
        if isinstance(text, str):
            sender[name] = text[:LONGEST_ID].encode(errors="replace").decode()
    return sender if sender.get("id") else None
