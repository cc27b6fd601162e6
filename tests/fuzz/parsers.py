"""Which functions of lb_stream parse texts or bytes, and which of them need no fuzzing, and why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "lb_stream"

READERS = {
    "b64decode",
    "from_json",
    "from_pem",
    "fromisoformat",
    "load_pem_private_key",
    "loads",
    "model_validate_json",
    "parse_qs",
    "parse_qsl",
    "safe_load",
    "strptime",
}
"""Methods that turn a text or bytes into values, of whatever object."""

OWN_TABLES = "it reads what this project's job has written to its tables"
OWN_STATE = "it reads what this project's job has written to its checkpoint, or its own process"
OWN_FILE = "it reads a file that the same program has written"
CHECKED = "it reads the canonical JSON that the decoder made of a record which it had checked"
LOAD_FIGURES = "`loads` is a cluster's load here, and no parser"
ARGUMENT = "it parses one short argument that its user has just typed, or the log of Spark"

NOT_FUZZED = {
    "lb_stream.access.principal": "it shows a name of one's own token, and catches every error",
    "lb_stream.agent.reporter": "pulsar-load-data has the reports that it has just sent",
    "lb_stream.backtest": ARGUMENT,
    "lb_stream.assess.tables_recorder": OWN_TABLES,
    "lb_stream.cli.backtest": OWN_TABLES,
    "lb_stream.cli.inspect": OWN_TABLES,
    "lb_stream.cli.operate": ARGUMENT,
    "lb_stream.cli.shared.command_lines": ARGUMENT,
    "lb_stream.cli.shared.options": ARGUMENT,
    "lb_stream.cli.shared.spans": ARGUMENT,
    "lb_stream.console.auth.oidc": "it reads a cookie that the console has signed, and answers of "
    "the provider in its settings, which Authlib checks",
    "lb_stream.console.what_if": "console-address has its query, its texts are settings",
    "lb_stream.contracts.settings": ARGUMENT,
    "lb_stream.core.averages.together": CHECKED,
    "lb_stream.core.config.windows": "settings-toml has its texts",
    "lb_stream.core.model.memory": OWN_TABLES,
    "lb_stream.core.round.shed": LOAD_FIGURES,
    "lb_stream.core.shadow.evaluate_all": OWN_TABLES,
    "lb_stream.io.kafka.checkpoint": OWN_STATE,
    "lb_stream.io.kafka.commands": "command-result has the same model, console-form the commands",
    "lb_stream.io.kafka.poison_file": OWN_FILE,
    "lb_stream.io.kafka.poison_records": OWN_STATE,
    "lb_stream.io.leadership.take_over": OWN_TABLES,
    "lb_stream.io.local.processes": OWN_FILE,
    "lb_stream.io.local.running_kafka": OWN_FILE,
    "lb_stream.io.tables": OWN_TABLES,
    "lb_stream.job": OWN_STATE,
    "lb_stream.notify.state_file": OWN_FILE,
    "lb_stream.notify.targets": "it reads what its own process has written to it",
    "lb_stream.query.checks": OWN_TABLES,
    "lb_stream.query.cluster_state": OWN_TABLES,
    "lb_stream.query.explanations": OWN_TABLES,
    "lb_stream.query.lake": OWN_TABLES,
    "lb_stream.query.leader_comparison": OWN_TABLES,
    "lb_stream.query.leader_differences": OWN_TABLES,
    "lb_stream.query.past.tables": OWN_TABLES,
    "lb_stream.query.past.undo": OWN_TABLES,
    "lb_stream.query.present": OWN_TABLES,
    "lb_stream.query.screens": OWN_TABLES,
    "lb_stream.query.status_facts": OWN_FILE,
    "lb_stream.query.why_not": OWN_TABLES,
    "lb_stream.settings.handing_on": "it reads a variable that lbctl sets for what it starts",
    "lb_stream.settings.overrides": "it reads back JSON that it has just written itself",
    "lb_stream.settings.signing": "private-key has what it reads",
    "lb_stream.sim.cluster": LOAD_FIGURES,
    "lb_stream.sim.model": LOAD_FIGURES,
    "lb_stream.sim.scenario.from_history": OWN_TABLES,
    "lb_stream.sim.simulation": OWN_TABLES,
    "lb_stream.stream.averages": OWN_STATE,
    "lb_stream.stream.batch": OWN_STATE,
    "lb_stream.stream.decide": OWN_STATE,
    "lb_stream.stream.figures": CHECKED,
    "lb_stream.stream.ports": OWN_STATE,
    "lb_stream.stream.task": OWN_STATE,
}
"""Module or package → why no fuzz target needs it."""


def find_parsers() -> dict[str, set[str]]:
    """Return module → its functions that parse: by their name, or by what they call."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        functions = {
            function.name
            for function in _functions(ast.parse(path.read_text(encoding="utf-8")))
            if function.name.lstrip("_").startswith("parse") or _reads(function)
        }
        if functions and not module.startswith("lb_stream.conf."):
            found[module] = functions
    return found


def find_reason(module: str) -> str | None:
    """Return why a module needs no target, by itself or by its package; None: it needs one."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((NOT_FUZZED[name] for name in names if name in NOT_FUZZED), None)


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _reads(function: ast.AST) -> bool:
    """Return whether a function calls what reads a text: `json.loads`, a decoder, and the like."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        of = ast.unparse(node.func.value).lower()
        if node.func.attr in READERS:
            return True
        if node.func.attr == "decode" and of.removesuffix("()").endswith(("json", "decoder")):
            return True
    return False
