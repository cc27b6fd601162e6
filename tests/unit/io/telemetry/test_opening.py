"""Whether anything is sent, and what must be right before that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import OtelSettings
from lb_stream.io.messages import missing_packages
from lb_stream.io.messages.missing_packages import MissingPackageError
from lb_stream.io.telemetry.opening import is_on, open_telemetry, require_telemetry
from lb_stream.io.telemetry.port import NO_TELEMETRY
from lb_stream.settings.load import load
from tests.support.wordings import check_wording

ON = OtelSettings(enabled=True)


@pytest.mark.parametrize(
    "endpoint",
    [
        "collector:4318",
        "ftp://collector:4318",
        "http://",
        "http://user:password@collector",
        "http://collector:99999999",
        "http://collector/x?key=1",
        "http://coll ector",
        "grpc://collector:4317",
    ],
)
def test_a_wrong_endpoint_is_an_error_that_names_key_value_and_what_is_expected(
    endpoint: str,
) -> None:
    with pytest.raises(SettingError) as error:
        load(None, None, [f"otel.endpoint={endpoint}"])
    assert (error.value.key, error.value.value) == ("otel.endpoint", endpoint)
    assert "http(s)://HOST[:PORT][/PATH]" in error.value.expected


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "http://localhost:4318",
        "https://otel.example/tenant/7",
        "http://[::1]:4318",
        "http://a/",
    ],
)
def test_addresses_of_collectors_are_taken(endpoint: str) -> None:
    loaded = load(None, None, [f"otel.endpoint={endpoint}", "otel.enabled=true"])
    assert loaded.settings.otel.endpoint == endpoint


def test_nothing_is_sent_unless_it_is_asked_for() -> None:
    assert not is_on(OtelSettings(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"})
    assert is_on(ON, {})
    assert not is_on(ON, {"OTEL_SDK_DISABLED": "True"})
    assert not is_on(OtelSettings(enabled=True, traces=False, metrics=False), {})
    assert open_telemetry(OtelSettings(), "test") is NO_TELEMETRY


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "nonsense"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    ],
)
def test_a_wrong_variable_is_an_error_of_settings(name: str, value: str) -> None:
    require_telemetry(OtelSettings(), "the job", {name: value})
    with pytest.raises(SettingError) as error:
        require_telemetry(ON, "the job", {name: value})
    assert (error.value.key, error.value.value) == (name, value)
    check_wording(error.value)


def test_the_settings_endpoint_counts_before_the_environments() -> None:
    settings = OtelSettings(enabled=True, endpoint="http://collector:4318")
    require_telemetry(settings, "the job", {"OTEL_EXPORTER_OTLP_ENDPOINT": "nonsense"})


def test_without_the_packages_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(missing_packages.MODULES, "otel", ("no_such_package",))
    with pytest.raises(MissingPackageError) as error:
        require_telemetry(ON, "the job", {})
    assert "pip install 'lb_stream[otel]'" in str(error.value)


OFF = """
import sys
import lb_stream.agent.agent, lb_stream.io.kafka.outbox, lb_stream.job.metrics.monitor
from lb_stream.contracts.settings import OtelSettings
from lb_stream.io.telemetry.opening import open_telemetry
telemetry = open_telemetry(OtelSettings(), "job")
telemetry.send([]); telemetry.send_metrics([]); telemetry.close()
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def test_while_it_is_off_no_package_of_opentelemetry_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFF],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[4],
    )
    assert done.stdout == "[]\n"
