"""A secret in any setting that takes one is seen nowhere: output, errors, logs, crashes, processes.

The settings are those of the models: a new secret is planted without a change here.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import Settings
from lb_stream.io.messages.logs import Lines
from lb_stream.kit.run.parts import Part
from lb_stream.settings.explain import list_job_sections
from lb_stream.settings.handing_on import VARIABLE, hide_secret_arguments
from lb_stream.settings.layers import CLIENT_OPTIONS, FREE_SECTIONS, KeyPath
from lb_stream.settings.load import load, load_settings
from lb_stream.settings.secrets import hide, is_secret
from tests.support.lbctl_runner import lbctl
from tests.support.wordings import check_wording

FREE_KEYS: Mapping[KeyPath, tuple[str, ...]] = {
    CLIENT_OPTIONS: ("sasl_plain_password", "ssl_password", "sasl_misspelt_option"),
    ("stream", "store_options"): ("aws_secret_access_key", "fs.s3a.secret.key", "unknown_option"),
    ("notify", "targets"): ("ops", "Ops"),
    ("notify", "routes"): (),
}
"""Section whose keys are not declared → keys of it that hold secrets."""
NO_SECRETS = {
    "balancer": "strategies' settings, which every reader of the tables sees",
    "cluster": "the same",
}
"""Sections that take no secret, and why."""


def list_secrets() -> Iterator[KeyPath]:
    for section, model in list_job_sections().items():
        for name in model.model_fields:
            if (section, name) in FREE_SECTIONS:
                yield from ((section, name, key) for key in FREE_KEYS[section, name])
            elif is_secret((section, name)):
                yield section, name


SECRETS = tuple(list_secrets())
PLANTED = {
    path: f"planted{number:02}x{'_'.join(path)}".replace(".", "-")
    for number, path in enumerate(SECRETS)
}
HIDDEN = re.compile(r"planted\d\dx")
ARGUMENTS = [
    part for path, value in PLANTED.items() for part in ("--set", f"{'.'.join(path)}={value}")
]


def test_the_settings_that_take_secrets_are_known_by_their_models() -> None:
    assert {path[:2] for path in SECRETS} >= {
        ("kafka", "options"),
        ("stream", "store_options"),
        ("notify", "targets"),
        ("hooks", "secret"),
        ("security", "private_key"),
        ("security", "passphrase"),
        ("console", "tls_passphrase"),
        ("lookup", "tls_passphrase"),
        ("metrics", "tls_passphrase"),
        ("oidc", "client_secret"),
    }
    assert set(Settings.model_fields) == {*list_job_sections(), *NO_SECRETS}


def test_a_setting_that_is_described_as_a_secret_is_one() -> None:
    described = re.compile(r"passphrase|password|\bsecrets?\b|private key", re.IGNORECASE)
    files = {("console", "tls_key"), ("lookup", "tls_key"), ("metrics", "tls_key")}
    shown = {
        (section, name)
        for section, model in list_job_sections().items()
        for name, field in model.model_fields.items()
        if described.search(str(field.description)) and not is_secret((section, name))
    }
    assert shown == files, "these name files; what else is shown is no secret"


# --- output ---

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("config", "show"),
    ("config", "show", "--json"),
    ("config", "show", "--explain"),
    ("config", "explain"),
    ("config", "explain", "--json"),
    *(("config", "explain", f"{section}.{name}") for section, name, *_ in SECRETS),
)


def write_toml(folder: Path) -> Path:
    """Write the planted secrets to a file of settings."""
    sections: dict[str, list[str]] = {}
    for path, value in PLANTED.items():
        lines = sections.setdefault(".".join(path[:-1]), [])
        lines.append(f'"{path[-1]}" = "{value}"')
    text = "\n".join(f"[{name}]\n" + "\n".join(lines) for name, lines in sections.items())
    file = folder / "secret.toml"
    file.write_text(text)
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("way", ["arguments", "environment", "file"])
def test_no_command_that_shows_settings_shows_a_secret(tmp_path: Path, way: str) -> None:
    given: list[str] = []
    environment: dict[str, str] = {}
    if way == "arguments":
        given = ARGUMENTS
    elif way == "environment":
        environment = {
            f"LB_{'__'.join(path).upper()}": value
            for path, value in PLANTED.items()
            if path[-1].islower() and "." not in path[-1]
        }
    else:
        given = ["--config", str(write_toml(tmp_path))]
    for command in COMMANDS:
        result = lbctl(*command, *given, cwd=tmp_path, env=environment)
        assert result.code == 0 and "***" in result.out, (command, result.err)
        assert not HIDDEN.search(result.out + result.err), command


# --- errors and logs ---


@pytest.mark.parametrize("path", SECRETS, ids=".".join)
def test_no_error_about_settings_shows_a_secret(path: KeyPath) -> None:
    name, value = ".".join(path), PLANTED[path]
    section = ".".join(path[:-1])
    wrong = (
        [f"{name}={value}", f"min_brokers={value}"],
        [f"{name}={value}", f"{section}.unknown={value}"],
        [f"{name}={value}", f"made_up.unknown={value}"],
        [f"{name}={value}", f"{name}.below={value}"],
        [f"{name} {value}"],
    )
    for arguments in wrong:
        try:
            load(arguments=arguments, environment={})
        except SettingError as error:
            assert not HIDDEN.search(hide(str(error))), arguments


def test_no_log_line_and_no_trace_shows_a_secret() -> None:
    load(arguments=ARGUMENTS[1::2], environment={})
    for value in PLANTED.values():
        try:
            raise RuntimeError(f"could not use {value!r}")
        except RuntimeError as error:
            record = logging.LogRecord(
                "x", logging.ERROR, "f", 1, "with %s", (value,), (type(error), error, None)
            )
        line = Lines("%(message)s").format(record)
        assert "***" in line and not HIDDEN.search(line)


def test_no_program_that_crashes_shows_a_secret(tmp_path: Path) -> None:
    file = write_toml(tmp_path)
    crash = (
        "import sys, threading; from pathlib import Path\n"
        "from lb_stream.settings.load import load_settings\n"
        "settings = load_settings(Path(sys.argv[1]))\n"
        "def fail(): raise RuntimeError(repr(settings))\n"
    )
    job = "from lb_stream.io.messages.logs import set_up; set_up()\n"
    thread = "thread = threading.Thread(target=fail); thread.start(); thread.join()\n"
    for begin, end in ((job, thread + "fail()"), ("import lb_stream.cli\n", "fail()")):
        done = subprocess.run(
            [sys.executable, "-c", crash + begin + end, file],
            capture_output=True,
            text=True,
            check=False,
            env={name: value for name, value in os.environ.items() if name[:3] != "LB_"},
        )
        assert done.returncode == 1 and done.stderr.count("RuntimeError: ") == end.count("fail")
        assert "***" in done.stderr and not HIDDEN.search(done.stdout + done.stderr)


# --- other programs and tables ---


def test_a_secret_among_the_arguments_is_warned_of_where_others_could_see_it() -> None:
    (warning,) = load(
        arguments=["hooks.secret=planted00x", "min_brokers=2"], environment={}
    ).warnings
    check_wording(warning)
    assert not HIDDEN.search(warning)
    handed_on = {VARIABLE: json.dumps(["hooks.secret=planted00x"])}
    assert load(environment=handed_on).warnings == ()
    assert load(arguments=["hooks.secret=", "hooks.timeout_ms=99"], environment={}).warnings == ()


def test_programs_that_are_started_get_secrets_in_the_environment() -> None:
    shown = ["--once", "--set", "min_brokers=2", "--set", "hooks.secret=file:/etc/secret"]
    arguments, environment = hide_secret_arguments([*ARGUMENTS, *shown], {"HOME": "/"})
    assert arguments == shown
    assert [*map(HIDDEN.findall, json.loads(environment[VARIABLE]))] == [
        HIDDEN.findall(value) for value in PLANTED.values()
    ]
    again = hide_secret_arguments(arguments, environment)
    assert again == (arguments, environment), "a program hands on what it was handed"
    assert load_settings(arguments=["min_brokers=2"], environment=environment) == load_settings(
        arguments=["min_brokers=2", *ARGUMENTS[1::2]], environment={}
    )


def test_a_damaged_variable_of_secrets_is_named_and_not_shown() -> None:
    with pytest.raises(SettingError, match=VARIABLE) as raised:
        load(environment={VARIABLE: "planted00x"})
    assert not HIDDEN.search(str(raised.value))


def test_no_part_of_lbctl_run_has_a_secret_in_its_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    class Process:
        pid = os.getpid()

        def __init__(self, command: list[str], **more: object) -> None:
            started.append(command)

    monkeypatch.setattr(subprocess, "Popen", Process)
    Part("job", ["balance", *ARGUMENTS], tmp_path / "job.log", {}).start()
    assert started[0][-1] == "balance" and not HIDDEN.search(" ".join(started[0]))


def test_what_rounds_log_of_the_settings_has_no_secret() -> None:
    settings = load_settings(
        arguments=[*ARGUMENTS[1::2], "cluster.eu-1.min_brokers=2"], environment={}
    )
    for cluster in ("eu-1", "us-1"):
        logged = json.dumps([settings.of_cluster(cluster), settings.shadows_of(cluster)])
        assert not HIDDEN.search(logged)
