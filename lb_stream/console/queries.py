"""What an address asks for: the models of its parameters, for pages and for the API.

A page takes its own parameters and ignores others; the API refuses others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema
from starlette.exceptions import HTTPException
from starlette.requests import Request

from lb_stream.contracts.keys import describe_expected_setting
from lb_stream.query.present.next_moves import DEFAULT_STRATEGY
from lb_stream.query.screens import brokers, costs, feed, group_chart, heat, load_shares
from lb_stream.query.screens.lists import ListRequest
from lb_stream.query.screens.over_time import SPANS

MAX_CHARACTERS = 2_000
"""Length of one value of an address; names of bundles are shorter."""
MAX_NUMBER = 10**15
MAX_SHOWN_CHARACTERS = 200
"""Characters of a wrong value that a message repeats."""
GROUPS = ("namespace", "tenant")
AUDIT_CHOICES = ("all", "refused")
COST_GROUPS = ("tenant", "namespace")
COST_PERIODS = ("week", "day", "total")
MINUTES = (30, 60, 240)
"""Choices for how long a cluster is simulated."""
MOVES = (20, 50, 200)
"""Choices for how many next moves are computed."""


class InvalidField(HTTPException):
    """A field of a request is wrong: its name, its value, and what was expected."""

    def __init__(self, name: str, value: object, expected: str, text: str = "") -> None:
        shown = str(value)[:MAX_SHOWN_CHARACTERS]
        super().__init__(400, text or f"{name} = {shown}: expected {expected}")
        self.name, self.value, self.expected = name, shown, expected


class OneOf:
    """Takes one of some values."""

    def __init__(self, choices: Iterable[object]) -> None:
        self._choices = list(choices)

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema of the values, whatever the type of the field is."""
        return core_schema.literal_schema(self._choices)


def _parse_number(value: object) -> object:
    """Return a whole number that stands in an address. A default passes."""
    if not isinstance(value, str):
        return value
    if value.isascii() and value.isdigit() and int(value[:20]) < MAX_NUMBER:
        return int(value)
    raise PydanticCustomError("int_parsing", "a whole number")


_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?")
YEARS = (1971, 2100)
"""Times of an address are of these years."""
TIME_EXPECTED = (
    f"a time of the years {YEARS[0]} to {YEARS[1]}, such as 2026-11-28T19:30 in the zone of the "
    "console's machine, or ms since the epoch"
)


def _parse_time(value: object) -> object:
    """Return ms since the epoch of a time that stands in an address. A default passes."""
    if not isinstance(value, str):
        return value
    try:
        if value.isascii() and value.isdigit():
            at = datetime.fromtimestamp(int(value[:20]) / 1000)
        elif value.isascii() and _TIME.fullmatch(value):
            at = datetime.fromisoformat(value)
        else:
            raise ValueError
        if YEARS[0] <= at.year <= YEARS[1]:
            return int(value) if value.isdigit() else round(1000 * at.timestamp())
    except (ValueError, OverflowError, OSError):
        pass
    raise PydanticCustomError("time_parsing", TIME_EXPECTED)


IsNumber = BeforeValidator(_parse_number)
IsTime = BeforeValidator(_parse_time)
TIME_SCHEMA = {"type": "string", "maxLength": 40}
OptionalTime = Annotated[int | None, IsTime, WithJsonSchema(TIME_SCHEMA)]
Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)]
MAX_ID_CHARACTERS = 20_000
"""Length of the ids of all proposals that one address names."""
Number = Annotated[int, Field(ge=0, le=MAX_NUMBER - 1), IsNumber]
ClusterName = Annotated[Name, Field(description="the cluster")]
OptionalNumber = Annotated[Annotated[int, Field(ge=0, le=MAX_NUMBER - 1)] | None, IsNumber]
SORT = Field(description="the column to sort by")


class Query(BaseModel):
    """The parameters of an address. `repeated`: those that may come several times, as ids."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    repeated: ClassVar[tuple[str, ...]] = ()


class ListQuery(Query):
    """Which part of a list is wanted. A list's own class has `sort`, the columns to sort by."""

    text: Text = Field("", description="only names that contain it")
    page: Number = Field(1, description="the page of the list, from 1")

    @property
    def wanted(self) -> ListRequest:
        """Return the part of the list."""
        return ListRequest(self.text, getattr(self, "sort", ""), self.page or 1)


def _first(choices: Iterable[Any]) -> Any:
    return next(iter(choices))


class SpanQuery(Query):
    """The range of time of a chart: its length and its end, or its begin and its end."""

    span: Annotated[str, OneOf(SPANS)] = Field(
        _first(SPANS), description="length of time, if `from` is not given"
    )
    end: OptionalNumber = Field(
        None, description="the end, ms since the epoch; default: the last loads; see `to`"
    )
    begin: OptionalTime = Field(
        None,
        alias="from",
        description="the begin: a time in the zone of the console's machine, or ms since the epoch",
    )
    to: OptionalTime = Field(None, description="the end, as `from`; it comes before `end`")

    @model_validator(mode="after")
    def _require_order(self) -> Self:
        if self.begin is not None and self.end_ms is not None and self.end_ms <= self.begin:
            name, value = ("to", self.to) if self.to is not None else ("end", self.end)
            raise InvalidField(
                name, value, "a time after from", f"{name} is not after from: expected a later time"
            )
        return self

    @property
    def end_ms(self) -> int | None:
        """Return the end, ms since the epoch; None: that of the last loads."""
        return self.end if self.to is None else self.to

    @property
    def range(self) -> tuple[str, int | None, int | None]:
        """Return the span, the end and the begin that are asked for."""
        return self.span, self.end_ms, self.begin


class FeedQuery(Query):
    """Which decisions and commands are wanted."""

    kinds: Annotated[str, OneOf(feed.ENTRY_KINDS)] = Field(
        _first(feed.ENTRY_KINDS), description="which entries"
    )
    find: Text = Field("", description="only entries that contain it")


class ClusterQuery(Query):
    cluster: ClusterName


class BrokersQuery(ListQuery):
    cluster: ClusterName
    sort: Annotated[str, OneOf(brokers.SORTS), SORT] = _first(brokers.SORTS)


class ClusterPageQuery(ListQuery, SpanQuery, FeedQuery):
    name: ClusterName
    sort: Annotated[str, OneOf(brokers.SORTS), SORT] = _first(brokers.SORTS)


class GroupsQuery(ListQuery, SpanQuery):
    cluster: ClusterName
    by: Annotated[str, OneOf(GROUPS)] = Field(_first(GROUPS), description="what is listed")
    tenant: Text = Field("", description="only namespaces of this tenant")
    sort: Annotated[str, OneOf(load_shares.GROUP_SORTS), SORT] = _first(load_shares.GROUP_SORTS)


class BundlesQuery(ListQuery):
    cluster: ClusterName
    sort: Annotated[str, OneOf(load_shares.BUNDLE_SORTS), SORT] = _first(load_shares.BUNDLE_SORTS)


class CostQuery(ListQuery):
    cluster: ClusterName
    by: Annotated[str, OneOf(COST_GROUPS)] = Field(_first(COST_GROUPS), description="whose cost")
    each: Annotated[str, OneOf(COST_PERIODS)] = Field(
        _first(COST_PERIODS), description="each of these has a row"
    )
    sort: Annotated[str, OneOf(costs.COST_SORTS), SORT] = _first(costs.COST_SORTS)


class ChangesQuery(SpanQuery):
    cluster: ClusterName
    span: Annotated[str, OneOf(SPANS)] = Field("24h", description="length of time")


class HistoryQuery(FeedQuery):
    cluster: Text = Field("", description="the cluster; default: all")
    before: OptionalNumber = Field(None, description="only older entries, ms since the epoch")


class AuditQuery(Query):
    cluster: Text = Field("", description="the cluster; default: all")
    by: Text = Field("", description="only rows whose sender or key contains it")
    kind: Text = Field("", description="only rows whose kind of command contains it")
    what: Text = Field(
        "", description="only rows whose command names something that contains it, or has the id"
    )
    only: Annotated[str, OneOf(AUDIT_CHOICES)] = Field(
        _first(AUDIT_CHOICES), description="all rows, or only those of refused commands"
    )
    page: Number = Field(1, description="the page of the list, from 1")


class EventsQuery(Query):
    cluster: Text = Field("", description="the cluster; default: all")
    kinds: Annotated[str, OneOf(feed.ENTRY_KINDS)] = Field(
        _first(feed.ENTRY_KINDS), description="which entries"
    )
    text: Text = Field("", description="only entries that contain it")


class SearchQuery(Query):
    q: Text = Field("", description="a part of a name, or an id")


class ChartQuery(SpanQuery):
    cluster: ClusterName
    broker: Text = Field("", description="the usage of this broker")
    bundle: Text = Field("", description="the traffic of this bundle")
    by: Annotated[str, OneOf(("", *group_chart.GROUPS))] = Field(
        "", description="the traffic of the five heaviest of these, and of all others"
    )
    tenant: Text = Field("", description="with `by`: only bundles of this tenant")
    namespace: Text = Field("", description="with `by`: only bundles of this namespace")


class HeatQuery(ListQuery, SpanQuery):
    cluster: ClusterName
    sort: Annotated[str, OneOf(heat.SORTS), SORT] = _first(heat.SORTS)


class BrokerQuery(BundlesQuery, SpanQuery):
    name: Annotated[Name, Field(description="host:port, as in its reports")]


class BundleQuery(SpanQuery):
    cluster: ClusterName
    name: Annotated[Name, Field(description="<tenant>/<namespace>/0xLLLLLLLL_0xHHHHHHHH")]


class NamespaceQuery(BundlesQuery, SpanQuery):
    name: Annotated[Name, Field(description="<tenant>/<namespace>")]


class TenantQuery(ListQuery, SpanQuery):
    cluster: ClusterName
    name: Annotated[Name, Field(description="the tenant")]
    sort: Annotated[str, OneOf(load_shares.GROUP_SORTS), SORT] = _first(load_shares.GROUP_SORTS)


class DecisionQuery(Query):
    id: Annotated[Name, Field(description="<cluster>:<seq>:<ordinal>")]


class RoundQuery(Query):
    cluster: ClusterName
    seq: OptionalNumber = Field(None, description="number of the round; default: the last one")


class CommandQuery(Query):
    cluster: ClusterName
    id: Annotated[Name, Field(description="id of the command, or of commands sent together")]


class PlanQuery(Query):
    cluster: ClusterName
    strategy: Text = Field(
        DEFAULT_STRATEGY, description="a shedding strategy that names destinations"
    )
    moves: Annotated[int, OneOf(MOVES), IsNumber] = Field(
        _first(MOVES), description="the most moves"
    )


class WhatIfQuery(Query):
    cluster: ClusterName
    strategy: Text = Field("", description="a shedding strategy; default: as it is")
    changes: Text = Field("", description="a line KEY=VALUE for each changed setting")
    drain: Text = Field("", description="a broker that is drained")
    minutes: Annotated[int, OneOf(MINUTES), IsNumber] = Field(
        _first(MINUTES), description="how long the cluster is simulated"
    )


Q = TypeVar("Q", bound=Query)


def list_names(model: type[BaseModel]) -> list[str]:
    """List the parameters of a model, by the names that they have in addresses."""
    return [field.alias or name for name, field in model.model_fields.items()]


def parse_query(request: Request, model: type[Q], only_known: bool = False) -> Q:
    """Return the parameters of an address. Raises InvalidField.

    `only_known`: a parameter that the model doesn't have, is empty or comes twice is an error.
    """
    given = request.query_params
    repeated = [name for name in model.repeated if len(given.getlist(name)) > 1]
    if only_known:
        values = dict(given)
        for name in values:
            if len(given.getlist(name)) > 1 and name not in repeated:
                raise InvalidField(name, given.getlist(name), "one value")
    else:
        values = {name: given[name] for name in list_names(model) if given.get(name)}
    values |= {name: " ".join(given.getlist(name)) for name in repeated}
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise build_invalid_field(error.errors()[0], model) from None


def build_invalid_field(error: ErrorDetails, model: type[BaseModel]) -> InvalidField:
    """Return what an error of pydantic says about a field."""
    name, value = ".".join(map(str, error["loc"])), error["input"]
    if error["type"] == "missing":
        return InvalidField(name, "", "a value", f"{name} is missing: expected {name}=…")
    if error["type"] == "string_too_long":
        most, length = error["ctx"]["max_length"], len(value)
        text = f"{name}: {length} characters: expected {most} at most"
        return InvalidField(name, value, f"{most} characters at most", text)
    if error["type"] == "extra_forbidden":
        return InvalidField(name, value, f"one of {', '.join(list_names(model))}")
    expected = describe_expected_setting(error)
    if error["type"] == "literal_error":
        expected = "one of " + expected.replace("'", "").replace(" or ", ", ")
    return InvalidField(name, value, expected)
