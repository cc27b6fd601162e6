"""scenario.json: its keys and their types. What refers to something else in it is checked in `references`."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from lb_stream.contracts.base import GREATEST, LONGEST_BROKER, LONGEST_NAMESPACE
from lb_stream.core.config.cluster_config import expected
from lb_stream.sim.scenario.errors import MISSING, ScenarioError, field_path
from lb_stream.sim.scenario.scenario import JUDGED, EventKind, FaultKind

DOCUMENT = "scenario.json"
MOST_TICKS = 10_000_000

Positive = Annotated[float, Field(gt=0, le=GREATEST)]
Amount = Annotated[float, Field(ge=0, le=GREATEST)]
Ticks = Annotated[int, Field(ge=1, le=MOST_TICKS)]
Text = Annotated[str, StringConstraints(min_length=1)]
BrokerName = Annotated[str, StringConstraints(pattern=r"^[^\s/]+:\d+$", max_length=LONGEST_BROKER)]
NamespaceName = Annotated[str, StringConstraints(pattern=r"^[^\s/]+/[^\s/]+(/[^\s/]+)?$", max_length=LONGEST_NAMESPACE)]


class _Part(BaseModel):
    """Every key is there and no other one; numbers are finite, and nothing is turned into another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Move(_Part):
    release_s: Amount
    acquire_s: Amount
    reconnect_s: Amount


class Broker(_Part):
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


class EventEntry(_Part):
    t_s: Amount
    broker: str
    kind: EventKind
    factor: Positive | None = None


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


class Policies(_Part):
    isolation: list[IsolationEntry] = []
    anti_affinity: list[AntiAffinityEntry] = []
    pinned_namespaces: list[NamespaceName] = []
    budgets: list[BudgetEntry] = []


class Document(_Part):
    """The whole of scenario.json."""

    format: Literal[1]
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
    move: Move
    judged: list[str]
    brokers: Annotated[list[Broker], Field(min_length=1)]
    events: list[EventEntry]
    faults: list[FaultEntry]
    policies: Policies


def read_document(path: Path) -> Document:
    """Read and check scenario.json. Raises ScenarioError."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=lambda pairs: _once(path, pairs))
    except OSError as error:
        raise ScenarioError(path, "", None, f"a file that can be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, ScenarioError):
            raise
        raise ScenarioError(path, "", None, f"JSON in UTF-8 ({error})") from None
    return checked(path, given)


def checked(path: Path, given: Any) -> Document:
    """What JSON says, checked. Raises ScenarioError."""
    try:
        document = Document.model_validate(given)
    except ValidationError as error:
        raise told(path, Document, error) from None
    if document.judged != list(JUDGED):
        raise ScenarioError(path, "judged", document.judged, f"{list(JUDGED)}: format 1 has no other")
    return document


def told(path: Path, model: type[BaseModel], error: ValidationError) -> ScenarioError:
    """The first of pydantic's errors in our words."""
    first = error.errors()[0]
    kind, place = first["type"], tuple(first["loc"])
    value = MISSING if kind == "missing" else first["input"]
    if kind in ("missing", "extra_forbidden"):
        known = list(_model_at(model, place[:-1]).model_fields)
        near = get_close_matches(str(place[-1]), known, n=3) or known
        wanted = "it: every key is needed" if kind == "missing" else f"one of the known keys; nearest: {', '.join(near)}"
        return ScenarioError(path, field_path(place), value, wanted)
    return ScenarioError(path, field_path(place), value, _words(first, place))


def _words(error: Any, place: tuple[Any, ...]) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind in _LIMITS:
        limit, words = _LIMITS[kind]
        return words.format(context[limit])
    if kind in ("too_short", "string_too_short"):
        return "at least one of them" if kind == "too_short" else "some text"
    if kind == "string_pattern_mismatch":
        return "host:port" if place[0] == "brokers" else "tenant/namespace"
    if kind == "list_type":
        return "a list"
    return expected(error).replace("a section with keys in it", "an object with keys in it")


_LIMITS = {
    "greater_than": ("gt", "more than {:g}"),
    "greater_than_equal": ("ge", "{:g} or more"),
    "less_than_equal": ("le", "{:g} or less"),
}


def _model_at(model: type[BaseModel], place: tuple[Any, ...]) -> type[BaseModel]:
    """The model of the object that stands there."""
    for part in place:
        if isinstance(part, str):
            model = _within(model.model_fields[part].annotation)
    return model


def _within(annotation: Any) -> type[BaseModel]:
    """The model itself, or the one that a list or an optional value holds."""
    while get_args(annotation):
        annotation = get_args(annotation)[0]
    found: type[BaseModel] = annotation
    return found


def _once(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ScenarioError(path, name, value, "each key once in an object")
        found[name] = value
    return found
