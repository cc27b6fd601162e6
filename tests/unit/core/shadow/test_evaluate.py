"""One shadow at rounds in a row: what it proposes, in which world, and what it says would come of
that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import pytest

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.keys import SettingError
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.core.shadow.evaluate import (
    Entry,
    ShadowInput,
    ShadowMemory,
    evaluate_shadow,
    real_entry,
)
from lb_stream.settings.overrides import apply_setting_commands
from lb_stream.settings.resolve import cluster_config
from lb_stream.settings.shadows import resolve_shadow_config
from tests.support.build import Report, batch_of
from tests.support.hot_broker import BUNDLES, HOT, SETTINGS, STATS

CPU_OF_A_BUNDLE = 15.0
MINUTE_MS = 60_000
DAY_MS = 86_400_000


@dataclass
class Watched:
    """A cluster whose brokers report what they own every minute, its own policy, and one shadow."""

    own: Mapping[str, Any] = field(default_factory=lambda: {"threshold_percent": 5})
    real: Mapping[str, Any] = field(default_factory=dict)
    hold_ms: int = DAY_MS
    now_ms: int = 1_000_000
    memory: Memory = field(default_factory=lambda: Memory(epoch=1))
    shadow: ShadowMemory | None = None
    shard: Shard = field(default_factory=Shard.empty)

    def round(self, owned: Mapping[str, Sequence[str]] = HOT) -> tuple[Round, Entry]:
        """Every broker reports; then the round, and the shadow's look at it."""
        self.now_ms += MINUTE_MS
        settings = {"dry_run": True, **SETTINGS, **self.real}
        config = cluster_config(settings)
        reports = [
            Report(
                name,
                self.now_ms,
                dict.fromkeys(names, STATS),
                {"cpu": (CPU_OF_A_BUNDLE * len(names), 100.0)},
                offset=self.now_ms + place,
            )
            for place, (name, names) in enumerate(owned.items())
        ]
        self.shard, _ = fold(self.shard, batch_of(reports), self.now_ms, config.fold)
        view = view_of("c", [self.shard], self.now_ms, config.balancer.weights)
        begin = apply_setting_commands(settings, self.memory, Inbox())
        made = decide(view, begin.memory, begin.inbox, begin.config)
        overrides, profile = made.memory.operator_state.settings, begin.config.balancer.profile
        of_shadow = partial(resolve_shadow_config, settings, overrides, profile)
        shadow_input = ShadowInput(view, made, begin.config, of_shadow, True, self.hold_ms)
        before = self.shadow or ShadowMemory.begin(self.own, self.memory)
        after, entry = evaluate_shadow(shadow_input, before.without_moves_of(shadow_input))
        self.memory, self.shadow, self.shadow_input = (
            made.memory,
            msgspec.json.decode(canonical_json(after), type=ShadowMemory),
            shadow_input,
        )
        return made, entry


def moves(entry: Entry) -> list[str]:
    return [one["bundle"] for one in entry["decisions"]]


def test_a_shadow_does_not_propose_again_what_it_has_carried_out_in_its_own_world() -> None:
    watched = Watched()
    rounds = [watched.round() for _ in range(3)]
    assert [len(made.decisions) > 0 for made, _ in rounds] == [True, True, True], (
        "the dry run decides the same anew"
    )
    assert [entry["moves"] > 0 for _, entry in rounds] == [True, False, False]
    assert rounds[2][1]["elsewhere"] == rounds[0][1]["moves"]


def test_the_predicted_effect_is_what_the_moved_shares_of_usage_come_to() -> None:
    watched = Watched()
    _, entry = watched.round()
    moved = entry["moves"]
    assert entry["before_max_ratio"] == pytest.approx(6 * CPU_OF_A_BUNDLE / 100)
    assert entry["max_ratio"] == pytest.approx(
        max(6 - moved, 1 + moved - moved // 2) * CPU_OF_A_BUNDLE / 100
    )
    assert entry["mean_ratio"] == pytest.approx(8 * CPU_OF_A_BUNDLE / 300)
    assert entry["moved_bytes_per_s"] == moved * 10e6
    real = real_entry(watched.shadow_input)
    assert (real["policy"], real["max_ratio"], real["detail"]) == (
        "real",
        entry["before_max_ratio"],
        "dry run",
    )


def test_after_the_hold_a_shadow_sees_its_bundles_where_they_really_are_and_proposes_anew() -> None:
    watched = Watched(hold_ms=2 * MINUTE_MS)
    proposed = [watched.round()[1]["moves"] > 0 for _ in range(5)]
    assert proposed == [True, False, True, False, True]


def test_what_the_clusters_own_policy_moves_stays_where_it_was_in_the_shadows_world() -> None:
    watched = Watched(own={"shedding_enabled": False}, real={"dry_run": False})
    made, entry = watched.round()
    moved = {decision.bundle: decision.destination for decision in made.decisions}
    assert moved and not moves(entry)
    owned = {
        name: [
            *(name for name in names if name not in moved),
            *(one for one, to in moved.items() if to == name),
        ]
        for name, names in HOT.items()
    }
    _, entry = watched.round(owned)
    assert real_entry(watched.shadow_input)["max_ratio"] < 0.9
    assert real_entry(watched.shadow_input)["arrived"] == len(moved) == entry["elsewhere"]
    assert entry["max_ratio"] == pytest.approx(0.9), "as if the policy had done nothing"


def test_what_others_move_is_seen_as_it_happens() -> None:
    watched = Watched(own={"shedding_enabled": False})
    watched.round()
    _, entry = watched.round(
        {"a": BUNDLES[:4], "b": [*BUNDLES[4:5], *HOT["b"]], "c": [*BUNDLES[5:6], *HOT["c"]]}
    )
    assert (entry["elsewhere"], entry["max_ratio"]) == (0, pytest.approx(0.6))


def test_a_bundle_that_is_really_split_is_held_no_more() -> None:
    watched = Watched()
    (bundle, *_) = moves(watched.round()[1])
    lower = bundle.rpartition("/")[2][:10]
    middle = f"0x{lower[2]}8000000"
    children = [f"t/n/{lower}_{middle}", f"t/n/{middle}_{bundle[-10:]}"]
    watched.round(
        {
            "a": [*(one for one in HOT["a"] if one != bundle), *children],
            "b": HOT["b"],
            "c": HOT["c"],
        }
    )
    assert watched.shadow is not None and bundle not in watched.shadow.elsewhere


def test_a_broker_that_dies_loses_its_bundles_in_the_shadows_world_too() -> None:
    watched = Watched(real={"report_timeout_ms": 90_000, "mass_disappearance_wait_ms": 0})
    _, entry = watched.round()
    taken = {one["bundle"]: one["destination"] for one in entry["decisions"]}
    rest = {name: names for name, names in HOT.items() if name != "c"}
    for _ in range(3):
        _, entry = watched.round(rest)
    assert watched.shadow is not None
    assert "c" in taken.values() and "c" not in {
        broker for broker, _ in watched.shadow.elsewhere.values()
    }
    assert {one for one, to in taken.items() if to == "c"} <= watched.shadow.elsewhere.keys()


def test_drains_pauses_and_commanded_settings_count_for_shadows_unless_theirs_say_otherwise() -> (
    None
):
    paused = Watched(memory=Memory(epoch=1, operator_state=OperatorState(paused=True)))
    assert (paused.round()[1]["moves"], paused.round()[1]["refused_by"]) == (0, ["paused"])
    drained = Watched(
        own={"shedding_enabled": False},
        memory=Memory(epoch=1, operator_state=OperatorState(drained=("c",))),
    )
    assert moves(drained.round()[1]) == HOT["c"]
    off = Watched(
        memory=Memory(
            epoch=1,
            operator_state=OperatorState(
                settings={"threshold_percent": 90, "shedding_enabled": True}
            ),
        )
    )
    made, entry = off.round()
    assert not made.decisions and entry["moves"] > 0


def test_another_manager_and_a_placement_at_lookup_are_carried_out_step_by_step() -> None:
    watched = Watched(own={"load_manager": "simple"})
    entries = [watched.round()[1] for _ in range(3)]
    unloaded = moves(entries[0])
    assert entries[0]["strategies"].startswith("SimpleLoadManager + ")
    assert unloaded and {one["destination"] for one in entries[0]["decisions"]} == {None}
    assert {one["bundle"]: one["kind"] for one in entries[1]["decisions"]}.items() >= dict.fromkeys(
        unloaded, "assign"
    ).items()
    assert entries[2]["assignments"] == 0


def test_settings_that_do_not_go_together_are_the_shadows_own_trouble() -> None:
    watched = Watched(own={"placement_strategy": "AvgShedder"})
    with pytest.raises(SettingError, match="placement_strategy"):
        watched.round()


def test_a_shadow_looks_the_same_way_twice_and_remembers_no_ownership_records() -> None:
    one, other = Watched(), Watched()
    for _ in range(3):
        assert one.round()[1] == other.round()[1]
    assert one.shadow == other.shadow and one.shadow is not None
    assert (
        one.shadow.memory.versions,
        one.shadow.memory.unpublished,
        one.shadow.memory.operator_state,
    ) == (
        {},
        (),
        OperatorState(),
    )
