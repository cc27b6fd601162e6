"""A spec read from a TOML file, from a family, from arguments: each lies over the one before."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lb_stream.sim.families.making import make_scenario
from lb_stream.sim.families.spec import Spec
from lb_stream.sim.scenario.errors import MISSING, ScenarioError, build_scenario_error
from lb_stream.sim.scenario.reading import read_scenario
from lb_stream.sim.scenario.scenario import Scenario

PRESETS = Path(__file__).parent / "presets"
TEMPLATE = "template"


def families() -> dict[str, str]:
    """Family → what it is about, in order of names."""
    return {
        path.stem: str(tomllib.loads(path.read_text(encoding="utf-8"))["why"])
        for path in _files()
        if path.stem != TEMPLATE
    }


def _files() -> list[Path]:
    return sorted(PRESETS.glob("*.toml"))


def preset(name: str) -> str:
    """The text of a family's file; `template`: a file with every key. Raises ScenarioError."""
    known = [path.stem for path in _files()]
    if name not in known:
        near = get_close_matches(name, known, n=3) or known
        raise ScenarioError(
            "--family", "family", name, f"one of the families; nearest: {', '.join(near)}"
        )
    return (PRESETS / f"{name}.toml").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Layer:
    origin: str
    values: Mapping[str, Any]


def make_from(file: Path | None, family: str = "", sets: Sequence[str] = ()) -> Scenario:
    """The scenario of a TOML file, of the family that it or the argument names, with `KEY=VALUE`
    arguments on top. Raises ScenarioError."""
    layers = [_file(file)] if file is not None else []
    named = family or (layers[0].values.get("family", "") if layers else "")
    if named:
        layers.insert(0, _Layer(f"family {named}", tomllib.loads(preset(_text(layers, named)))))
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _over(
            merged, {name: value for name, value in layer.values.items() if name != "family"}
        )
    for argument in sets:
        path, value = _argument(argument)
        _put(merged, path, value)
        layers.append(_Layer("--set", _nested(path, value)))
    try:
        spec = Spec.model_validate(merged)
    except ValidationError as error:
        raise _placed(build_scenario_error("", Spec, error), layers) from None
    try:
        return make_scenario(spec, "")
    except ScenarioError as error:
        raise _placed(error, layers) from None


def scenario_at(place: Path) -> Scenario:
    """Return the scenario of a folder or, if there is none, that of the family of this name.

    Raises ScenarioError.
    """
    if place.exists() or str(place) not in families():
        return read_scenario(place)
    return make_from(None, str(place))


def _text(layers: list[_Layer], name: Any) -> str:
    if not isinstance(name, str):
        raise ScenarioError(layers[0].origin, "family", name, "the name of a family")
    return name


def _file(path: Path) -> _Layer:
    try:
        return _Layer(str(path), tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ScenarioError(path, "", None, f"a file that can be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # also bytes that are no UTF-8
        raise ScenarioError(path, "", None, f"TOML in UTF-8 ({error})") from None


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged, everything else is replaced; so are lists."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = (
            _over(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
        )
    return merged


def _argument(text: str) -> tuple[list[str], Any]:
    """`cluster.brokers=24`, `shapes.0.times=5`. What is no TOML value is text."""
    name, equals, value = text.partition("=")
    path = name.strip().split(".")
    if not equals or not all(path):
        raise ScenarioError("--set", "argument", text, "KEY=VALUE, such as cluster.brokers=24")
    try:
        return path, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return path, value.strip()


def _nested(path: Sequence[str], value: Any) -> dict[str, Any]:
    for part in reversed(path):
        value = {part: value}
    return dict(value)


def _put(merged: Any, path: list[str], value: Any) -> None:
    """Set one value within tables and lists, in place."""
    for at, part in enumerate(path[:-1]):
        merged = _step(
            merged,
            path[: at + 1],
            merged.setdefault(part, {}) if isinstance(merged, dict) else None,
        )
    if isinstance(merged, list):
        _step(merged, path, None)
        merged[int(path[-1])] = value
    else:
        merged[path[-1]] = value


def _step(within: Any, path: list[str], found: Any) -> Any:
    if isinstance(within, list):
        if not path[-1].isdecimal() or int(path[-1]) >= len(within):
            raise ScenarioError(
                "--set", ".".join(path), MISSING, f"a number from 0 to {len(within) - 1}"
            )
        return within[int(path[-1])]
    if not isinstance(found, dict | list):
        raise ScenarioError("--set", ".".join(path), found, "a table with keys in it")
    return found


def _placed(error: ScenarioError, layers: Sequence[_Layer]) -> ScenarioError:
    """The same error, told of the layer that gave the value, or of the uppermost."""
    path = list(_parts(error.field))
    origin = next(
        (layer.origin for layer in reversed(layers) if _has(layer.values, path)),
        layers[-1].origin if layers else "defaults",
    )
    return ScenarioError(origin, error.field, error.value, error.expected)


def _parts(field: str) -> Iterator[str]:
    yield from field.replace("[", ".").replace("]", "").split(".")


def _has(values: Any, path: Sequence[str]) -> bool:
    for part in path:
        if isinstance(values, Mapping) and part in values:
            values = values[part]
        elif isinstance(values, list) and part.isdecimal() and int(part) < len(values):
            values = values[int(part)]
        else:
            return False
    return True
