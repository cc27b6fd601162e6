"""Builds a scenario from a family, a TOML file and arguments; each overrides the one before."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError

from lb_stream.sim.families.making import build_from_spec
from lb_stream.sim.families.spec import Spec
from lb_stream.sim.scenario.errors import MISSING, ScenarioError, build_scenario_error
from lb_stream.sim.scenario.reading import read_scenario
from lb_stream.sim.scenario.scenario import Scenario

PRESETS = Path(__file__).parent / "presets"
TEMPLATE = "template"


def families() -> dict[str, str]:
    """Return family → its description, sorted by name."""
    return {
        path.stem: str(tomllib.loads(path.read_text(encoding="utf-8"))["why"])
        for path in _files()
        if path.stem != TEMPLATE
    }


def _files() -> list[Path]:
    return sorted(PRESETS.glob("*.toml"))


def preset(name: str) -> str:
    """Read a family's file; that of `template` has every key. Raises ScenarioError."""
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
    values: Mapping[str, object]


def build_from_file(file: Path | None, family: str = "", sets: Sequence[str] = ()) -> Scenario:
    """Build the scenario of a TOML file, of the family that it or the argument names, or of both.

    `sets`: `KEY=VALUE` arguments, which override both. Raises ScenarioError, which names the layer
    that gave the wrong value.
    """
    # layers, the lowest first
    layers = [_file(file)] if file is not None else []
    named = family or (layers[0].values.get("family", "") if layers else "")
    if named:
        layers.insert(0, _Layer(f"family {named}", tomllib.loads(preset(_text(layers, named)))))
    merged: dict[str, object] = {}
    for layer in layers:
        merged = _over(
            merged, {name: value for name, value in layer.values.items() if name != "family"}
        )
    for argument in sets:
        path, value = _argument(argument)
        _put(merged, path, value)
        layers.append(_Layer("--set", _nested(path, value)))
    # the spec, then the scenario
    try:
        spec = Spec.model_validate(merged)
    except ValidationError as error:
        raise _placed(build_scenario_error("", Spec, error), layers) from None
    try:
        return build_from_spec(spec, "")
    except ScenarioError as error:
        raise _placed(error, layers) from None


def load_scenario(place: Path) -> Scenario:
    """Load the scenario of a folder; without a folder, that of the family of this name.

    Raises ScenarioError.
    """
    if place.exists() or str(place) not in families():
        return read_scenario(place)
    return build_from_file(None, str(place))


def _text(layers: list[_Layer], name: object) -> str:
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


def _over(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """Merge tables. Everything else, lists too, is replaced."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = (
            _over(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
        )
    return merged


def _argument(text: str) -> tuple[list[str], object]:
    """Parse `cluster.brokers=24` or `shapes.0.times=5`. A value that is no TOML is text."""
    name, equals, value = text.partition("=")
    path = name.strip().split(".")
    if not equals or not all(path):
        raise ScenarioError("--set", "argument", text, "KEY=VALUE, such as cluster.brokers=24")
    try:
        return path, tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return path, value.strip()


def _nested(path: Sequence[str], value: object) -> dict[str, object]:
    for part in reversed(path[1:]):
        value = {part: value}
    return {path[0]: value}


def _put(merged: dict[str, object], path: list[str], value: object) -> None:
    """Set one value inside of tables and lists, in place. Raises ScenarioError."""
    place: dict[str, object] | list[object] = merged
    for at in range(1, len(path)):
        place = _enter(place, path[:at])
    if isinstance(place, list):
        place[_list_index(place, path)] = value
    else:
        place[path[-1]] = value


def _enter(
    place: dict[str, object] | list[object], path: list[str]
) -> dict[str, object] | list[object]:
    """Return the table or list at the end of a path; a missing table is created in place."""
    found = (
        place[_list_index(place, path)]
        if isinstance(place, list)
        else place.setdefault(path[-1], {})
    )
    if not isinstance(found, dict | list):
        raise ScenarioError("--set", ".".join(path), found, "a table with keys in it")
    return found


def _list_index(values: list[object], path: list[str]) -> int:
    """Return the index into a list at the end of a path. Raises ScenarioError."""
    if not path[-1].isdecimal() or int(path[-1]) >= len(values):
        expected = f"a number from 0 to {len(values) - 1}"
        raise ScenarioError("--set", ".".join(path), MISSING, expected)
    return int(path[-1])


def _placed(error: ScenarioError, layers: Sequence[_Layer]) -> ScenarioError:
    """Return the same error with the layer that gave the value, else the topmost, as its file."""
    path = list(_parts(error.field))
    origin = next(
        (layer.origin for layer in reversed(layers) if _has(layer.values, path)),
        layers[-1].origin if layers else "defaults",
    )
    return ScenarioError(origin, error.field, error.value, error.expected)


def _parts(field: str) -> Iterator[str]:
    yield from field.replace("[", ".").replace("]", "").split(".")


def _has(values: object, path: Sequence[str]) -> bool:
    for part in path:
        if isinstance(values, Mapping) and part in values:
            values = values[part]
        elif isinstance(values, list) and part.isdecimal() and int(part) < len(values):
            values = values[int(part)]
        else:
            return False
    return True
