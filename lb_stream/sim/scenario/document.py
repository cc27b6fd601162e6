"""The keys of scenario.json and their types. `references` checks what they refer to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from lb_stream.contracts.base import LONGEST_BROKER, LONGEST_NAMESPACE, MAX_AMOUNT
from lb_stream.sim.scenario.errors import ScenarioError, build_scenario_error
from lb_stream.sim.scenario.scenario import JUDGED, EventKind, FaultKind, Format, StatedLimit

DOCUMENT = "scenario.json"
MOST_TICKS = 10_000_000

Positive = Annotated[float, Field(gt=0, le=MAX_AMOUNT)]
Amount = Annotated[float, Field(ge=0, le=MAX_AMOUNT)]
Ticks = Annotated[int, Field(ge=1, le=MOST_TICKS)]
Text = Annotated[str, StringConstraints(min_length=1)]
Stated = Annotated[float, Field(ge=-MAX_AMOUNT, le=MAX_AMOUNT)]
"""A limit that a report states. It may be absurd: reports of real brokers are."""


def _form(pattern: str, expected: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise PydanticCustomError("form", "{expected}", {"expected": expected})
        return text

    return AfterValidator(check)


BrokerName = Annotated[
    str, StringConstraints(max_length=LONGEST_BROKER), _form(r"[^\s/]+:\d+", "host:port")
]
NamespaceName = Annotated[
    str,
    StringConstraints(max_length=LONGEST_NAMESPACE),
    _form(r"[^\s/]+/[^\s/]+(/[^\s/]+)?", "tenant/namespace"),
]


class _Part(BaseModel):
    """A part with all of its keys and no others. Numbers are finite; no type is converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class MoveEntry(_Part):
    release_s: Amount
    acquire_s: Amount
    reconnect_s: Amount


class BrokerEntry(_Part):
    name: BrokerName
    up: bool
    cpu_msgs_per_s: Positive
    cpu_bytes_per_s: Positive
    bandwidth_in_bytes_per_s: Positive
    bandwidth_out_bytes_per_s: Positive
    memory_bytes: Positive
    memory_base_bytes: Amount
    direct_memory_bytes: Positive
    direct_memory_base_bytes: Amount
    report_phase_s: Amount
    unreported: list[StatedLimit] = []
    misreported: dict[StatedLimit, Stated] = {}
    cpu_base: Amount = 0.0


class EventEntry(_Part):
    t_s: Amount
    broker: str
    kind: EventKind
    factor: Positive | None = None


class RolloutEntry(_Part):
    t_s: Amount
    kind: Literal["rollout"]
    restart_s: Positive
    at_most: Annotated[int, Field(ge=1)]
    brokers: Annotated[list[str], Field(min_length=1)] | None = None
    order: Literal["any", "given"] = "any"


class FaultEntry(_Part):
    kind: FaultKind
    brokers: Annotated[list[str], Field(min_length=1)]
    from_s: Amount
    to_s: Amount
    delay_s: Amount | None = None


class IsolationEntry(_Part):
    name: Text
    namespaces: Annotated[list[NamespaceName], Field(min_length=1)]
    primary: Annotated[list[str], Field(min_length=1)]
    secondary: list[str]
    min_available: Annotated[int, Field(ge=0)]


class AntiAffinityEntry(_Part):
    name: Text
    namespaces: Annotated[list[NamespaceName], Field(min_length=1)]


class BudgetEntry(_Part):
    namespace: NamespaceName
    moves_per_hour: Annotated[int, Field(ge=0)]


class SplitEntry(_Part):
    split_s: Amount
    detailed_bundles: Annotated[int, Field(ge=0)]
    max_rate: Positive
    max_bytes_per_s: Positive
    difference: Amount


class PoliciesEntry(_Part):
    isolation: list[IsolationEntry] = []
    anti_affinity: list[AntiAffinityEntry] = []
    pinned_namespaces: list[NamespaceName] = []
    budgets: list[BudgetEntry] = []


class Document(_Part):
    """scenario.json."""

    format: Format
    name: Text
    why: str
    tick_s: Positive
    ticks: Ticks
    load_step_ticks: Ticks
    noise_step_ticks: Ticks
    noise_unit: Amount
    report_interval_s: Positive
    report_delay_s: Amount
    judge_from_s: Amount
    settled_from_s: Amount
    move: MoveEntry
    judged: list[str]
    brokers: Annotated[list[BrokerEntry], Field(min_length=1)]
    events: list[Annotated[EventEntry | RolloutEntry, Field(discriminator="kind")]]
    faults: list[FaultEntry]
    policies: PoliciesEntry
    split: SplitEntry | None = None


def read_document(path: Path) -> Document:
    """Read and check scenario.json. Raises ScenarioError."""
    try:
        given = json.loads(
            path.read_text(encoding="utf-8"),
            object_pairs_hook=lambda pairs: _require_unique_keys(path, pairs),
        )
    except OSError as error:
        raise ScenarioError(path, "", None, f"a file that can be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, ScenarioError):
            raise
        raise ScenarioError(path, "", None, f"JSON in UTF-8 ({error})") from None
    return parse_document(path, given)


def parse_document(path: Path, given: object) -> Document:
    """Check the content of scenario.json. Raises ScenarioError."""
    try:
        document = Document.model_validate(given)
    except ValidationError as error:
        raise build_scenario_error(path, Document, error) from None
    if document.judged != list(JUDGED):
        raise ScenarioError(
            path, "judged", document.judged, f"{list(JUDGED)}: no format has another"
        )
    if document.format == 1:
        _require_format_1(path, document)
    return document


def _require_format_1(path: Path, document: Document) -> None:
    """Require that a document has no key of format 2. Raises ScenarioError."""

    def refuse(field: str, value: object) -> ScenarioError:
        return ScenarioError(path, field, value, "none in format 1: it is of format 2")

    for at, broker in enumerate(document.brokers):
        for key in ("unreported", "misreported", "cpu_base"):
            if key in broker.model_fields_set:
                raise refuse(f"brokers[{at}].{key}", getattr(broker, key))
    for at, event in enumerate(document.events):
        if isinstance(event, RolloutEntry):
            raise refuse(f"events[{at}].kind", event.kind)
    if document.split is not None:
        raise refuse("split", document.split.model_dump())


def _require_unique_keys(path: Path, pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ScenarioError(path, name, value, "each key once in an object")
        found[name] = value
    return found
