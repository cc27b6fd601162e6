"""How the demo shows itself: a live table on a terminal, lines elsewhere, and the comparison at the
end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lb_stream.kit.demo.watch import (
    BALANCED,
    BrokerFigures,
    DemoDecision,
    DemoState,
    throughput_imbalance,
)
from lb_stream.query.wording import explain_outcome

STATUS_EVERY_S = 5.0
WIDE = 100
"""Columns from which on message rates are shown too."""


class View(Protocol):
    """What the demo tells."""

    def step(self, text: str) -> None:
        """Something was begun or reached; it stays on the screen."""
        ...

    def update(self, watch: DemoState, phase: str) -> None:
        """Called several times a second."""
        ...

    def close(self) -> None:
        """The live part is over."""
        ...


def make_view(console: Console, watch: DemoState) -> View:
    """The live table where it can be drawn, lines elsewhere."""
    return (
        LiveView(console, watch)
        if console.is_terminal and not console.is_dumb_terminal
        else PlainView(console, watch)
    )


class LiveView:
    """One table that changes in place, with the last decisions below it."""

    def __init__(self, console: Console, watch: DemoState) -> None:
        self._console, self._watch = console, watch
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def step(self, text: str) -> None:
        self._console.print(_timed(self._watch.elapsed_s(), Text(text)), soft_wrap=True)

    def update(self, watch: DemoState, phase: str) -> None:
        self._live.update(
            live_screen(watch, phase, self._console.width, self._console.height), refresh=True
        )

    def close(self) -> None:
        self._live.stop()


class PlainView:
    """A line for each thing that happens, and one on the whole cluster now and then."""

    def __init__(self, console: Console, watch: DemoState) -> None:
        self._console, self._watch = console, watch
        self._told: dict[str, str | None] = {}
        self._phase, self._status_s = "", 0.0
        self._error: str | None = None

    def step(self, text: str) -> None:
        self._line(text)

    def update(self, watch: DemoState, phase: str) -> None:
        for made in watch.decisions():
            told = self._told.get(made.decision.decision_id, "")
            if told == "":
                self._line(f"{_what(made)}: {_why(made)}")
            if told in ("", None) and made.outcome is not None:
                reason = _reason(made)
                ended = f"{_how_it_ended(made)}: {_what(made)}"
                self._line(f"{ended}: {reason}" if reason else ended)
            self._told[made.decision.decision_id] = made.outcome
        if watch.error not in (None, self._error):
            self._line(f"a round failed: {watch.error}")
            self._error = watch.error
        now = watch.elapsed_s()
        if phase != self._phase or (watch.reports and now - self._status_s >= STATUS_EVERY_S):
            self._line(" · ".join([phase, *summary(watch)]))
            self._phase, self._status_s = phase, now

    def close(self) -> None:
        pass

    def _line(self, text: str) -> None:
        self._console.print(_timed(self._watch.elapsed_s(), Text(text)), soft_wrap=True)


def live_screen(watch: DemoState, phase: str, width: int, height: int) -> RenderableType:
    """Everything that the live part shows at one moment, within the given size."""
    figures = watch.figures()
    parts: list[RenderableType] = [Text(""), _line(Text(phase, "bold"))]
    if figures:
        parts += [
            _line(Text(" · ".join(summary(watch)))),
            Text(""),
            _broker_table(figures, width, max(3, height - 10)),
        ]
    if watch.error:
        parts.append(_line(Text(f"a round failed: {watch.error.splitlines()[-1]}", "red")))
    made = watch.decisions()[-max(2, height - len(figures) - 9) :]
    if made:
        parts += [Text(""), *(_line(_decision_line(one)) for one in made)]
    return Group(*parts)


def summary(watch: DemoState) -> list[str]:
    """The cluster in a few words."""
    words = [f"max/mean {throughput_imbalance(watch.figures()):.2f}"] if watch.reports else []
    if watch.rounds:
        words.append(f"round {watch.rounds}")
        words.append(f"{len(watch.made)} decisions, {watch.confirmed()} confirmed")
    return words


def _broker_table(figures: Sequence[BrokerFigures], width: int, most: int) -> Table:
    """The busiest brokers when there are too many for the screen, in the order of their names."""
    busiest = sorted(figures, key=lambda figure: -figure.throughput_bytes_per_s)[:most]
    shown = [figure for figure in figures if figure in busiest]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("broker", no_wrap=True)
    table.add_column("bundles", justify="right")
    if width >= WIDE:
        table.add_column("msg/s", justify="right")
    table.add_column("MB/s", justify="right")
    table.add_column("cpu", justify="right")
    # Two and a half times the mean fills the bar.
    bar_width = max(5, min(50, width - (54 if width >= WIDE else 42)))
    table.add_column("throughput", no_wrap=True, width=bar_width)
    counted = [figure.throughput_bytes_per_s for figure in figures if figure.active]
    mean = sum(counted) / max(1, len(counted))
    for one in shown:
        ratio = one.throughput_bytes_per_s / mean if mean > 0 else 0.0
        bar = Text(
            "█" * max(0, min(bar_width, round(bar_width * ratio / 2.5))),
            "red" if ratio > BALANCED else "green",
        )
        rate = [f"{one.rate_msgs_per_s:,.0f}"] if width >= WIDE else []
        cells = [
            short(one.name),
            str(one.bundles),
            *rate,
            f"{one.throughput_bytes_per_s / 1e6:.1f}",
            f"{one.cpu_ratio:.0%}",
        ]
        table.add_row(*cells, bar)
    if len(shown) < len(figures):
        table.add_row(
            f"and {len(figures) - len(shown)} more",
            "",
            *([""] if width >= WIDE else []),
            "",
            "",
            "",
        )
    return table


def comparison(before: Sequence[BrokerFigures], after: Sequence[BrokerFigures]) -> Table:
    """Brokers before the first decision and at the end."""
    later = {one.name: one for one in after}
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("broker", no_wrap=True)
    for title in ("bundles", "MB/s", "cpu"):
        table.add_column(title, justify="right")
        table.add_column("→", justify="right")
    for one in before:
        then = later.get(one.name, one)
        table.add_row(
            short(one.name),
            str(one.bundles),
            str(then.bundles),
            f"{one.throughput_bytes_per_s / 1e6:.1f}",
            f"{then.throughput_bytes_per_s / 1e6:.1f}",
            f"{one.cpu_ratio:.0%}",
            f"{then.cpu_ratio:.0%}",
        )
    table.add_section()
    table.add_row(
        "max/mean",
        "",
        "",
        f"{throughput_imbalance(list(before)):.2f}",
        f"{throughput_imbalance(list(after)):.2f}",
        "",
        "",
    )
    return table


def short(broker: str) -> str:
    """A simulated broker's name without its port, which they all share."""
    return broker.removesuffix(":8080")


def _decision_line(made: DemoDecision) -> Text:
    """One line that fits 80 columns: when, how it stands, what."""
    mark, style = {None: ("…", "yellow"), "confirmed": ("✓", "green")}.get(
        made.outcome, ("✗", "red")
    )
    decision = made.decision
    way = " → ".join(short(broker) for broker in (decision.source, decision.destination) if broker)
    took = "" if made.took_ms is None else f"  {made.took_ms / 1000:.1f} s"
    ended = "" if made.outcome in (None, "confirmed") else f"  {made.outcome}"
    reason = _reason(made)
    what = (
        f"{decision.kind:<6} {decision.bundle.partition('/')[2]}  "
        f"{'→ ' if decision.kind == 'assign' else ''}{way}"
    )
    at = f"{made.at_s:6.1f} s "
    line = Text.assemble((at, "dim"), (mark, style), " ", what, (ended, style), (took, "dim"))
    return line.append(f"  {reason}") if reason else line


def _what(made: DemoDecision) -> str:
    decision = made.decision
    if decision.kind == "assign":
        return f"assign {decision.bundle} to {short(decision.destination or '?')}"
    target = f" (for {short(decision.destination)})" if decision.destination else ""
    return f"{decision.kind} {decision.bundle} from {short(decision.source or '?')}{target}"


def _how_it_ended(made: DemoDecision) -> str:
    if made.outcome is None:
        return "made"
    return (
        made.outcome
        if made.took_ms is None
        else f"{made.outcome} after {made.took_ms / 1000:.1f} s"
    )


def _reason(made: DemoDecision) -> str:
    """Why a decision was not carried out; empty where it was."""
    return explain_outcome({"outcome": made.outcome, "detail": made.detail})


def _why(made: DemoDecision) -> str:
    explain = made.decision.explain
    if explain.saw is None or explain.limit is None or explain.unit != "ratio":
        return made.decision.rule
    return f"{made.decision.rule}, {explain.saw:.0%} against {explain.limit:.0%}"


def _timed(at_s: float, text: Text) -> Text:
    return Text.assemble((f"{at_s:6.1f} s  ", "dim"), text)


def _line(text: Text) -> Text:
    """Cut at the screen's edge instead of wrapped: the live part must not change its height."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
