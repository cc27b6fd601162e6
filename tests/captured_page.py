"""The tables of docs/real-clusters.md, from the captured run.

.venv/bin/python -m tests.captured_page      # prints them REWRITE=1 .venv/bin/python -m pytest
tests/repository/test_real_clusters.py   # puts them into the page
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from textwrap import fill

import numpy as np

from lb_stream.contracts.decisions import Decision
from lb_stream.settings.names import list_models
from tests.captured import (
    READ_TOGETHER_MS,
    BundleBeside,
    LeaderShed,
    Replay,
    RoundBeside,
    clock,
    leader_rounds,
    replay,
    settings_at,
    stored_reports,
)

EXAMPLES = 4
"""Most loaded bundles shown beside those that were moved."""
WIDEST = 100
"""Columns of a line of Markdown."""


def rows(head: Sequence[str], body: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def throughput(average: tuple[int, tuple[float, ...]]) -> float:
    """Bytes/s in and out."""
    return average[1][0] + average[1][1]


def ratios(bundles: Iterable[BundleBeside], mode: str, term: int) -> list[float]:
    """Ours ÷ the leader's throughput (term 0: short, 1: long) of bundles that carry any."""
    return [
        throughput(bundle.ours[mode][term]) / throughput(bundle.leader[term])
        for bundle in bundles
        if throughput(bundle.leader[term])
    ]


def quantiles(values: list[float], at: Sequence[float] = (0.05, 0.5, 0.95)) -> str:
    """5 %, median, 95 %."""
    return " … ".join(f"{value:.2f}" for value in np.quantile(values, at))


def minutes(run: Replay) -> str:
    """The averages each time that the leader wrote its own."""
    body = []
    for at_ms, found in groupby(run.bundles, key=lambda bundle: bundle.at_ms):
        group = list(found)
        equal = sum(one.ours["reference"] == one.leader for one in group)
        samples = [one.ours["per_report"][1][0] / one.leader[1][0] for one in group]
        figures = [quantiles(ratios(group, "per_report", term)) for term in (0, 1)]
        body.append([clock(at_ms), len(group), equal, f"{np.median(samples):.2f}", *figures])
    head = (
        "UTC",
        "bundles",
        "`reference`: equal",
        "`per_report`: samples ÷ leader's",
        "short-term ÷ leader's",
        "long-term ÷ leader's",
    )
    return rows(head, body)


def examples(run: Replay) -> str:
    """Some bundles at the last of these times: those that the leader had moved, and the most
    loaded."""
    last = [bundle for bundle in run.bundles if bundle.at_ms == run.bundles[-1].at_ms]
    moved = {shed.bundle for one in run.rounds for shed in one.leader.sheds}
    heaviest = sorted(
        (one for one in last if one.bundle not in moved), key=lambda one: -throughput(one.leader[1])
    )[:EXAMPLES]
    body = []
    for one in [one for one in last if one.bundle in moved] + heaviest:
        three = (one.leader, one.ours["reference"], one.ours["per_report"])
        samples = " / ".join(str(both[1][0]) for both in three)
        figures = [
            " / ".join(f"{throughput(both[term]) / 1e3:.2f}" for both in three) for term in (0, 1)
        ]
        body.append(
            [f"`{one.bundle}`{' (moved)' if one.bundle in moved else ''}", samples, *figures]
        )
    return rows(("bundle", "long-term samples", "short-term kB/s", "long-term kB/s"), body)


def short_name(broker: str) -> str:
    """A broker by its port: they are all on one host."""
    return broker.rpartition(":")[2]


def decisions(run: Replay) -> str:
    """Each bundle that the leader unloaded, and ours from the same broker at that moment."""
    body = []
    for beside in run.rounds:
        for shed in beside.leader.sheds:
            usage, average = beside.leader.hot[shed.source]
            figures = (
                f"{usage:.2%} > {average:.2%} + "
                f"{settings_at(beside.leader.at_ms)['threshold_percent']:g} %"
            )
            leader = f"`{shed.bundle}` {short_name(shed.source)} → {short_name(shed.destination)}"
            body.append(
                [
                    clock(beside.leader.at_ms),
                    leader,
                    figures,
                    *(_ours(shed, beside, mode) for mode in ("reference", "per_report")),
                ]
            )
    return rows(
        (
            "UTC",
            "the leader unloaded",
            "because",
            "ours, `reference` samples",
            "ours, `per_report` samples",
        ),
        body,
    )


def _ours(shed: LeaderShed, beside: RoundBeside, mode: str) -> str:
    mine = [decision for decision in beside.ours[mode].decisions if decision.source == shed.source]
    parts = []
    for one in mine:
        bundle = (
            "same"
            if one.bundle == shed.bundle
            else f"`{one.bundle}`{' (a)' if one.bundle in beside.leader.splitting else ''}"
        )
        to = (
            "" if one.destination == shed.destination else f" → {short_name(one.destination or '')}"
        )
        parts.append(f"{bundle}{to}")
    return ", ".join(parts) or "nothing"


def summary(run: Replay) -> str:
    """The run in a few sentences with numbers."""
    items = (_averages(run), _default(run), _verdicts(run), _choices(run))
    return "".join(
        f"{fill(item, WIDEST, initial_indent='- ', subsequent_indent='  ')}\n" for item in items
    )


def _averages(run: Replay) -> str:
    equal, apart = (
        sum(bundle.ours["reference"] == bundle.leader for bundle in found.bundles)
        for found in (run, replay(read_together_ms=0))
    )
    sums = max(
        abs(ours - theirs) / theirs
        for broker in run.brokers
        for ours, theirs in zip(broker.ours["reference"], broker.leader, strict=True)
    )
    return (
        f"The leader decided on {len(stored_reports())} reports and wrote {len(run.bundles)} "
        "averages of bundles at "
        f"{len({bundle.at_ms for bundle in run.bundles})} times. With `reference` samples "
        f"{equal} of ours equal them **to the last bit**, sample "
        f"counts and topics included; {apart} when reports written within {READ_TOGETHER_MS} ms "
        "are not taken to be seen together. "
        f"Each broker's sums ({len(run.brokers)} records) differ by {sums:.0e} of their value at "
        "most."
    )


def _default(run: Replay) -> str:
    short, long = (np.median(ratios(run.bundles, "per_report", term)) for term in (0, 1))
    reports, writes = stored_reports(), {bundle.at_ms for bundle in run.bundles}
    minutes_long = (reports[-1].at_ms - reports[0].at_ms) / 60_000
    theirs = minutes_long / (len(reports) + len(writes))
    ours = minutes_long / (len(reports) / len({report.broker for report in reports}))
    return (
        "With `per_report` samples, our default, the medians over all these bundles are "
        f"{short:.2f} (short-term throughput ÷ the "
        f"leader's) and {long:.2f} (long-term). Ten samples, the short term, are the last "
        f"{10 * theirs:.1f} minutes in the leader and the "
        f"last {10 * ours:.1f} here."
    )


def _verdicts(run: Replay) -> str:
    """Decided from the same brokers, with the same figures."""
    agreed = sum(
        all(
            {decision.source for decision in ours.decisions} == set(beside.leader.hot)
            for ours in beside.ours.values()
        )
        for beside in run.rounds
    )
    theirs = [
        (decision, beside.leader.hot[decision.source])
        for beside in run.rounds
        for ours in beside.ours.values()
        for decision in ours.decisions
    ]
    apart = max(
        abs(mine - leaders) / leaders
        for one, leader in theirs
        for mine, leaders in zip((one.explain.saw, one.explain.average), leader, strict=True)
    )
    return (
        f"In {agreed} of {len(run.rounds)} shedding rounds we unload, under both ways of sampling, "
        "from the very brokers that the leader "
        f"called too hot. Smoothed usage and the cluster's average agree within {apart:.0e} of "
        "their value."
    )


def _choices(run: Replay) -> str:
    sheds = [(shed, beside) for beside in run.rounds for shed in beside.leader.sheds]
    same = {
        mode: sum(
            shed.bundle in {decision.bundle for decision in beside.ours[mode].decisions}
            for shed, beside in sheds
        )
        for mode in ("reference", "per_report")
    }
    spared = sum(
        {shed.bundle for shed in one.leader.sheds} == {mine.bundle for mine in one.spared.decisions}
        for one in run.rounds
    )
    ranked = [(shed, one) for shed, beside in sheds if (one := beside.alone[shed.bundle])]
    alone = sum(
        one.destination == shed.destination and _scores(one).keys() == shed.candidates.keys()
        for shed, one in ranked
    )
    rates = max(
        abs(_scores(one)[name] - rate) / rate
        for shed, one in ranked
        for name, rate in shed.candidates.items()
    )
    return (
        f"Of the {len(sheds)} bundles that the leader unloaded we choose {same['reference']} too "
        "with `reference` samples, "
        f"{same['per_report']} with `per_report`. With `reference` samples, and bundles spared "
        "that the leader is splitting, we choose "
        f"exactly the leader's bundles in {spared} of {len(run.rounds)} rounds. Asked about each "
        "of them alone, we choose the leader's "
        f"destination in {alone} of {len(sheds)} cases, from the same candidates, whose long-term "
        f"rates agree within {rates:.0e}."
    )


def _scores(one: Decision) -> dict[str, float]:
    return {
        candidate.broker: candidate.score
        for candidate in one.explain.candidates
        if candidate.score is not None
    }


def settings(_run: Replay) -> str:
    """The shedder's settings, before and after they were changed."""
    found = leader_rounds()
    first, last = settings_at(found[0].at_ms), settings_at(found[-1].at_ms)
    names = sorted(
        name
        for name in first | last
        if name.startswith(("shedding_", "threshold_", "history_", "min_throughput_"))
    )
    unset = {
        name: model.model_fields[name].default
        for model in list_models()
        for name in model.model_fields
    }
    body = [
        [
            f"`{name}`",
            *(
                f"{given[name]:g}" if name in given else f"{unset[name]:g} (default)"
                for given in (first, last)
            ),
        ]
        for name in names
    ]
    return rows(("setting", "at first", "at last"), body)


TABLES: dict[str, Callable[[Replay], str]] = {
    "summary": summary,
    "settings": settings,
    "minutes": minutes,
    "examples": examples,
    "decisions": decisions,
}


def filled(page: str, run: Replay) -> str:
    """The page with what stands between each pair of its markers made anew."""
    for name, table in TABLES.items():
        page, count = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)",
            lambda found, table=table: f"{found[1]}{table(run)}{found[2]}",
            page,
            flags=re.DOTALL,
        )
        if count != 1:
            raise ValueError(
                f"the page has {count} places for {name}, expected 1: <!-- {name} --> … <!-- end "
                "-->"
            )
    return page


if __name__ == "__main__":
    captured = replay()
    for name, table in TABLES.items():
        print(f"{name}\n\n{table(captured)}")
