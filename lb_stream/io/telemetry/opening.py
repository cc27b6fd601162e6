"""Opens the sender of traces and metrics that the settings and the environment ask for."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from lb_stream.contracts.base import COLLECTOR_PATTERN, PATTERN_DESCRIPTIONS
from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import OtelSettings
from lb_stream.io.messages.missing_packages import require_extras
from lb_stream.io.telemetry.port import NO_TELEMETRY, Telemetry

ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)
PROTOCOLS = (
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
)
PROTOCOL = "http/protobuf"
"""The only form in which traces and metrics are sent."""


def is_on(settings: OtelSettings, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether anything is sent: OTEL_SDK_DISABLED=true overrides the settings."""
    disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return settings.enabled and not disabled and (settings.traces or settings.metrics)


def require_telemetry(
    settings: OtelSettings, program: str, environment: Mapping[str, str] = os.environ
) -> None:
    """Require what sending needs, before anything is sent.

    `program`: its name for messages. Raises SettingError, MissingPackageError.
    """
    if not is_on(settings, environment):
        return
    for name in () if settings.endpoint else ENDPOINTS:
        value = environment.get(name, "")
        if not re.fullmatch(COLLECTOR_PATTERN, value):
            raise SettingError(name, value, PATTERN_DESCRIPTIONS[COLLECTOR_PATTERN], "environment")
    for name in PROTOCOLS:
        value = environment.get(name) or PROTOCOL
        if value != PROTOCOL:
            raise SettingError(name, value, PROTOCOL, "environment")
    require_extras(f"{program} with otel.enabled", "otel")


def open_telemetry(
    settings: OtelSettings, service: str, attributes: Mapping[str, str] | None = None
) -> Telemetry:
    """Open the sender; without `otel.enabled` it sends nothing, and no package is imported.

    `service`: the service's name, unless OTEL_SERVICE_NAME gives another one. `attributes`: more
    about the process. Raises as `require_telemetry` does.
    """
    if not is_on(settings):
        return NO_TELEMETRY
    require_telemetry(settings, service)
    from lb_stream.io.telemetry.otlp import OtlpTelemetry  # noqa: PLC0415

    return OtlpTelemetry(settings, service, attributes or {})
