"""Which bundles a real cluster's leader found too large, and which the split check finds on the
same reports.

The captured cluster's limit was set to 150 msg/s. A bundle that its leader is splitting already is
not in its log again at each look.
"""

import re
from datetime import UTC, datetime

import numpy as np

from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.round.split import find_too_large
from lb_stream.settings.resolve import cluster_config
from tests import captured

SPLIT = re.compile(
    r"^\S+ (\S+)Z .*BundleSplitStrategy - The bundle (\S+) is considered to be unload\..* Message "
    r"Rate: ([\d.]+)/"
)
LOOK_LASTS_MS = 1_500

Looks = list[tuple[int, str, float]]
"""When, which bundle, its long-term message rate."""


def leaders() -> Looks:
    """What the leader's log says."""
    found = (SPLIT.match(line.decode()) for line in captured.lines(captured.LOG))
    return [
        (
            round(datetime.fromisoformat(one[1]).replace(tzinfo=UTC).timestamp() * 1000),
            one[2],
            float(one[3]),
        )
        for one in found
        if one
    ]


def ours() -> Looks:
    """What we find at each report, sampled as the reference does."""
    mode = captured.Reference()
    reports = [(report, captured.decoded(report)) for report in captured.stored_reports()]
    moments = [(report.at_ms, True) for report, _ in reports]
    moments += [
        (written.at_ms - captured.WRITES_AFTER_MS, False) for written in captured.leader_averages()
    ]
    looks: Looks = []
    for at_ms, reported in sorted(moments):
        if not reported:
            mode.resample(at_ms)
            continue
        mode.take(
            [
                report
                for report in reports
                if at_ms <= report[0].at_ms <= at_ms + captured.READ_TOGETHER_MS
            ],
            at_ms,
        )
        config = cluster_config(captured.settings_at(at_ms))
        view = view_of("captured", [mode.shard], at_ms, config.balancer.weights)
        loads, found = find_too_large(
            view, np.ones(len(view.bundles), np.bool_), (), config.splitting
        )
        looks += [
            (at_ms, view.bundles.name(row), float(loads.rate[row])) for row in found.rows.tolist()
        ]
    return looks


def test_the_same_bundles_are_too_large_at_the_same_looks() -> None:
    leader, mine = leaders(), ours()
    assert len(leader) == 21
    seen = [
        next(
            (
                rate
                for ms, name, rate in mine
                if name == bundle and 0 <= at_ms - ms <= LOOK_LASTS_MS
            ),
            None,
        )
        for at_ms, bundle, _ in leader
    ]
    assert len(seen) - seen.count(None) == 20, (
        "all but one, of which the leader had read another report by then"
    )
    assert sum(rate == theirs for rate, (_, _, theirs) in zip(seen, leader, strict=True)) >= 13, (
        "to the last digit of the log"
    )
    assert {name for _, name, _ in mine} == {bundle for _, bundle, _ in leader}
