"""Where a field has a form, a user is told the form in words, never the regular expression."""

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import lb_stream.console.auth
import lb_stream.contracts
from lb_stream.console.auth.users import UsersError, user_lines
from lb_stream.contracts.base import PATTERN_DESCRIPTIONS
from lb_stream.contracts.keys import KeyModel, SettingError, describe_expected_setting, key
from lb_stream.io.kafka.commands import InvalidCommand, build_command
from lb_stream.settings.load import load
from lb_stream.stream.records import RecordRejected, parse_command
from tests.support.lbctl_runner import lbctl
from tests.support.wordings import check_wording

EXPRESSION = re.compile(r"\[\^|\\S|\{\d,|\(\?|pattern")


def every_model(kind: type[BaseModel] = BaseModel) -> Iterator[type[BaseModel]]:
    for model in kind.__subclasses__():
        if model.__module__.startswith("lb_stream."):
            yield model
        yield from every_model(model)


def patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for part in schema.values():
            yield from patterns(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from patterns(part)


def test_every_pattern_of_a_model_has_its_words() -> None:
    for package in (lb_stream.contracts, lb_stream.console.auth):
        for module in walk_packages(package.__path__, package.__name__ + "."):
            import_module(module.name)
    used = {pattern for model in every_model() for pattern in patterns(model.model_json_schema())}
    assert len(used) > 4
    assert used <= set(PATTERN_DESCRIPTIONS)
    assert not any(map(EXPRESSION.search, PATTERN_DESCRIPTIONS.values()))


def test_a_plug_ins_pattern_that_has_no_words_is_shown_as_it_is() -> None:
    class PluginConfig(KeyModel):
        zone: str = key("eu-1", "where", pattern=r"^[a-z]+-\d$")

    with pytest.raises(ValidationError) as error:
        PluginConfig(zone="nowhere")
    check_wording(describe_expected_setting(error.value.errors()[0]))


@pytest.mark.parametrize(
    "arguments",
    [
        ("unload", "shop"),
        ("split", "shop", "-b", "HOT"),
        ("merge", "shop", "--advised", "1"),
        ("create", "shop"),
        ("delete", "shop orders"),
        ("set-policies", "shop", "-g", "payment"),
        ("pin", "shop", "-b", "0x00000000_0x80000000"),
    ],
)
def test_lbctl_names_the_form_of_a_namespace(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = lbctl("namespaces", *arguments, "--cluster", "eu", cwd=tmp_path)
    assert result.code == 2
    assert "expected <tenant>/<namespace>" in result.err
    assert "shop" in result.err
    assert not EXPRESSION.search(result.err), result.err


@pytest.mark.parametrize(
    "setting",
    [
        "stream.metrics_address=localhost",
        "kafka.bootstrap_servers=localhost",
        "stream.pipeline_id=a b",
        "notify.targets.a b=json://x",
    ],
)
def test_a_setting_of_another_form_is_refused_in_words(setting: str) -> None:
    with pytest.raises(SettingError) as error:
        load(arguments=[setting], environment={})
    assert not EXPRESSION.search(str(error.value))
    check_wording(str(error.value))


def test_orders_records_and_users_of_another_form_are_refused_in_words() -> None:
    with pytest.raises(
        InvalidCommand, match=r"namespace = 'shop': expected <tenant>/<namespace>, such as"
    ):
        build_command("unload", {"namespace": "shop"}, "somebody")
    record = {"id": "c", "kind": "unload", "namespace": "shop"}
    with pytest.raises(
        RecordRejected, match=r"namespace = 'shop': expected <tenant>/<namespace>, such as"
    ):
        parse_command(json.dumps(record).encode())
    with pytest.raises(UsersError) as error:
        user_lines("a b", None, "viewer", {})
    check_wording(error.value)
