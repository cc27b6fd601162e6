"""One Kafka record at a time: bytes → a validated report, event or command, or the reason why
not."""

from __future__ import annotations

import json
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any, NoReturn
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

LARGEST_BYTES = 32 << 20
"""Of a record when it is decompressed: three times what Kafka takes of one, which bounds only what
is compressed."""

LONGEST_BUNDLE = 1_000
"""Bytes of a bundle's name.

It is several times in each record about the bundle, and one that Kafka doesn't take holds up all
others.
"""

MOST_BOUNDARIES = 1_000
"""Of one split: its records name every child."""

MOST_SHOWN = 20
"""Elements of a rejected list whose values are shown; of a longer one only its length is."""


class RecordRejected(Exception):
    """A record that is not taken: which field, what it held, what was expected."""

    def __init__(self, field: str, value: str, expected: str) -> None:
        super().__init__(f"{field} = {value}: expected {expected}")
        self.field, self.value, self.expected = field, value, expected


@dataclass(frozen=True, slots=True)
class ReportRecord:
    """A load report of either form in the stream's words.

    `stats` holds structs with the fields STATS_FIELDS.
    """

    broker: str
    fields: dict[str, Any]
    stats: dict[str, Any]
    unmeasured: list[str]


_STATS = build_struct(BundleStats)
STATS_FIELDS: tuple[str, ...] = _STATS.__struct_fields__
NO_STATS = _STATS()
"""Stands for a bundle that the broker owns and has not measured."""

# Fields that make a record another kind than the struct's, by the rules that tell reports apart.
_OTHERS = ("topBundlesLoadData", "weightedMaxEMA", "state", "versionId")
_MODULAR = msgspec.json.Decoder(build_struct(ModularLoadReport, (*_OTHERS, "systemResourceUsage")))
_SIMPLE = msgspec.json.Decoder(build_struct(SimpleLoadReport, _OTHERS))


def parse_report(value: bytes, broker: str) -> ReportRecord:
    """Decode a load report, any form.

    `broker` is the key's; when empty the report itself must say whose it is. Raises Rejection.
    """
    try:
        report = _MODULAR.decode(value)
        if _is(
            report, (*_OTHERS, "systemResourceUsage"), "LocalBrokerData", bool(report.last_stats)
        ):
            return _modular(report, broker)
        report = _SIMPLE.decode(value)
        if _is(report, _OTHERS, "LoadReport", False):
            return _simple(report, broker)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass  # the models say what is wrong with it
    return _by_model(value, broker)


def _is(report: Any, others: tuple[str, ...], declared: str, looks_like: bool) -> bool:
    """Whether the decoded struct is the kind that it was decoded as, without a second look at its
    JSON."""
    if any(bytes(getattr(report, name)) for name in others):
        return False
    return report.load_report_type == declared or (report.load_report_type is None and looks_like)


def _by_model(value: bytes, broker: str) -> ReportRecord:
    """The slow way: for records that the structs refuse or can't tell, and for their error
    messages."""
    fields = _json_object(value)
    kind = find_report_kind(fields)
    if kind in LOAD_DATA_KINDS:
        load_data = _validated(LOAD_DATA_KINDS[kind], value)
        return (
            _broker_load(load_data, broker)
            if kind == "broker_load"
            else _top_bundles(load_data, broker)
        )
    if kind not in REPORT_KINDS:
        seen = kind or ", ".join(sorted(fields)[:5]) or "{}"
        raise RecordRejected(
            "loadReportType",
            str(fields.get("loadReportType", seen)),
            "LocalBrokerData or LoadReport, or the fields of one of them",
        )
    model = _validated(REPORT_KINDS[kind], value)
    return _modular(model, broker) if kind == "modular" else _simple(model, broker)


def _structs(stats: dict[str, Any]) -> dict[str, Any]:
    """Statistics as structs, whichever way they were decoded."""
    if not stats or isinstance(next(iter(stats.values())), _STATS):
        return stats
    return {
        name: _STATS(**{field: getattr(one, field) for field in STATS_FIELDS})
        for name, one in stats.items()
    }


def _json_object(value: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RecordRejected(
            "value", value[:100].decode(errors="replace"), f"JSON ({error})"
        ) from None
    if not isinstance(fields, dict):
        raise RecordRejected("value", value[:100].decode(errors="replace"), "a JSON object")
    return fields


def _validated(model: type[BaseModel], value: bytes) -> Any:
    try:
        return model.model_validate_json(value)
    except ValidationError as error:
        _reject(error)


def _reject(error: ValidationError) -> NoReturn:
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"])) or "value"
    raise RecordRejected(field, _show_value(first["input"]), describe_expected(first)) from None


def _show_value(value: object) -> str:
    """Return a rejected value as text; of a list that is too long to read, its length."""
    if isinstance(value, list) and len(value) > MOST_SHOWN:
        return f"{len(value)} of them"
    return repr(value)


def _identity(broker: str, name: str | None, url: str | None) -> str:
    """Whose report it is: the key's broker, else the report's own name or web address
    (host:port)."""
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
    except ValueError:  # an address of version 6 that doesn't end
        return ""


def _common(report: Any, resources: Any, **own: Any) -> dict[str, Any]:
    fields = {
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


def _modular(report: Any, broker: str) -> ReportRecord:
    fields = _common(
        report,
        report,
        kind="modular",
        last_update_ms=report.last_update,
        latest_throughput_in_bytes_per_s=report.msg_throughput_in,
        latest_throughput_out_bytes_per_s=report.msg_throughput_out,
        bundle_gains=len(report.last_bundle_gains),
        bundle_losses=len(report.last_bundle_losses),
    )
    unmeasured = (
        []
        if len(report.bundles) <= len(report.last_stats)
        else sorted(set(report.bundles) - report.last_stats.keys())
    )
    return ReportRecord(
        _identity(broker, None, report.web_service_url),
        fields,
        _structs(report.last_stats),
        unmeasured,
    )


GREATEST_COUNT = 2**63 - 1
"""What a column can hold; one bundle may claim as much, several together more."""


def _simple(report: Any, broker: str) -> ReportRecord:
    """A simple report's rates and counts are those of its bundles, whatever it says itself."""
    stats = report.bundle_stats.values()
    fields = _common(
        report,
        report.system_resource_usage,
        kind="simple",
        last_update_ms=report.timestamp,
        latest_throughput_in_bytes_per_s=sum(bundle.msg_throughput_in for bundle in stats),
        latest_throughput_out_bytes_per_s=sum(bundle.msg_throughput_out for bundle in stats),
        latest_rate_in_msgs_per_s=sum(bundle.msg_rate_in for bundle in stats),
        latest_rate_out_msgs_per_s=sum(bundle.msg_rate_out for bundle in stats),
        topics=min(sum(bundle.topics for bundle in stats), GREATEST_COUNT),
        bundles=len(report.bundle_stats),
        producers=min(sum(bundle.producer_count for bundle in stats), GREATEST_COUNT),
        consumers=min(sum(bundle.consumer_count for bundle in stats), GREATEST_COUNT),
        bundle_gains=len(report.bundle_gains),
        bundle_losses=len(report.bundle_losses),
    )
    return ReportRecord(
        _identity(broker, report.name, report.web_service_url),
        fields,
        _structs(report.bundle_stats),
        [],
    )


EXTENSIBLE = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"


def _broker_load(report: BrokerLoadReport, broker: str) -> ReportRecord:
    """The first half of what an extensible manager's broker says: all but its bundles'
    statistics."""
    fields = {
        "kind": "extensible",
        "start_timestamp_ms": report.start_timestamp,
        "last_update_ms": report.reported_at or report.updated_at,
        "latest_throughput_in_bytes_per_s": report.msg_throughput_in,
        "latest_throughput_out_bytes_per_s": report.msg_throughput_out,
        "latest_rate_in_msgs_per_s": report.msg_rate_in,
        "latest_rate_out_msgs_per_s": report.msg_rate_out,
        "topics": report.topics,
        "bundles": report.bundle_count,
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
    return ReportRecord(
        _identity(broker, None, None), fields, {}, sorted(set(report.bundles or ()))
    )


def _top_bundles(report: TopBundlesReport, broker: str) -> ReportRecord:
    """The second half: statistics of the heaviest bundles.

    It counts only for a broker whose first half is known.
    """
    stats = {bundle.bundle_name: bundle.stats for bundle in report.top_bundles_load_data}
    return ReportRecord(
        _identity(broker, None, None),
        {"kind": "extensible", "some_bundles": True, "no_load": True},
        _structs(stats),
        [],
    )


def parse_agent_record(kind: str, value: bytes) -> str:
    """Check a heartbeat, acknowledgement or goodbye and give it back as canonical JSON.

    Raises Rejection.
    """
    model = AGENT_KINDS.get(kind)
    if model is None:
        raise RecordRejected("kind", kind, f"one of report, {', '.join(AGENT_KINDS)}")
    if kind == "heartbeat" and not value:
        return "{}"
    _json_object(value)
    record = _validated(model, value)
    if isinstance(record, SplitAsk):
        _check_ask(record)
    return canonical_json(record.model_dump(mode="json"))


LONGEST_ID = 256
"""Characters of an algorithm's name, and of an unreadable command's id, kind and sender that are
kept."""


def _check_ask(ask: SplitAsk) -> None:
    """What a round would fail at, or what makes its decision too large for Kafka, is told of the
    record that it comes from."""
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
    _check_boundaries(ask.boundaries)


def _check_boundaries(given: Sized) -> None:
    if len(given) > MOST_BOUNDARIES:
        raise RecordRejected("boundaries", f"{len(given)} of them", f"{MOST_BOUNDARIES} at most")


def parse_command(value: bytes | None) -> Command | None:
    """An operator's command; None for a job's sign (a tick), which says by its append time all that
    matters here. Raises Rejection."""
    fields = _json_object(value or b"")
    kind, version = str(fields.get("kind")), fields.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise RecordRejected(
            "schema_version",
            str(version),
            f"{SCHEMA_VERSION} or less: the sender is newer than this balancer",
        )
    if kind in LEADERSHIP_RECORDS:
        _validated(LEADERSHIP_RECORDS[kind], value or b"")
        return None
    if kind not in COMMANDS:
        raise RecordRejected("kind", kind, f"one of {', '.join((*LEADERSHIP_RECORDS, *COMMANDS))}")
    command: Command = _validated(COMMANDS[kind], value or b"")
    return command


def find_command_sender(value: bytes | None) -> dict[str, str] | None:
    """The id of a command that can't be taken, with its kind and sender, if it has one: it is
    answered all the same."""
    try:
        fields = _json_object(value or b"")
    except RecordRejected:
        return None
    given = {name: fields.get(name, "") for name in ("id", "kind", "by")}
    shown = {
        name: text[:LONGEST_ID].encode(errors="replace").decode()
        for name, text in given.items()
        if isinstance(text, str)
    }
    return {"kind": "", "by": ""} | shown if shown.get("id") else None
