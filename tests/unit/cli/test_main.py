"""`lbctl` as a whole: starts at once, teaches, fails in one line, writes nothing but its result on
stdout."""

import ast
import os
import shlex
import subprocess
import sys
import textwrap
import time
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from typer.main import get_command

import lb_stream
from lb_stream.cli import main
from lb_stream.io.kafka import reachable
from lb_stream.io.local.jars import JarsError
from lb_stream.io.local.java import JavaUnfit
from lb_stream.kit.demo.command import command as demo_command
from lb_stream.settings.load import load_settings
from tests.support.lbctl_commands import COMMANDS, LBCTL, options
from tests.support.lbctl_runner import lbctl
from tests.support.recorded_tables import Recorder
from tests.support.sampling import sampled
from tests.support.wordings import check_wording

NO_JSON = {("console", "user")}
"""Prints lines for a file of users."""
IN_PROCESS = [sys.executable, "-c", "from lb_stream.cli.main import main; main()"]


def test_help_imports_nothing_heavy() -> None:
    """So that it comes at once: what commands need, they import when they run."""
    packages = (
        "pyspark",
        "pyarrow",
        "numpy",
        "duckdb",
        "deltalake",
        "kafka",
        "pydantic",
        "msgspec",
    )
    # Of core, screens need the names of rules, which are light.
    rooms = ("lb_stream.core.shedding", "lb_stream.core.commands", "lb_stream.operations")
    heavy = (*packages, *rooms, "lb_stream.settings.load", "lb_stream.kit.demo.run")
    code = (
        "import sys; sys.argv = ['lbctl', '--help']\nfrom lb_stream.cli.main import main\n"
        f"try: main()\nfinally: print([name for name in {heavy!r} if name in sys.modules], "
        "file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stderr.strip() == "[]"
    assert "demo" in result.stdout


def imported(code: str, among: tuple[str, ...], cwd: Path | None = None) -> list[str]:
    """Return which of these modules are imported after a piece of Python."""
    code = "import sys\ntry:\n" + textwrap.indent(code, "    ") + "\nexcept SystemExit: pass"
    code += f"\nprint([name for name in {among!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=cwd,
    )
    found: list[str] = ast.literal_eval(done.stderr.splitlines()[-1])
    return found


def test_the_version_is_printed_without_any_import() -> None:
    code = "sys.argv = ['lbctl', '--version']\nfrom lb_stream.cli.main import main\nmain()"
    assert imported(code, ("typer", "rich", "pydantic", "pyarrow", "lb_stream.query")) == []


HEAVY = ("pandas", "pyspark", "lb_stream.kit.demo.run")
LOOK = (
    "status",
    "brokers",
    "clusters list",
    "decisions",
    "commands",
    "proposals",
    "explain last",
    "cost",
    "leader",
    "shadow",
    "lookup shop/app-01/orders",
    "monitor",
    "top brokers",
    "sql 'select 1'",
)
"""Commands that only look, each with what it needs to have something to show."""
SETTINGS = ("config show", "config show --explain", "config explain")
"""Those that show settings, and name every strategy's."""
COMPUTE = ("plan", "undo --since 9000d --preview", "report --json", "what-if --set min_brokers=2")
"""Those that ask strategies."""


def imported_by(command: str, tables: Path, among: tuple[str, ...], cwd: Path) -> list[str]:
    arguments = [*shlex.split(command), "--set", f"stream.tables={tables}"]
    code = f"sys.argv = ['lbctl', *{arguments!r}]\nfrom lb_stream.cli.main import main\nmain()"
    return imported(code, among, cwd)


@pytest.mark.parametrize("command", sampled(LOOK, 3))
def test_a_command_that_looks_imports_no_strategy_and_no_client_of_kafka(
    recorded: Recorder, tmp_path: Path, command: str
) -> None:
    """Nobody answers at Kafka's address here: only then the client isn't needed."""
    strategies = tuple(
        f"lb_stream.core.{room}" for room in ("shedding", "placement", "splitting", "least_moves")
    )
    wire = ("lb_stream.contracts.commands", "lb_stream.contracts.reports")
    found = imported_by(command, recorded.root, (*strategies, *wire, *HEAVY, "kafka"), tmp_path)
    assert found == []


@pytest.mark.parametrize("command", sampled([*SETTINGS, *COMPUTE], 2))
def test_no_command_that_reads_imports_pandas_or_pyspark(
    recorded: Recorder, tmp_path: Path, command: str
) -> None:
    assert imported_by(command, recorded.root, HEAVY, tmp_path) == []


def test_each_command_is_found_in_the_module_that_registers_it() -> None:
    named = {
        name for modules in main._PLACES.values() for names in modules.values() for name in names
    }
    assert named == set(LBCTL.commands)
    for name in sorted(named):
        assert name in get_command(main.build_app(name)).commands, name


def test_arrow_without_pandas_still_makes_data_frames() -> None:
    code = (
        "from lb_stream.io.without_pandas import keep_pandas_out\nkeep_pandas_out()\n"
        "import pyarrow.dataset as pa\nassert 'pandas' not in sys.modules\n"
        "import pyarrow\nassert pyarrow.table({'a': [1, 2]}).to_pandas()['a'].sum() == 3"
    )
    assert imported(code, ("pandas",)) == ["pandas"]


@pytest.mark.parametrize("command", sorted(COMMANDS), ids=" ".join)
def test_every_command_has_an_example_of_itself_and_json(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    help_text = " ".join(lbctl(*command, "--help", cwd=tmp_path).out.split())
    assert f"Example: lbctl {' '.join(command)}" in help_text
    assert ("--json" in help_text) is (command not in NO_JSON)


def test_no_flag_that_begins_with_no_has_a_negation_with_two_of_them() -> None:
    demo = typer.Typer()
    demo.command()(demo_command)
    every = {**COMMANDS, ("demo",): get_command(demo)}
    flags = [option for command in every.values() for option in command.params]
    negations = [name for option in flags for name in option.secondary_opts]
    assert [name for name in negations if name.startswith("--no-no-")] == []
    assert {"--no-ask", "--no-verify-hostname"} <= set(negations), "negations are looked at"


SET_IS_OF_THE_PLAY = {("scenario", "new"), ("what-if",), ("plan",)}
"""What is to be played otherwise than it is."""
NOT_ASKED_FOR = {
    ("explain",): ["last"],
    ("undo",): ["--since", "10m", "--yes"],
    ("sql",): ["select 1"],
}
"""Of several arguments or options one is needed, which the parser doesn't know."""
WITH_SETTINGS = {
    path
    for path in COMMANDS.keys() - SET_IS_OF_THE_PLAY
    if {"--config", "--set", "--json"} <= options(path)
}
A_VALUE = {
    "KEY": "k",
    "VALUE": "v",
    "BROKER": "b:1",
    "CLUSTER": "eu-1",
    "observe|approve|act": "act",
    "NAME": "eu-1",
    "FILE": __file__,
    "ID": "7",
}


def needed(command: tuple[str, ...]) -> list[str]:
    """A value for each argument, and each option, without which a command doesn't begin."""
    given = list(NOT_ASKED_FOR.get(command, []))
    for each in COMMANDS[command].params:
        if each.required:
            given += [
                *([each.opts[0]] if each.param_type_name == "option" else []),
                A_VALUE.get(each.metavar, "t/n"),
            ]
    return given


@pytest.mark.parametrize("command", sorted(WITH_SETTINGS), ids=" ".join)
def test_every_command_that_has_settings_takes_them_alike_and_a_wrong_one_is_exit_code_2(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    argument = needed(command)
    result = lbctl(*command, *argument, "--json", "--set", "dry_run=perhaps", cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    check_wording(result.err)
    missing = lbctl(*command, *argument, "--json", "--config", "missing.toml", cwd=tmp_path)
    assert (missing.code, missing.err) == (
        2,
        "lbctl: --config = 'missing.toml': expected a file that can be read (No such file or "
        "directory)\n",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("brokers", "--nonsense"),
        ("sql",),
        ("reports", "send", "f", "--pace", "0"),
        ("kafka", "start", "--port", "x"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_nothing_on_stdout(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    result = lbctl(*arguments, cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert result.err


def test_the_version_is_one_line(tmp_path: Path) -> None:
    assert lbctl("--version", cwd=tmp_path).out == f"lbctl {lb_stream.__version__}\n"


# --- config show ---


def test_config_show_is_toml_that_leads_to_the_same_settings(tmp_path: Path) -> None:
    given = (
        "--set",
        "loadBalancerSheddingIntervalMinutes=3",
        "--set",
        "cluster.eu-1.dry_run=no",
        "--set",
        "kafka.bootstrap_servers=a:1,b:2",
    )
    for more in ((), ("--explain",)):
        shown = lbctl("config", "show", *given, *more, cwd=tmp_path)
        assert shown.code == 0
        (tmp_path / "shown.toml").write_text(shown.out)
        again = lbctl("config", "show", "--json", "--config", "shown.toml", cwd=tmp_path).objects[0]
        direct = lbctl("config", "show", "--json", *given, cwd=tmp_path).objects[0]
        assert {name: keys for name, keys in again.items() if name != "origins"} == {
            name: keys for name, keys in direct.items() if name != "origins"
        }
        assert direct["balancer"]["shedding_interval_ms"] == 180_000
        assert direct["cluster"]["eu-1"]["mode"] == "act"
        assert direct["cluster"]["eu-1"]["shedding_interval_ms"] == 180_000


def test_config_show_says_who_set_what(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("loadBalancerBrokerMaxTopics=5\n")
    env = {"LB_STREAM__TABLES": "elsewhere"}
    shown = lbctl(
        "config",
        "show",
        "--broker-conf",
        "broker.conf",
        "--set",
        "min_brokers=2",
        env=env,
        cwd=tmp_path,
    )
    lines = shown.out.splitlines()
    assert "broker_max_topics = 5  # broker.conf, loadBalancerBrokerMaxTopics" in lines
    assert 'tables = "elsewhere"  # LB_STREAM__TABLES' in lines
    assert "min_brokers = 2  # --set" in lines
    assert "enabled = true" in lines
    origins = lbctl(
        "config", "show", "--json", "--set", "cluster.eu-1.min_brokers=2", env=env, cwd=tmp_path
    ).objects[0]["origins"]
    assert origins == {"stream.tables": "LB_STREAM__TABLES", "cluster.eu-1.min_brokers": "--set"}


def test_config_show_explains_every_key_with_its_unit_and_pulsars_name(tmp_path: Path) -> None:
    lines = lbctl("config", "show", "--explain", cwd=tmp_path).out.splitlines()
    at = lines.index("shedding_interval_ms = 60000")
    assert lines[at - 1].endswith("[ms] (Pulsar: loadBalancerSheddingIntervalMinutes)")
    assert [
        before
        for before, line in pairwise(lines)
        if " = " in line and line[0] != "#" and before[:2] != "# "
    ] == []


def test_config_show_hides_secrets_and_shows_the_rest_of_a_clients_options(tmp_path: Path) -> None:
    given = (
        "--set",
        "kafka.options.sasl_plain_password=hunter2",
        "--set",
        "kafka.options.security_protocol=SASL_SSL",
    )
    plain, machine = (
        lbctl("config", "show", *given, cwd=tmp_path),
        lbctl("config", "show", *given, "--json", cwd=tmp_path),
    )
    assert "hunter2" not in plain.out + machine.out
    assert tomllib.loads(plain.out)["kafka"]["options"] == {
        "sasl_plain_password": "***",
        "security_protocol": "SASL_SSL",
    }


@pytest.mark.parametrize(
    "given",
    [
        ("--set", "kafka.options.ssl_passwort=hunter2x"),
        ("--set", "kafka.ssl_password=hunter2x"),
        ("--set", "ssl_password=hunter2x"),
        ("--set", "kafak.options.sasl_plain_password=hunter2x"),
        ("--set", "kafka.options.sasl_plain_password hunter2x"),
        ("--set", "kafka.options=hunter2x"),
        (
            "--set",
            "kafka.options.sasl_plain_password=hunter2x",
            "--set",
            "kafka.options.client_id=by-hunter2x",
        ),
        ("--set", "kafka.options.sasl_plain_password=hunter2x", "--set", "min_brokers=hunter2x"),
        ("--set", "kafka.options.sasl_plain_password=hunter2x", "--config", "hunter2x.toml"),
        ("--set", "stream.tables=s3://key:hunter2x@bucket/tables"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [("config", "show"), ("config", "show", "--json"), ("config", "explain"), ("topics", "check")],
)
def test_a_secret_is_hidden_wherever_its_value_would_be_shown(
    tmp_path: Path, command: tuple[str, ...], given: tuple[str, ...]
) -> None:
    result = lbctl(*command, *given, "--set", "kafka.bootstrap_servers=127.0.0.1:1", cwd=tmp_path)
    assert "hunter2x" not in result.out + result.err
    assert result.out + result.err


def test_a_secret_of_the_environment_or_of_a_file_is_hidden_too(tmp_path: Path) -> None:
    (tmp_path / "lb.toml").write_text(
        "[kafka.options]\nsasl_plain_password = 12345678\n[balancer]\nmin_brokers = 'of 12345678'\n"
    )
    assert "'of ***'" in lbctl("config", "show", "--config", "lb.toml", cwd=tmp_path).err
    result = lbctl(
        "config", "show", cwd=tmp_path, env={"LB_KAFKA_OPTIONS": "{sasl_plain_password = hunter2y}"}
    )
    assert result.code == 2 and "hunter2y" not in result.err


@pytest.mark.parametrize("name", ["default.toml", "local.toml"])
def test_the_configurations_that_come_with_the_project_are_fit(name: str) -> None:
    settings = load_settings(Path(__file__).parents[3] / "conf" / name, environment={})
    assert settings.balancer


# --- the job ---


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """spark-submit without Spark: the command is `spark-submit` and the job's arguments."""
    environment = {"SPARK_HOME": "/a b"}
    monkeypatch.setattr(
        "lb_stream.job.submit.submit_command",
        lambda arguments, **_: (["spark-submit", *arguments], environment),
    )


@pytest.mark.usefixtures("submitted")
def test_the_job_gets_the_settings_that_lbctl_got(tmp_path: Path) -> None:
    (tmp_path / "lb.toml").write_text("[stream]\ntick_interval_ms = 5\n")
    given = ("--config", "lb.toml", "--set", "dry_run=no", "--set", "min_brokers=2", "--once")
    shown = lbctl("balance", *given, "--print", cwd=tmp_path)
    check_wording(shown.out)
    machine = lbctl("balance", *given, "--print", "--json", cwd=tmp_path).objects[0]
    assert machine == {"command": ["spark-submit", *given], "environment": {"SPARK_HOME": "/a b"}}


# --- jars ---


def test_jars_that_cannot_be_had_are_exit_code_1_and_an_unfit_java_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, code in ((JarsError("no network"), 1), (JavaUnfit("Java 8 is too old"), 2)):

        def fail(*_: object, error: Exception = error, **__: object) -> bool:
            raise error

        monkeypatch.setattr("lb_stream.kit.fetch_jars.fetch_jars", fail)
        result = lbctl("jars", "fetch", "--json", cwd=tmp_path)
        assert (result.code, result.out, result.err) == (code, "", f"lbctl: {error}\n")


# --- without a broker ---


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "create"),
        ("topics", "check"),
        ("reports", "send", "r.jsonl"),
        ("decisions", "--follow"),
    ],
    ids=" ".join,
)
def test_no_kafka_broker_says_how_to_get_one(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "r.jsonl").write_text("{}\n")
    result = lbctl(*command, "--set", "kafka.bootstrap_servers=127.0.0.1:1", cwd=tmp_path)
    assert (result.code, result.out) == (1, "")
    check_wording(result.err)
    assert "lbctl kafka start" in result.err
    assert result.err.count("\n") == 1


def test_no_embedded_broker_is_status_1_and_stopping_it_is_no_fault(tmp_path: Path) -> None:
    status = lbctl("kafka", "status", "--json", cwd=tmp_path)
    assert (status.code, status.objects) == (
        1,
        [{"bootstrap_servers": None, "pid": None, "data": ".lb/kafka"}],
    )
    stopped = lbctl("kafka", "stop", "--json", cwd=tmp_path)
    assert (stopped.code, stopped.objects) == (0, [{"stopped": False, "data": ".lb/kafka"}])


# --- pipes ---


def test_a_reader_that_has_gone_ends_it_quietly(tmp_path: Path) -> None:
    (tmp_path / "lb.toml").write_text(
        "\n".join(f"[cluster.c{number}]\nmin_brokers = 2" for number in range(3000))
    )
    arguments = ["config", "show", "--config", "lb.toml"]  # more than a pipe holds
    with subprocess.Popen(
        [*IN_PROCESS, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read().decode()
        assert process.wait(timeout=60) == 0
    assert errors == ""


# --- completion ---


@pytest.mark.parametrize(
    ("line", "completed"),
    [("lbctl un", ["undo"]), ("lbctl namespaces pi", ["pin"]), ("lbctl cost --e", ["--each"])],
)
def test_a_shell_completes_commands_and_options(
    tmp_path: Path, line: str, completed: list[str]
) -> None:
    env = {
        "_LBCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    result = lbctl(cwd=tmp_path, env=env)
    assert (result.code, result.out.split(), result.err) == (0, completed, "")


@pytest.mark.parametrize("servers", ["127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2"])
def test_balance_says_that_no_kafka_answers_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: str
) -> None:
    monkeypatch.setattr("lb_stream.cli.run.balance._run", lambda *_: pytest.fail("Spark starts"))
    result = lbctl("balance", "--set", f"kafka.bootstrap_servers={servers}", cwd=tmp_path)
    assert (result.code, result.out) == (1, "")
    for server in servers.split(","):
        assert f"{server}: Connection refused" in result.err
    assert "lbctl kafka start" in result.err and "--set kafka.bootstrap_servers" in result.err


def test_servers_that_never_answer_are_asked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachable, "ANSWER_S", 0.2)
    monkeypatch.setattr(reachable, "_describe_failure", lambda server: time.sleep(60) or "")
    begun = time.monotonic()
    found = reachable.describe_unreachable("a:1,b:1,c:1")
    check_wording(found)
    assert time.monotonic() - begun < 5
