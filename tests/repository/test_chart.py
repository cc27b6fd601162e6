"""The Helm chart in conf/deploy/chart, as far as it can be checked without helm.

`make check-chart` has helm and real API servers.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from docs.tools.chart_page import chart_values
from tests.chart.charts import CASES, CHART, chart_sum

PROJECT = Path(__file__).parents[2]
MANIFEST = PROJECT / "conf" / "deploy" / "kubernetes.yaml"
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
TEXT = (CHART / "values.yaml").read_text()
DEFAULTS: dict[str, Any] = yaml.safe_load(TEXT)


def leaves(tree: Any, *path: str) -> list[tuple[str, ...]]:
    """Return the paths of all keys that hold no section."""
    if not isinstance(tree, dict) or not tree:
        return [path]
    return [leaf for key, value in tree.items() for leaf in leaves(value, *path, key)]


def faults(values: dict[str, Any]) -> list[str]:
    """Return where the schema refuses values, as helm names the places."""
    found = Draft7Validator(SCHEMA).iter_errors(values)
    return ["/".join(map(str, ("", *error.absolute_path))) for error in found]


def test_the_plain_manifest_is_made_of_this_chart() -> None:
    (named,) = re.findall(r"^# Chart: SHA-256 (\w+)$", MANIFEST.read_text(), re.MULTILINE)
    assert named == chart_sum(), "run `make manifest`, and look at the diff"


def test_the_schema_is_one_and_takes_the_defaults() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert faults(DEFAULTS) == []


@pytest.mark.parametrize("case", CASES)
def test_the_schema_takes_the_values_of_every_case(case: str) -> None:
    values = yaml.safe_load((PROJECT / "tests" / "data" / "chart" / f"{case}.yaml").read_text())
    assert faults(values) == []


def test_the_schema_knows_every_value_and_no_other() -> None:
    def known(schema: dict[str, Any], defaults: Any, *path: str) -> list[tuple[str, ...]]:
        if not isinstance(defaults, dict) or "properties" not in schema:
            return []
        assert schema["additionalProperties"] in (False, {"type": ["string", "number", "boolean"]})
        if schema["additionalProperties"] is False:
            assert schema["properties"].keys() - {"global"} == defaults.keys(), path
        return [path] + [
            place
            for key, value in defaults.items()
            for place in known(schema["properties"][key], value, *path, key)
        ]

    assert len(known(SCHEMA, DEFAULTS)) > 15


def test_every_value_is_described_and_there_are_few() -> None:
    values = list(chart_values(TEXT))
    described = [tuple(value.name.split(".")) for value in values]
    for leaf in leaves(DEFAULTS):
        assert any(leaf[: len(path)] == path for path in described), ".".join(leaf)
    assert len(set(described)) == len(described) <= 120
    assert len(list((CHART / "templates").rglob("*.yaml"))) <= 10


def test_every_value_is_used_by_a_template_and_every_used_one_is_there() -> None:
    text = "\n".join(
        path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file()
    )
    used = {tuple(name.split(".")) for name in re.findall(r"\.Values\.([\w.]+)", text)}
    for path in used:
        tree = DEFAULTS
        for name in path:
            assert name in tree, ".".join(path)
            tree = tree[name]
    for value in chart_values(TEXT):
        last = value.name.rpartition(".")[2]
        assert re.search(rf"\.{last}\b", text), value.name


def test_every_variable_of_the_image_is_set_by_the_chart() -> None:
    """The environment overrides lb.toml, and so would the image's own variables."""
    image = (PROJECT / "conf" / "deploy" / "Dockerfile").read_text()
    own = set(re.findall(r"\b(LB_STREAM__\w+)=", image))
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    assert len(own) == 3 and own <= set(re.findall(r"name: (LB_\w+)", helpers))


WRONG = {
    "/job": {"job": {"replica": 2}},
    "/job/replicas": {"job": {"replicas": 0}},
    "/job/driverMemory": {"job": {"driverMemory": "3Gi"}},
    "/storage/tables": {"storage": {"tables": "/srv/tables"}},
    "/storage/checkpoint": {"storage": {"checkpoint": "abfss://a@b/c"}},
    "/kafka/bootstrapServers": {"kafka": {"bootstrapServers": "kafka-1"}},
    "/kafka/options/security_protocol": {"kafka": {"options": {"security_protocol": "TLS"}}},
    "/notify/targets/chat": {"notify": {"targets": {"chat": "slack://token"}}},
    "/agents/clusters/0": {"agents": {"clusters": [{"cluster": "eu-1"}]}},
    "/upkeep/schedule": {"upkeep": {"schedule": "hourly"}},
    "/settings/mode": {"settings": {"mode": "act"}},
    "/storage/volume/accessModes/0": {"storage": {"volume": {"accessModes": ["RWX"]}}},
}
"""The place that the schema names → values that it refuses."""


@pytest.mark.parametrize("place", WRONG)
def test_the_schema_names_the_place_of_a_wrong_value(place: str) -> None:
    assert faults(WRONG[place]) == [place]
