"""What names and numbers commands, imports, reports and settings may have."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pydantic import ValidationError

from lb_stream.contracts.base import describe_expected
from lb_stream.contracts.commands import MOST_POLICIES
from lb_stream.contracts.keys import SettingError
from lb_stream.core.commands.base import make
from lb_stream.core.model.names import BUNDLE_PATTERN, parse_bundle
from lb_stream.settings.spelling import split_namespace_key

RANGE = "0x00000000_0xffffffff"
FOLDERS = ["./n", "../n", "t/.", "t/..", "t/../n", "./..", "t/n/.."]
NAMES = ["t/n", ".t/n", "..t/n", "t/...", "t/.n", "t/n.", "t.u/n.m", "t/c/n", "t/-", "t/..n"]
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("create-namespace", {"namespace": "{}", "bundles": 4}),
    ("unload", {"namespace": "{}", "bundle": RANGE}),
    ("pin-bundles", {"bundles": [f"{{}}/{RANGE}"], "for_ms": 1}),
    ("set-policies", {"anti_affinity": {"{}": "g"}}),
    (
        "import-namespaces",
        {"content": {"namespaces": [{"name": "{}", "boundaries": [0, 0xFFFFFFFF]}]}},
    ),
]


def filled(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {filled(key, name): filled(item, name) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, name) for item in value]
    return value.replace("{}", name) if isinstance(value, str) else value


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize(("kind", "fields"), KINDS, ids=[kind for kind, _ in KINDS])
def test_a_command_names_no_folder(kind: str, fields: dict[str, Any], name: str) -> None:
    with pytest.raises(ValidationError) as wrong:
        make(kind, **filled(fields, name))
    (error,) = wrong.value.errors()
    assert error["type"] == "string_pattern_mismatch"
    assert "<tenant>/<namespace>" in describe_expected(error)


@pytest.mark.parametrize("name", NAMES)
def test_a_dot_in_a_name_is_no_folder(name: str) -> None:
    for kind, fields in KINDS:
        if kind == "import-namespaces" and name.count("/") > 1:
            continue  # of such names Pulsar has only its own
        assert make(kind, **filled(fields, name))
    assert parse_bundle(f"{name}/{RANGE}").namespace == name
    assert split_namespace_key(f"namespace.{name}.freezes", "")[0] == name


@pytest.mark.parametrize("name", FOLDERS)
def test_neither_a_report_nor_a_setting_names_a_folder(name: str) -> None:
    bundle = f"{name}/{RANGE}"
    with pytest.raises(ValueError, match=re.escape(bundle)):
        parse_bundle(bundle)
    in_report = pc.match_substring_regex(pa.array([bundle]), BUNDLE_PATTERN)
    assert in_report.to_pylist() == [False]
    with pytest.raises(SettingError):
        split_namespace_key(f"namespace.{name}.freezes", "")


@pytest.mark.parametrize("field", ["anti_affinity", "failure_domains"])
def test_one_command_sets_a_limited_number_of_policies(field: str) -> None:
    names = [f"t/n{number}" for number in range(MOST_POLICIES + 1)]
    assert make("set-policies", **{field: dict.fromkeys(names[1:], "g")})
    with pytest.raises(ValidationError) as wrong:
        make("set-policies", **{field: dict.fromkeys(names, "g")})
    (error,) = wrong.value.errors()
    assert (error["type"], error["loc"]) == ("too_long", (field,))
