"""Describes what the job answers over HTTP as OpenAPI: health and metrics, of leader and standby."""

from __future__ import annotations

from typing import Any, Literal

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from lb_stream.contracts.openapi import Answer, ApiOperation, build_openapi
from lb_stream.contracts.settings import StreamSettings
from lb_stream.job.metrics.server import PATHS
from lb_stream.query.health import Verdict

DESCRIPTION = (
    "Health and metrics of the job, at `stream.metrics_address` (docs/metrics.md). It answers GET "
    "alone. A standby answers, too, without metrics of brokers."
)


class Leader(BaseModel):
    """The job that leads. `instance`: host:pid."""

    instance: str
    epoch: int


class StandbyHealth(BaseModel):
    """A job that stands by. `warm`: it could take over at once. `leader` null: not known.

    `connection_error` null: it is connected to Kafka.
    """

    role: Literal["standby"]
    instance: str
    warm: bool
    leader: Leader | None
    connection_error: str | None


def _build_health(path: str, name: str, summary: str, bad: str) -> ApiOperation:
    model = Verdict | StandbyHealth
    answers = {
        200: Answer("yes, and the verdict of `lbctl status`", model),
        503: Answer(bad, model),
    }
    return ApiOperation("get", path, name, summary, "health", answers)


def _build_metrics(path: str, name: str, summary: str) -> ApiOperation:
    answers = {200: Answer("metrics in Prometheus' text format", str, CONTENT_TYPE_LATEST)}
    return ApiOperation("get", path, name, summary, "metrics", answers)


OPERATIONS = (
    _build_health(
        "/health",
        "getHealth",
        "Say whether the job is alive.",
        "no batch has ended for `stream.batch_timeout_ms`: restart the job",
    ),
    _build_health(
        "/ready",
        "getReady",
        "Say whether the job does its work; a standby: whether it could take over.",
        "no batch has ended, none has lately, or the standby is not warm",
    ),
    _build_metrics(PATHS[0], "getMetrics", "Metrics of the stream and of clusters."),
    _build_metrics(PATHS[1], "getBrokerMetrics", "Metrics of single brokers."),
)


def build_document() -> dict[str, Any]:
    """Build the document of the job."""
    address = StreamSettings.model_fields["metrics_address"].default
    return build_openapi("lb_stream job", DESCRIPTION, OPERATIONS, f"http://{address}")
