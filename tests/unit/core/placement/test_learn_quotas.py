"""The simple manager learns what its bundles cost, round by round."""

import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.quotas import INITIAL
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Report, batch_of

X, Y = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
MINUTE_MS = 60_000


class Life:
    def __init__(self, manager: str = "simple") -> None:
        self.config = cluster_config(
            {"load_manager": manager, "dry_run": False, "shedding_enabled": False}
        )
        self.shard, self.memory, self.now_ms = Shard.empty(), Memory(), 1_000_000

    def round(self, minutes: float, **rates: float) -> Round:
        """After some minutes broker a reports these rates of X and Y; without any nobody
        reports."""
        self.now_ms += int(minutes * MINUTE_MS)
        stats = {
            {"x": X, "y": Y}[name]: BundleStats(msg_rate_in=rate) for name, rate in rates.items()
        }
        reports = [Report("a", self.now_ms, stats)] if rates else []
        self.shard, _ = fold(self.shard, batch_of(reports), self.now_ms, self.config.fold)
        view = view_of("c", [self.shard], self.now_ms, self.config.balancer.weights)
        done = decide(view, self.memory, Inbox(), self.config)
        self.memory = Memory.from_json(done.memory.to_json())
        return done


def rate_in(done: Round) -> list[float]:
    assert done.view.quotas is not None
    return [round(value, 6) for value in done.view.quotas.quotas.columns["rate_in"].tolist()]


def test_quotas_follow_what_is_reported_quickly_upwards_and_slowly_downwards() -> None:
    life = Life()
    assert rate_in(life.round(0, x=100.0)) == [100.0], "the first look counts in full"
    assert rate_in(life.round(15, x=300.0)) == [200.0], "half of thirty minutes"
    assert rate_in(life.round(144, x=100.0)) == [190.0], "a tenth of a day"
    assert rate_in(life.round(1)) == [190.0], "nobody has reported"
    assert rate_in(life.round(29, x=1_000.0)) == [1_000.0], "the time since the last report counts"


def test_a_new_bundle_begins_at_the_default_and_one_that_is_no_more_is_forgotten() -> None:
    life = Life()
    life.round(0, x=100.0)
    assert rate_in(life.round(3, x=100.0, y=140.0)) == [100.0, INITIAL["rate_in"] + 0.1 * 100.0]
    life.round(1, y=140.0)
    done = life.round(10, y=140.0)
    assert set(done.memory.quotas["bundles"]) == {Y}


@pytest.mark.parametrize("manager", ["modular", "extensible"])
def test_the_other_managers_learn_and_remember_none(manager: str) -> None:
    life = Life(manager)
    done = life.round(0, x=100.0)
    assert done.view.quotas is None and not done.memory.quotas


def test_a_cluster_that_changes_its_manager_and_comes_back_within_a_day_goes_on() -> None:
    life = Life()
    life.round(0, x=100.0)
    simple = life.config
    life.config = cluster_config(
        {"load_manager": "modular", "dry_run": False, "shedding_enabled": False}
    )
    assert life.round(5, x=500.0).view.quotas is None
    life.config = simple
    assert rate_in(life.round(10, x=300.0)) == [200.0], (
        "half of thirty minutes: what the other manager saw doesn't count"
    )


def test_after_a_day_under_another_manager_what_was_learned_counts_nothing_and_is_forgotten() -> (
    None
):
    life = Life()
    life.round(0, x=100.0)
    life.config = cluster_config(
        {"load_manager": "modular", "dry_run": False, "shedding_enabled": False}
    )
    assert life.round(1_439, x=100.0).memory.quotas
    assert not life.round(1, x=100.0).memory.quotas
