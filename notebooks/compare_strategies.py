# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Strategies side by side
#
# Two ways to compare shedders before one is chosen, neither of which touches a cluster:
#
# - **On recorded reports.** What would each have unloaded, had it seen what a real cluster's
# brokers reported? The reports don't react, so this shows what a strategy *wants*, not what it
# would lead to. - **On a simulated cluster** that obeys. Everybody gets the same cluster and
# workload; what counts is how even it becomes, how soon, and with how many moves.

# %%
import sys
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt

ROOT = next(
    folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "pyproject.toml").exists()
)
sys.path.insert(0, str(ROOT))

from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.memory import Memory
from lb_stream.core.round.decide import Inbox, decide
from lb_stream.settings.resolve import cluster_config
from lb_stream.sim import build_cluster
from tests.captured import PerReport, clock, decoded, leader_rounds, settings_at, stored_reports
from tests.support.recorded_tables import DEMO, START_MS
from tests.support.sim_loop import ClosedLoop

SHEDDERS = {
    "ThresholdShedder": {},
    "ThresholdShedder, lower boundary": {
        "shedding_strategy": "ThresholdShedder",
        "lower_boundary": True,
    },
    "OverloadShedder": {},
    "RangeThresholdShedder": {},
    "UniformLoadShedder": {},
    "AvgShedder": {"placement_strategy": "AvgShedder"},
    "TransferShedder": {},
    "LeastMoves": {"placement_strategy": "LeastMoves"},
}


def settings(name):
    """What chooses one of them."""
    return {"shedding_strategy": name, **SHEDDERS[name]}


# %% [markdown]
# ## On recorded reports
#
# Ten minutes of a real cluster of three brokers (`tests/data/README.md`), one shedding round a
# minute at the moments at which its leader made its own. Each shedder has the cluster's settings of
# that moment, thresholds lowered to what so small a cluster carries.

# %%
SMALL = {
    "min_throughput_mb": 0.01,
    "min_unload_msgs_per_s": 10,
    "min_unload_bytes_per_s": 1_000,
    "hit_count_threshold": 1,
    "target_std": 0.1,
    "unload_delay_ms": 0,
    "hit_count_low": 2,
    "hit_count_high": 1,
    "dry_run": True,
    "assign_unowned": "on_lookup",
    "split_enabled": False,
}


def wanted(name):
    """(time, bundle, source, rule) of everything that the shedder would have unloaded."""
    found, mode, memory = [], PerReport(), Memory()
    moments = [(report.at_ms, 0, report) for report in stored_reports()] + [
        (one.at_ms, 1, one) for one in leader_rounds()
    ]
    for at_ms, kind, what in sorted(moments, key=lambda moment: moment[:2]):
        if kind == 0:
            mode.take([(what, decoded(what))], at_ms)
            continue
        config = cluster_config(settings_at(at_ms) | SMALL | settings(name))
        view = view_of("captured", [mode.shard], at_ms, config.balancer.weights)
        if not len(view.brokers):
            continue
        made = decide(view, memory, Inbox(), config)
        memory = made.memory
        found += [
            (at_ms, one.bundle, one.source, one.rule)
            for one in made.decisions
            if one.kind in ("unload", "transfer")
        ]
    return found


wishes = {name: wanted(name) for name in SHEDDERS}
leaders = [
    (one.at_ms, shed.bundle, shed.source, "leader") for one in leader_rounds() for shed in one.sheds
]
print(f"{'':34}{'unloads':>8}  {'bundles':>8}  first     the leader's own")
for name, rows in {"the leader (ThresholdShedder)": leaders, **wishes}.items():
    bundles = {bundle for _, bundle, _, _ in rows}
    shared = len(bundles & {bundle for _, bundle, _, _ in leaders})
    print(
        f"{name:34}{len(rows):8}  {len(bundles):8}  {clock(rows[0][0]) if rows else '-':8}  "
        f"{shared} of {len(leaders)}"
    )

# %%
figure, axes = plt.subplots(figsize=(9, 4), constrained_layout=True)
sources = sorted({source for rows in (leaders, *wishes.values()) for _, _, source, _ in rows})
colors = dict(zip(sources, ("tab:red", "tab:blue", "tab:green"), strict=False))
labels = {"the leader": leaders, **wishes}
for place, rows in enumerate(labels.values()):
    for (at_ms, source), count in Counter((at_ms, source) for at_ms, _, source, _ in rows).items():
        shift = 0.15 * (sources.index(source) - 1)
        axes.scatter(
            (at_ms - leaders[0][0]) / 60_000,
            place + shift,
            s=30 * count,
            color=colors[source],
            alpha=0.7,
        )
for source in sources:
    axes.scatter([], [], color=colors[source], label=source)
axes.set_yticks(range(len(labels)), list(labels))
axes.invert_yaxis()
axes.set(
    title="Who would have unloaded from whom, and when (area: bundles)",
    xlabel="minutes from the leader's first unload",
)
axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
assert {bundle for _, bundle, _, _ in wishes["ThresholdShedder"]} & {
    bundle for _, bundle, _, _ in leaders
}

# %% [markdown]
# ## On a simulated cluster
#
# Six brokers, 96 bundles; the first broker's become three times as heavy after five seconds. The
# settings are the demo's (`conf/local.toml`): everything quicker than in production.

# %%
SECONDS = 120


def closed_loop(name, workload="hot_spot", seed=1):
    """(max/mean second by second, number of unloads, bundles that moved more than once) of one
    run."""
    loop = ClosedLoop(
        build_cluster(6, 96, workload, seed, START_MS, at_s=5.0),
        {**DEMO, **settings(name)},
        START_MS,
        Memory(epoch=1),
    )
    uneven = []
    for _ in range(SECONDS):
        loop.step()
        uneven.append(loop.unevenness())
    moved = Counter(one.bundle for one in loop.decisions if one.kind in ("unload", "transfer"))
    return uneven, sum(moved.values()), sum(count > 1 for count in moved.values())


runs = {name: closed_loop(name) for name in SHEDDERS}
print(f"{'':34}{'at worst':>9}{'at the end':>12}{'even after':>12}{'moves':>7}{'moved again':>13}")
for name, (uneven, moves, again) in runs.items():
    even = next(
        (second + 1 for second in range(SECONDS) if second > 5 and max(uneven[second:]) <= 1.25),
        None,
    )
    print(
        f"{name:34}{max(uneven):9.2f}{uneven[-1]:12.2f}{f'{even} s' if even else 'never':>12}{moves:7}{again:13}"
    )

# %%
figure, axes = plt.subplots(figsize=(9, 4.5), constrained_layout=True)
for name, (uneven, _, _) in runs.items():
    axes.plot(range(1, SECONDS + 1), uneven, label=name, lw=1.5)
axes.axhline(1.25, color="0.7", lw=1, ls="--")
axes.set(title="Unevenness: busiest broker over the mean", xlabel="seconds", ylabel="max / mean")
axes.legend()
assert all(uneven[-1] < max(uneven) for uneven, _, _ in runs.values()), (
    "every one of them helps against a hot broker"
)
