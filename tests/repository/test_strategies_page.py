"""Pages about strategies: defaults are the models', constants the code's, examples come out so."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.balancer import PROFILES, SHEDDER_PROFILES, NamespaceConfig
from lb_stream.core import filters
from lb_stream.core.averages import DEFAULT_RATES
from lb_stream.core.placement import extensible_placement, placement, simple, simple_placement
from lb_stream.core.shedding import overload, shedder, threshold, transfer_cycle
from lb_stream.core.shedding.transfer import TransferShedderConfig
from lb_stream.core.splitting import split_algorithm, trigger
from lb_stream.settings.names import list_models
from lb_stream.settings.resolve import cluster_config
from tests.support.scenario import run

PROJECT = Path(__file__).parents[2]
PAGES = {
    name: (PROJECT / "docs" / f"{name}.md").read_text()
    for name in ("strategies", "placement", "splitting", "least-moves", "disruption")
}
PAGE = "\n".join(PAGES.values())
EXAMPLES = re.findall(r"```scenario\n(.*?)```", PAGE, re.DOTALL)
PROSE = re.sub(r"(?<=`)\n(?=\S)", " ", re.sub(r"```scenario\n.*?```", "", PAGE, flags=re.DOTALL))
"""The page without its examples; a key and its default are on one line."""
SOURCE = "".join(path.read_text() for path in (PROJECT / "lb_stream" / "core").rglob("*.py"))

VALUE = r'not set|true|false|"[^"]*"|-?\d+(?: \d{3})*(?:\.\d+)?'
GIVEN = re.findall(rf"`(\w+)` ({VALUE})", PROSE)
"""Every key that is followed by its default."""


def shown(value: Any) -> str:
    """A default as the page writes it."""
    if value is None:
        return "not set"
    if isinstance(value, bool | str):
        return json.dumps(value)
    return (
        f"{value:,g}".replace(",", " ")
        if isinstance(value, float)
        else f"{value:,}".replace(",", " ")
    )


def section(heading: str) -> str:
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", PROSE, re.DOTALL | re.MULTILINE
    )
    assert found, heading
    return found[1]


def keys_of(text: str) -> list[str]:
    """The keys on the lines that begin with `Keys:`."""
    return re.findall(
        r"`(\w+)`", " ".join(re.findall(r"^Keys: (.*?)\n\n", text, re.DOTALL | re.MULTILINE))
    )


@pytest.mark.parametrize(
    ("name", "value"), GIVEN, ids=[f"{name}-{number}" for number, (name, _) in enumerate(GIVEN)]
)
def test_every_default_is_the_models(name: str, value: str) -> None:
    defaults = {
        shown(model.model_fields[name].default)
        for model in list_models()
        if name in model.model_fields
    }
    assert defaults == {value}


SHEDDERS = [
    name for name in shedder.names if shedder[name].function.__module__.startswith("lb_stream.")
]


@pytest.mark.parametrize("name", SHEDDERS)
def test_a_shedders_section_lists_all_of_its_keys_with_defaults_and_has_an_example(
    name: str,
) -> None:
    model = shedder[name].config
    assert sorted(keys_of(section(name))) == sorted(model.model_fields)
    assert {key for key, _ in re.findall(rf"`(\w+)` ({VALUE})", section(name))} >= set(
        model.model_fields
    )
    assert any(
        name in example or f"load_manager={cluster_config_word(name)}" in example
        for example in EXAMPLES
    )
    assert f"[{name}](" in PAGES["strategies"].partition("## Figures")[0]


def cluster_config_word(name: str) -> str:
    return {"SimpleLoadManager": "simple"}.get(name, "none")


@pytest.mark.parametrize("name", ["LeastLongTermMessageRate", "RoundRobinBrokerSelector"])
def test_a_placements_section_lists_all_of_its_keys(name: str) -> None:
    assert sorted(keys_of(section(name))) == sorted(placement[name].config.model_fields)


def test_the_placements_with_two_faces_list_the_keys_of_both() -> None:
    name = "LeastResourceUsageWithWeight"
    both = [*placement[name].config.model_fields, *extensible_placement[name].config.model_fields]
    assert sorted(keys_of(section(name))) == sorted(both)
    assert sorted(keys_of(section("The simple manager's three"))) == sorted(
        simple_placement["leastLoadedServer"].config.model_fields
    )


def test_no_strategy_is_missing() -> None:
    for registry in (shedder, placement, simple_placement, extensible_placement, split_algorithm):
        for name in registry.names:
            if registry[name].function.__module__.startswith("lb_stream."):
                assert re.search(rf"\b{name}\b", PROSE), name


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=[example.splitlines()[0][:60] for example in EXAMPLES]
)
def test_every_example_comes_out_as_it_says(example: str, tmp_path: Path) -> None:
    file = tmp_path / "example.txt"
    file.write_text(example)
    given, played = run(file)
    assert played == given
    assert any(word in played for word in ("unload", "transfer", "assign", "split"))


def test_constants_are_those_of_the_code() -> None:
    said = {
        "threshold + 0.05)": threshold.MARGIN == overload.MARGIN == 0.05,
        "threshold · 0.5": threshold.LOWER_BOUNDARY_FACTOR == 0.5,
        "`uniform_need_allowance` | 0 | 1 000 |": PROFILES["pulsar-4.0"]["uniform_need_allowance"]
        == 1_000,
        "below 75 %": transfer_cycle.SWAP_LEAVES == 0.75,
        "within 5 points": simple.POINTS == 5,
        "with 2 topics or more": trigger.FEWEST_TOPICS == 2,
        "50 msg/s and 50 000 bytes/s each way": DEFAULT_RATES == (50_000.0, 50_000.0, 50.0, 50.0),
        "`max_unload_ratio` of 0.5": SHEDDER_PROFILES["documented"]["AvgShedder"]
        == {"max_unload_ratio": 0.5},
    }
    words = " ".join(PROSE.split())
    assert {text: text in words and holds for text, holds in said.items()} == dict.fromkeys(
        said, True
    )


def test_what_is_said_of_the_smoothing_holds() -> None:
    history, limit = 0.9, 10
    assert (
        "jumps by 30 points, its smoothed usage rises by 3 points in the first pass and passes the "
        "threshold in the 4th"
    ) in " ".join(PROSE.split())
    seen = [30 * (1 - history**number) for number in range(1, 5)]
    assert seen[0] == pytest.approx(3) and seen[2] < limit <= seen[3]


def test_what_is_said_of_the_weights_holds() -> None:
    today, older = (
        cluster_config({}).balancer.weights,
        cluster_config({"usage_profile": "2.x"}).balancer.weights,
    )
    assert (today["direct_memory"], "memory" in today) == (0.0, False)
    assert older == dict.fromkeys(
        ("cpu", "direct_memory", "bandwidth_in", "bandwidth_out", "memory"), 1.0
    )


def test_half_of_the_target_counts_as_underloaded_up_to_a_half() -> None:
    assert "m = `target_std` ÷ 2, 0.5 at most" in " ".join(PROSE.split())
    assert "min(0.5, max(0.0, self.limits.target_std / 2.0))" in SOURCE
    assert TransferShedderConfig().limits.target_std == 0.25


def test_every_rule_and_filter_named_is_one_of_the_code() -> None:
    known = {name for model in (*list_models(), NamespaceConfig) for name in model.model_fields}
    rules = {
        word
        for word in re.findall(r"`([a-z_0-9]+)`", PROSE)
        if word not in known and not word.startswith("lb")
    }
    assert [rule for rule in sorted(rules) if f'"{rule}"' not in SOURCE] == []
    table = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+) \| [^|]* \|$",
        PAGES["placement"].partition("## Filters")[2].partition("###")[0],
        re.MULTILINE,
    )
    named = {word for row in table for word in re.findall(r"`(\w+)`", row)}
    assert named == {
        var.rule.name
        for var in vars(filters).values()
        if isinstance(var, type) and hasattr(var, "rule")
    }
