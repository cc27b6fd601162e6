"""docs/simulation.md and docs/console.md followed from top to end, without Kafka and Spark.

README.md: test_readme_runs.py and tests/e2e/test_readme_by_hand.py; docs/commands.md:
tests/e2e/test_commands.py.
"""

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest
import typer
from jsonschema import Draft202012Validator

from tests.support.lbctl_runner import lbctl
from tests.support.pages import PROJECT, blocks, lines, words
from tests.support.recorded_tables import record

PAGE = "docs/simulation.md"
LINES = [line for block in blocks(PAGE) for line in lines(block)]
CLUSTER = "eu-1"
"""As the page names a live cluster; the recorded one is `demo`."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where somebody follows the page: with a policy of their own, and the tables of a live
    cluster."""
    folder = tmp_path_factory.mktemp("simulation")
    strategies = "shedding_strategy = 'AvgShedder'\nplacement_strategy = 'AvgShedder'\n"
    (folder / "mine.toml").write_text(f"[balancer]\n{strategies}")
    record(folder / ".lb" / "demo" / "tables")
    return folder


@pytest.mark.parametrize("line", LINES)
def test_every_command_of_the_page_runs_in_its_order(line: str, folder: Path) -> None:
    program, *arguments = words(line.replace(CLUSTER, "demo"))
    assert program == "lbctl"
    result = lbctl(*arguments, cwd=folder)
    allowed = (0, 1) if "# exit code 1: it doesn't fit" in line else (0,)
    assert result.code in allowed, result.err
    assert result.out


def test_the_page_leaves_the_files_that_it_names(folder: Path) -> None:
    assert (folder / "my-drain.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (folder / "zipf.html").read_text()[:200]
    assert (
        '"event":"header"' in (folder / "zipf.jsonl").read_text().replace(" ", "").splitlines()[0]
    )


def test_the_scenario_file_of_the_page_makes_a_folder_that_can_be_played(tmp_path: Path) -> None:
    (scenario,) = blocks(PAGE, "toml")
    (tmp_path / "evening.toml").write_text(scenario)
    assert lbctl("scenario", "new", "evening.toml", "evening", cwd=tmp_path).code == 0
    assert lbctl("scenario", "check", "evening", cwd=tmp_path).code == 0


@pytest.fixture(scope="module")
def console_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where somebody follows docs/console.md."""
    return tmp_path_factory.mktemp("console")


CONSOLE = [line for block in blocks("docs/console.md") for line in lines(block)]


@pytest.mark.parametrize("line", CONSOLE)
def test_every_command_about_the_console_runs_in_its_order(
    line: str, console_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A console listens at a free port of this machine in the place of the page's addresses."""
    match words(line):
        case ["pip", "install", package]:
            assert package == "lb_stream[console]"
            assert "\nconsole = [" in (PROJECT / "pyproject.toml").read_text()
        case ["chmod", mode, name]:
            (console_folder / name).chmod(int(mode, 8))
        case ["lbctl", "console", "user", *arguments]:
            target = arguments[arguments.index(">>") + 1]
            monkeypatch.setattr(typer, "prompt", lambda *_, **__: "a long password")
            given = arguments[: arguments.index(">>")]
            result = lbctl("console", "user", *given, cwd=console_folder)
            assert result.code == 0, result.err
            with (console_folder / target).open("a") as users:
                users.write(result.out)
        case ["curl", address, *arguments]:
            check_request(address, arguments)
        case ["lbctl", *arguments]:
            serve([*without(arguments, "--address"), "--address", "127.0.0.1:0"], console_folder)
        case _:
            pytest.fail(f"no test for {line}")


def check_request(address: str, arguments: list[str]) -> None:
    """Check that the API has this address with its parameters, and takes the body."""
    document = json.loads((PROJECT / "schemas" / "openapi.json").read_text())
    parts = urlsplit(address)
    method = document["paths"][parts.path]["post" if "--json" in arguments else "get"]
    parameters = {parameter["name"] for parameter in method.get("parameters", ())}
    assert parse_qs(parts.query).keys() <= parameters
    if "--json" in arguments:
        body = json.loads(arguments[arguments.index("--json") + 1])
        schema = method["requestBody"]["content"]["application/json"]["schema"]
        Draft202012Validator(schema | {"components": document["components"]}).validate(body)
    needs_token = {"token": []} in method.get("security", ())
    assert needs_token == ("Authorization: Bearer TOKEN" in arguments)


def without(arguments: list[str], option: str) -> list[str]:
    """The arguments without an option and its value."""
    if option not in arguments:
        return arguments
    at = arguments.index(option)
    return arguments[:at] + arguments[at + 2 :]


def serve(arguments: list[str], folder: Path) -> None:
    """Start a console, look at its first page, and end it as Ctrl-C does."""
    code = "from lb_stream.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, (shlex.join(arguments), process.stderr.read() if process.stderr else "")
        with urlopen(address, timeout=30) as page:
            assert "<html" in page.read(2_000).decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) in (0, 130)
    finally:
        process.kill()
        process.communicate()
