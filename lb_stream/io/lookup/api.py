"""Describes the lookup server as OpenAPI."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lb_stream.contracts.base import CLUSTER_PATTERN
from lb_stream.contracts.commands import LONGEST_TOPIC
from lb_stream.contracts.openapi import Answer, ApiOperation, build_openapi
from lb_stream.io.lookup.client import LookupResult
from lb_stream.io.lookup.scalable import ScalableResult

DESCRIPTION = (
    "`lbctl lookup-server`: which broker serves a topic (docs/lookups.md). It answers GET alone."
)


class LookupQuery(BaseModel):
    """The parameters of a lookup."""

    model_config = ConfigDict(extra="forbid")

    topic: str = Field(max_length=LONGEST_TOPIC, description="such as persistent://shop/orders/new")
    cluster: str | None = Field(
        None,
        pattern=CLUSTER_PATTERN,
        description="the cluster; it may be missing where there is one only",
    )


class LookupProblem(BaseModel):
    """Why a lookup has no answer."""

    error: str


class LookupHealth(BaseModel):
    """How old answers are. `age_ms` null: the topic was not read yet."""

    age_ms: int | None
    max_age_ms: int
    clusters: list[str]
    bundles: int


_FOUND = LookupResult | ScalableResult
OPERATIONS = (
    ApiOperation(
        "get",
        "/lookup",
        "getLookup",
        "Say which broker serves a topic; of a scalable topic, each of its segments.",
        "lookups",
        {
            200: Answer("`broker` serves the topic, or is about to", _FOUND),
            202: Answer("no broker serves it yet: ask again in a moment", _FOUND),
            400: Answer("topic or cluster is no name, or the cluster is missing", LookupProblem),
            404: Answer("there is no such namespace or scalable topic", _FOUND | LookupProblem),
            503: Answer("the answer would be too old, or segments are unknown", LookupProblem),
        },
        query=LookupQuery,
    ),
    ApiOperation(
        "get",
        "/health",
        "getHealth",
        "Say how old answers are.",
        "health",
        {
            200: Answer("answers are fresh", LookupHealth),
            503: Answer("answers would be too old", LookupHealth),
        },
    ),
)


def build_document() -> dict[str, Any]:
    """Build the document of the lookup server."""
    return build_openapi(
        "lb_stream lookup server", DESCRIPTION, OPERATIONS, "http://127.0.0.1:8095"
    )
