"""How long a module and a function may be, and how many parameters a function may take."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[2]
MOST_LINES = 600
MOST_LINES_OF_A_FUNCTION = 50
MOST_PARAMETERS = 10


def too_large(project: Path) -> dict[str, int]:
    """What exceeds a limit → by what figure."""
    return {
        f"{path.relative_to(project)}: {what}": figure
        for folder in ("lb_stream", "jobs")
        for path in sorted((project / folder).rglob("*.py"))
        for what, figure in _exceeding(path.read_text(encoding="utf-8"))
    }


def _exceeding(text: str) -> Iterator[tuple[str, int]]:
    if (lines := len(text.splitlines())) > MOST_LINES:
        yield "lines", lines
    tree = ast.parse(text)
    commands = set(_registered(tree))
    for name, function in _functions(tree, ""):
        assert function.end_lineno is not None
        if (lines := function.end_lineno - function.lineno + 1) > MOST_LINES_OF_A_FUNCTION:
            yield f"lines of {name}", lines
        # The parameters of a command are the page that its --help shows: there may be many.
        command = function.name in commands or any(map(_registers, function.decorator_list))
        given = function.args
        parameters = [
            *given.posonlyargs,
            *given.args,
            *filter(None, (given.vararg, given.kwarg)),
            *given.kwonlyargs,
        ]
        if not command and len(parameters) > MOST_PARAMETERS:
            yield f"parameters of {name}", len(parameters)


def _functions(
    node: ast.AST, within: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """All functions, also those inside others, by their dotted names."""
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        name = f"{within}{child.name}" if named else within
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, child
        yield from _functions(child, f"{name}." if named else within)


def _registers(node: ast.AST) -> bool:
    """Whether this is `app.command(…)` or `app.callback(…)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("command", "callback")
    )


def _registered(tree: ast.AST) -> Iterator[str]:
    """The functions that are made commands by `app.command(…)(function)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _registers(node.func):
            yield from (argument.id for argument in node.args if isinstance(argument, ast.Name))


def test_no_module_function_or_list_of_parameters_is_too_large() -> None:
    wrong = too_large(PROJECT)
    assert not wrong, (
        f"more than {MOST_LINES} lines of a module, {MOST_LINES_OF_A_FUNCTION} of a function or {MOST_PARAMETERS} parameters: {wrong}: "
        "cut it where it has two names"
    )


# --- that these tests can fail ---


def test_what_is_too_large_is_found_and_a_command_may_have_many_parameters(tmp_path: Path) -> None:
    parameters = ", ".join(f"p{number}" for number in range(MOST_PARAMETERS))
    body = "\n".join("        p0" for _ in range(MOST_LINES_OF_A_FUNCTION))
    (tmp_path / "lb_stream").mkdir()
    (tmp_path / "jobs").mkdir()
    (tmp_path / "lb_stream" / "module.py").write_text(
        f"""
class Wide:
    def method(self, {parameters}): ...

    def long(self):
{body}

def fits({parameters}): ...

@app.command("decorated")
def decorated(one_more, {parameters}): ...

def registered(one_more, {parameters}): ...

app.command("registered", epilog="…")(registered)
"""
    )
    (tmp_path / "jobs" / "job.py").write_text("\n" * (MOST_LINES + 1))
    assert too_large(tmp_path) == {
        "lb_stream/module.py: parameters of Wide.method": MOST_PARAMETERS + 1,
        "lb_stream/module.py: lines of Wide.long": MOST_LINES_OF_A_FUNCTION + 1,
        "jobs/job.py: lines": MOST_LINES + 1,
    }
