"""Each command is in one file, and everything that follows from it is there."""

from pathlib import Path
from string import Formatter

import pytest
from typer.main import get_command

from docs.tools.commands_tables import commands_table
from lb_stream.cli import main
from lb_stream.console.command_forms import COMMAND_FORMS
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.schemas import FOLDER
from lb_stream.core.commands.base import (
    MoveCommand,
    Operation,
    SettingsCommand,
    StateCommand,
    operations,
)

PROJECT = Path(__file__).parents[3]
NO_COMMAND_LINE = {"assign"}  # lookup servers send it
NO_BUTTON = {
    "assign",  # lookup servers send it
    "dry-run",  # the buttons of a mode send set-config
    "import-namespaces",  # it takes a file
    "merge",  # it takes two bundles
    "set-capacity",  # it takes several values
    "set-policies",  # it takes lists of expressions
}
NO_REFUSAL = {"pause-cluster", "resume-cluster"}  # done whatever there is


def kinds(model: type[Operation]) -> str:
    return model.spec.kind


def lines() -> list[str]:
    return [line.name for model in operations() for line in model.spec.lines]


def test_a_file_is_named_after_its_kind_and_holds_one_command() -> None:
    files = {file.stem for file in (PROJECT / "lb_stream/operations").glob("*.py")} - {"__init__"}
    assert {kind.replace("-", "_") for kind in COMMANDS} == files
    for model in operations():
        assert model.__module__.rpartition(".")[2].replace("_", "-") == model.spec.kind


@pytest.mark.parametrize("model", operations(), ids=kinds)
def test_a_command_does_one_of_three_things(model: type[Operation]) -> None:
    stages = (SettingsCommand, StateCommand, MoveCommand)
    assert sum(issubclass(model, stage) for stage in stages) == 1


@pytest.mark.parametrize("model", operations(), ids=kinds)
def test_a_command_has_a_schema(model: type[Operation]) -> None:
    schema = (FOLDER / "command.schema.json").read_text()
    assert f'"const": "{model.spec.kind}"' in schema


@pytest.mark.parametrize("model", operations(), ids=kinds)
def test_a_command_has_its_line_of_lbctl(model: type[Operation]) -> None:
    assert bool(model.spec.lines) is (model.spec.kind not in NO_COMMAND_LINE)
    lbctl = get_command(main.app)
    context = lbctl.make_context("lbctl", [], resilient_parsing=True)
    for line in model.spec.lines:
        found = lbctl
        for word in line.name.split():
            found = found.get_command(context, word)
            assert found is not None, line.name


def test_no_two_commands_have_one_line() -> None:
    assert len(set(lines())) == len(lines())


@pytest.mark.parametrize("model", operations(), ids=kinds)
def test_a_command_has_a_form_on_the_consoles_pages(model: type[Operation]) -> None:
    forms = [name for name, act in COMMAND_FORMS.items() if act.model is model]
    assert forms == [button.name for button in model.spec.buttons]
    assert bool(forms) is (model.spec.kind not in NO_BUTTON)


@pytest.mark.parametrize("model", operations(), ids=kinds)
def test_a_command_has_its_row_on_the_page_of_commands(model: type[Operation]) -> None:
    page = (PROJECT / "docs/commands.md").read_text()
    group = model.spec.lines[0].name.split()[0] if model.spec.lines else ""
    (row,) = [row for row in commands_table(group).split("\n") if f"`{model.spec.kind}`" in row]
    assert row in page


@pytest.mark.parametrize("model", operations(), ids=kinds)
def test_a_refusal_of_the_command_is_tested(model: type[Operation]) -> None:
    folders = (
        PROJECT / "tests/unit/core",
        PROJECT / "tests/properties",
        PROJECT / "tests/unit/stream",
    )
    tests = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    texts = [file.read_text() for file in tests if file.suffix in (".py", ".txt")]
    names = (model.spec.kind, model.__name__)
    found = any(name in text and "refused" in text for text in texts for name in names)
    assert found or model.spec.kind in NO_REFUSAL


@pytest.mark.parametrize("kind", ["no-such-kind", "../base", "__init__", ""])
def test_a_kind_that_is_none_imports_nothing(kind: str) -> None:
    assert kind not in COMMANDS
    with pytest.raises(KeyError):
        COMMANDS[kind]


def test_a_command_is_canonical_json() -> None:
    drain = COMMANDS["drain-broker"](id="c1", broker="b:1")
    assert drain.to_json() == canonical_json(drain.model_dump(mode="json"))


@pytest.mark.parametrize("model", operations(), ids=kinds)
def test_a_command_is_described_as_what_its_sender_does(model: type[Operation]) -> None:
    assert model.phrase or model.describe is not Operation.describe
    fields = set(model.model_fields)
    assert {name for _, name, _, _ in Formatter().parse(model.phrase) if name} <= fields
