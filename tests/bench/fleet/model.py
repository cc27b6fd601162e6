"""What a batch costs, as a formula fitted to measured ones, and what follows from it for fleets
that no machine here can hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Run:
    """One job: how large it was, and medians of its batches in seconds."""

    clusters: int
    bundles: int
    weight: int  # how many times the bundles of a usual fleet
    cores: int
    batch_s: float  # every broker reports
    driver_s: float  # of it: what the driver does while no task runs
    tick_s: float  # nobody says anything, a second passes
    cpu_s: float = 0.0  # CPU time of all the job's processes in a batch; 0: nobody can tell
    measured: int = 1  # how many batches the medians are of
    first_s: float = 0.0  # the very first batch, in which every cluster is new
    peak_gib: float = 0.0  # resident memory of all the job's processes; 0: nobody can tell

    @property
    def driver_share(self) -> float:
        return self.driver_s / self.batch_s


@dataclass(frozen=True)
class Model:
    """seconds = fixed + each_cluster · clusters + (each_cluster_in_tasks · clusters + each_bundle ·
    bundles) / cores."""

    fixed: float
    each_cluster: float
    each_cluster_in_tasks: float
    each_bundle: float

    def seconds(self, clusters: float, bundles: float, cores: float) -> float:
        """Of a batch in which every broker reports."""
        return (
            self.fixed
            + self.each_cluster * clusters
            + (self.each_cluster_in_tasks * clusters + self.each_bundle * bundles) / cores
        )

    def cores_needed(self, clusters: float, bundles: float, seconds: float) -> float:
        """So many cores bring a batch down to so many seconds; infinite: no number does."""
        left = seconds - self.seconds(clusters, bundles, math.inf)
        return (
            (self.each_cluster_in_tasks * clusters + self.each_bundle * bundles) / left
            if left > 0
            else math.inf
        )

    def error(self, runs: Sequence[Run]) -> float:
        """The greatest relative error at the runs."""
        return max(
            abs(self.seconds(run.clusters, run.bundles, run.cores) / run.batch_s - 1.0)
            for run in runs
        )

    def as_dict(self) -> dict[str, float]:
        return {name: float(f"{value:.4g}") for name, value in asdict(self).items()}


def fitted(runs: Sequence[Run]) -> Model:
    """The formula whose relative errors have the least sum of squares; no part of it is negative.

    A part that would be is left out, the most negative one first, and the rest fitted anew.
    """
    rows = np.array(
        [[1.0, run.clusters, run.clusters / run.cores, run.bundles / run.cores] for run in runs]
    )
    rows /= np.array([[run.batch_s] for run in runs])
    scale = rows.max(axis=0)
    kept = list(range(rows.shape[1]))
    found = np.zeros(rows.shape[1])
    while kept:
        found[:] = 0.0
        found[kept] = np.linalg.lstsq(rows[:, kept] / scale[kept], np.ones(len(runs)), rcond=None)[
            0
        ]
        if (found >= 0).all():
            break
        kept.remove(int(found.argmin()))
    return Model(*(found / scale).tolist())


def clusters_within(model: Model, bundles_each: float, cores: float, seconds: float) -> int | None:
    """How many clusters, of so many bundles in the mean, have a batch of so many seconds.

    None: it doesn't grow.
    """
    each = (
        model.each_cluster
        + (model.each_cluster_in_tasks + model.each_bundle * bundles_each) / cores
    )
    return max(0, int((seconds - model.fixed) / each)) if each > 0 else None


class Need(NamedTuple):
    """Pipelines that share the clusters, and the cores of each."""

    pipelines: int
    cores: int


MOST_PIPELINES = 1_000


def needed(
    model: Model, clusters: int, bundles: int, seconds: float, most_cores: int
) -> Need | None:
    """The fewest pipelines, none with more than so many cores, whose batches take so many seconds;
    None: there is no such number."""
    for pipelines in range(1, MOST_PIPELINES + 1):
        cores = max(1.0, model.cores_needed(clusters / pipelines, bundles / pipelines, seconds))
        if cores <= most_cores:
            return Need(pipelines, math.ceil(cores))
    return None


def tick_limit(runs: Sequence[Run], seconds: float = 1.0) -> int | None:
    """How many clusters a tick of so many seconds reaches, on the most cores: by a line through the
    runs. None: ticks don't grow."""
    most = max(run.cores for run in runs)
    ticks = [(run.clusters, run.tick_s) for run in runs if run.cores == most]
    slope, start = (
        np.polyfit([clusters for clusters, _ in ticks], [tick_s for _, tick_s in ticks], 1)
        if len(ticks) > 1
        else (0.0, 0.0)
    )
    return max(0, int((seconds - start) / slope)) if slope > 0 else None
