"""Metrics and health of a standby: which job leads, and how long it has been silent."""

from __future__ import annotations

import json
import logging
import time

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.servers import MetricsSettings
from lb_stream.contracts.settings import StreamSettings
from lb_stream.io.leadership.membership import Member
from lb_stream.io.local.http_server import HttpAnswer, HttpServer
from lb_stream.job.metrics.server import PATHS, serve_metrics

logger = logging.getLogger(__name__)


def standby_metrics(member: Member) -> CollectorRegistry:
    """Return the metrics of a standby."""

    def silent_s() -> float:
        tick = member.standing.tick
        return (
            -1.0
            if tick is None or member.connection_error is not None
            else max(0.0, time.time() - tick.append_ms / 1000)
        )

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    Gauge(
        "lb_stream_leader", "1: this job leads its pipeline; 0: it stands by", registry=registry
    ).set(0)
    warm = Gauge(
        "lb_stream_standby_warm", "1: the standby could take over at once", registry=registry
    )
    warm.set_function(lambda: float(member.warm))
    silent = Gauge(
        "lb_stream_leader_silent_seconds",
        "time since the leader's last tick, as the standby received it; -1: not known",
        registry=registry,
    )
    silent.set_function(silent_s)
    return registry


class StandbyPage:
    """Serves a standby's metrics until stopped; serves nothing if the address is taken or empty."""

    def __init__(
        self, settings: StreamSettings, member: Member, server: MetricsSettings | None = None
    ) -> None:
        self._member = member
        self._server: HttpServer | None = None
        if settings.metrics_address in ("", "0"):
            return
        others = {
            "/health": lambda: self._answer(True),
            "/ready": lambda: self._answer(member.warm and member.connection_error is None),
        }
        try:
            self._server = serve_metrics(
                settings.metrics_address, {PATHS[0]: standby_metrics(member)}, others, server
            )
        except SettingError as error:
            logger.error("no metrics are served: %s", error)
        except (OSError, OverflowError) as error:
            logger.warning(
                "no metrics are served, as %s can't be had (%s)", settings.metrics_address, error
            )

    def stop(self) -> None:
        """Release the address, for the leader's metrics."""
        if self._server is not None:
            self._server.stop()

    @property
    def url(self) -> str | None:
        """The server's URL; None if nothing is served."""
        return None if self._server is None else self._server.url

    def _answer(self, is_ok: bool) -> HttpAnswer:
        tick, member = self._member.standing.tick, self._member
        leader = (
            None if tick is None else {"instance": tick.record.instance, "epoch": tick.record.epoch}
        )
        answer = {
            "role": "standby",
            "instance": member.instance,
            "warm": member.warm,
            "leader": leader,
            "connection_error": member.connection_error,
        }
        return HttpAnswer(
            200 if is_ok else 503, "application/json", json.dumps(answer).encode() + b"\n"
        )
