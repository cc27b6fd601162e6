# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Short and long averages, on real data
#
# Shedding picks bundles by their short-term throughput, placement ranks brokers by their long-term
# rate. How far apart are the two, and how far is either from what a bundle carries at the moment?
# The load reports of a real cluster (three Apache Pulsar brokers, ten minutes, four phases of
# traffic; see `tests/data/README.md`) go through the stream's own decoder and fold.
#
# The formula: n = min(n + 1, samples), average = ((n - 1) · average + sample) / n. Until n reaches
# `samples` it is the plain mean of all samples so far; from then on a new sample counts 1 / samples
# and the past fades.

# %%
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

ROOT = next(
    folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "pyproject.toml").exists()
)
sys.path.insert(0, str(ROOT))

from tests.captured import PerReport, clock, decoded, polled_reports

# %% [markdown]
# Every poll of a broker is a sample of its bundles: one in five seconds. `PerReport` is the default
# way of sampling.

# %%
reports = polled_reports()
mode = PerReport()
history = defaultdict(list)  # bundle → [time, latest, short, long, samples], bytes/s
for report in reports:
    mode.take([(report, decoded(report))], report.at_ms)
    for row in mode.shard.bundles.to_pylist():
        if row["reported_ms"] == report.at_ms:
            both = [
                [row[f"{span}_throughput_{way}_bytes_per_s"] for way in ("in", "out")]
                for span in ("latest", "short", "long")
            ]
            history[row["name"]].append([report.at_ms, *map(sum, both), row["long_samples"]])
bundles = {name: np.array(rows, float) for name, rows in history.items()}
print(
    f"{len(reports)} reports of {len({report.broker for report in reports})} brokers, "
    f"{len(bundles)} bundles"
)
print("from", clock(reports[0].at_ms), "to", clock(reports[-1].at_ms), "UTC")

# %% [markdown]
# ## One bundle
#
# The bundle whose load changed most. The short average of ten samples follows within a minute; the
# long one, whose thousand samples would be more than an hour, is still the plain mean of everything
# since the start.

# %%
long_enough = {name: rows for name, rows in bundles.items() if len(rows) > 60}
name = max(long_enough, key=lambda one: long_enough[one][:, 1].std())
rows = long_enough[name]
minutes = (rows[:, 0] - reports[0].at_ms) / 60_000
figure, axes = plt.subplots(figsize=(9, 4), constrained_layout=True)
axes.plot(minutes, rows[:, 1] / 1e3, color="0.75", lw=1, label="latest")
axes.plot(minutes, rows[:, 2] / 1e3, color="tab:red", label="short, 10 samples")
axes.plot(minutes, rows[:, 3] / 1e3, color="tab:blue", label="long, 1 000 samples")
axes.set(title=f"Throughput of {name}", xlabel="minutes", ylabel="kB/s")
axes.legend()
samples = rows[:, 1]
assert np.isclose(rows[9, 2], samples[:10].mean()), (
    "until the tenth sample the short average is the mean"
)
assert np.isclose(rows[-1, 3], samples.mean()), "the long average is still the mean of all samples"

# %% [markdown]
# ## How long until a change shows?
#
# After a jump the short average has taken in 1 - 0.9^k of it after k samples (once it is full), the
# long one 1 - 0.999^k. In minutes that depends on how often brokers report: every five seconds
# here, at least every quarter of an hour and on each change of 10 % in a quiet Pulsar.

# %%
steps = np.arange(0, 200)
figure, axes = plt.subplots(figsize=(9, 3.5), constrained_layout=True)
for kept, label, color in (
    (10, "short, 10 samples", "tab:red"),
    (1000, "long, 1 000 samples", "tab:blue"),
):
    axes.plot(steps, 1 - (1 - 1 / kept) ** steps, label=label, color=color)
axes.axhline(0.9, color="0.7", lw=1)
axes.set(
    title="Part of a jump that the average shows", xlabel="samples after the jump", ylabel="part"
)
axes.legend()
until_90 = {kept: int(np.ceil(np.log(0.1) / np.log(1 - 1 / kept))) for kept in (10, 1000)}
print(f"nine tenths after {until_90[10]} samples (short) and {until_90[1000]} (long)")

# %% [markdown]
# ## How wrong is each, as a guess at the next sample?
#
# For each bundle and sample: the difference between the figure and what the bundle carries next,
# relative to its mean; and how much the figure itself moves from one sample to the next.
#
# On this traffic, which changes its shape every two minutes, the latest figure is the best guess by
# far, also of the next minute. Averages buy steadiness with lag: a shedder that goes by them
# doesn't move a bundle for one loud sample, and moves too much or the wrong one for a while after a
# real change. Where load changes slowly compared with ten reports the short average costs nothing;
# where it doesn't, report more often.

# %%
AHEAD = 12  # samples: one minute
errors = {"latest": ([], []), "short": ([], []), "long": ([], [])}
steadiness = {name: [] for name in errors}
for rows in long_enough.values():
    mean = rows[:, 1].mean()
    if mean < 1_000:
        continue
    coming = np.array(
        [rows[at + 1 : at + 1 + AHEAD, 1].mean() for at in range(10, len(rows) - AHEAD)]
    )
    for column, figure_name in ((1, "latest"), (2, "short"), (3, "long")):
        seen = rows[10 : len(rows) - AHEAD, column]
        errors[figure_name][0].append(
            np.abs(seen - rows[11 : len(rows) - AHEAD + 1, 1]).mean() / mean
        )
        errors[figure_name][1].append(np.abs(seen - coming).mean() / mean)
        steadiness[figure_name].append(np.abs(np.diff(seen)).mean() / mean)
print(f"{'':8}{'next sample':>14}{'next minute':>14}{'moves per sample':>20}")
for figure_name, (near, far) in errors.items():
    print(
        f"{figure_name:8}{np.median(near):14.1%}{np.median(far):14.1%}{np.median(steadiness[figure_name]):20.1%}"
    )
figure, axes = plt.subplots(figsize=(9, 3.5), constrained_layout=True)
axes.boxplot(
    [errors[one][1] for one in errors],
    tick_labels=list(errors),
    showfliers=False,
    orientation="horizontal",
)
axes.set(
    title=f"Mean error as a guess at the next minute, {len(errors['short'][1])} bundles",
    xlabel="relative to the bundle's mean",
)
assert np.median(errors["latest"][1]) < np.median(errors["short"][1]) < np.median(errors["long"][1])
assert (
    np.median(steadiness["long"]) < np.median(steadiness["short"]) < np.median(steadiness["latest"])
)
