"""Whatever bytes arrive: each record is taken or rejected, once, by the published models, and
others are decoded as if it weren't there."""

import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lb_stream.contracts.reports import LOAD_DATA_KINDS, REPORT_KINDS, find_report_kind
from lb_stream.core.model.names import parse_bundle
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.records import LONGEST_BROKER
from lb_stream.stream.shards.directory import ShardMap
from tests.e2e.hostile import CLUSTERS, Wild, good, hostile
from tests.support.decoding import decoded, record

CONFIG = DecodeConfig(
    default_cluster="home",
    commands_topic="commands",
    known={"steady": ShardMap(2), CLUSTERS[0]: ShardMap(4)},
)
ALL_KNOWN = DecodeConfig(
    "home", "commands", {name: ShardMap(2) for name in ("home", "steady", *CLUSTERS)}
)
STEADY = [
    record(f"steady/{name}".encode(), good(at, "steady").value, 1_000 + at)
    for at, name in enumerate(("b1:8080", "b2:8080"))
]

wild_ones = st.lists(st.randoms(use_true_random=False), min_size=1, max_size=6).map(
    lambda chances: [hostile(chance, at, largest=20_000) for at, chance in enumerate(chances)]
)
noise = st.lists(
    st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=60)),
    min_size=1,
    max_size=6,
)


def raw(wild: list[Wild]) -> list[dict[str, Any]]:
    """As Spark hands them to the decoder."""
    return [record(one.key, one.value, offset, one.kind) for offset, one in enumerate(wild)]


def accounted(records: list[dict[str, Any]]) -> dict[int, list[str]]:
    """Offset → what has become of the record, as often as it has: report, rejected, or an agent's
    kind."""
    found: dict[int, list[str]] = {one["offset"]: [] for one in records}
    for (_, shard), block in decoded(records, ALL_KNOWN).items():
        if shard == 0:
            for row in block["reports"]:
                found[row["offset"]].append("report")
            for event in block["events"]:
                if event["kind"] != "clock":
                    found[event["offset"]].append(event["kind"])
    return found


def readable(one: Wild) -> bool:
    """Whether a report can be taken, told by the published models alone."""
    try:
        cluster, _, broker = (one.key or b"").decode().rpartition("/")
        fields = json.loads(one.value or b"")
        model = (REPORT_KINDS | LOAD_DATA_KINDS)[
            find_report_kind(fields) or ""
        ].model_validate_json(one.value or b"")
        stats = getattr(model, "last_stats", None) or getattr(model, "bundle_stats", {})
        for name in [*stats, *(getattr(model, "bundles", None) or ())]:
            parse_bundle(name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError):
        return False
    named = (
        broker
        or getattr(model, "name", None)
        or (getattr(model, "web_service_url", None) or "").partition("//")[2]
    )
    return 0 < len(named or "") <= LONGEST_BROKER and (not cluster or cluster in CLUSTERS)


def only_unread_fields_are_bad(value: bytes) -> bool:
    """Whether the record may be taken although the models' JSON parser refuses it: the decoder
    skips fields that it has no use for."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return True
    return b"[" * 50 in value or b'{"a":' * 50 in value


@given(wild_ones)
def test_each_record_is_taken_once_or_rejected_once(wild: list[Wild]) -> None:
    found = accounted(raw(wild))
    assert {offset: len(fates) for offset, fates in found.items()} == dict.fromkeys(found, 1), (
        Counter(one.done for one in wild)
    )


@given(noise)
def test_each_record_of_plain_noise_is_taken_once_or_rejected_once(
    noise: list[tuple[bytes | None, bytes | None]],
) -> None:
    records = [record(key, value, offset) for offset, (key, value) in enumerate(noise)]
    made_up = {
        offset for offset, (_, value) in enumerate(noise) if not value
    }  # a goodbye in the name of nobody says nothing
    assert all(len(fates) == 1 or offset in made_up for offset, fates in accounted(records).items())


@given(wild_ones)
def test_a_report_is_taken_when_the_published_model_takes_it(wild: list[Wild]) -> None:
    for offset, fates in accounted(raw(wild)).items():
        one = wild[offset]
        if one.kind in (None, "report") and one.value:
            taken, expected = fates == ["report"], readable(one)
            assert taken == expected or (taken and only_unread_fields_are_bad(one.value)), (
                one.done,
                fates,
                one.key,
                one.value[:500],
            )


@given(wild_ones)
def test_what_others_send_is_decoded_as_if_the_bad_ones_were_not_there(wild: list[Wild]) -> None:
    among = decoded([*raw(wild), *STEADY], CONFIG)
    for shard, block in decoded(STEADY, CONFIG).items():
        if shard[0] == "steady":
            others = [event for event in among[shard]["events"] if event["kind"] != "clock"]
            assert (among[shard]["reports"], among[shard]["samples"]) == (
                block["reports"],
                block["samples"],
            )
            assert others == [event for event in block["events"] if event["kind"] != "clock"]


@given(wild_ones)
def test_a_rejection_tells_field_value_and_expectation_in_short_text(wild: list[Wild]) -> None:
    for block in decoded(raw(wild), CONFIG).values():
        for event in block["events"]:
            if event["kind"] == "rejected":
                shown = json.loads(event["payload"])
                assert shown["field"] and shown["expected"]
                assert max(map(len, [*shown.values(), event["broker"]])) <= 200
