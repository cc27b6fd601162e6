"""Output of the demo: a live table on a terminal, lines elsewhere, a comparison at the end."""

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

STATUS_INTERVAL_S = 5.0
WIDE = 100
"""Width of a terminal from which on message rates are shown, too."""


class View(Protocol):
    """Output while the demo runs."""

    def step(self, text: str) -> None:
        """Show a step; it stays on the screen."""
        ...

    def update(self, watch: DemoState, phase: str) -> None:
        """Show the present state; called several times a second."""
        ...

    def close(self) -> None:
        """End the live part."""
        ...


def make_view(console: Console, watch: DemoState) -> View:
    """Return a live view if the terminal can show it, else a plain view."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console, watch)
    return PlainView(console, watch)


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
    """A line for each event, and one about the cluster every STATUS_INTERVAL_S seconds."""

    def __init__(self, console: Console, watch: DemoState) -> None:
        self._console, self._watch = console, watch
        self._outcomes: dict[str, str | None] = {}  # of the decisions that were shown, by id
        self._phase, self._status_s = "", 0.0
        self._error: str | None = None

    def step(self, text: str) -> None:
        self._line(text)

    def update(self, watch: DemoState, phase: str) -> None:
        for made in watch.decisions():
            decision_id = made.decision.decision_id
            if decision_id not in self._outcomes:
                self._line(f"{_describe(made)}: {_explain(made)}")
            if self._outcomes.get(decision_id) is None and made.outcome is not None:
                reason = _explain_outcome(made)
                line = f"{_describe_outcome(made)}: {_describe(made)}"
                self._line(f"{line}: {reason}" if reason else line)
            self._outcomes[decision_id] = made.outcome
        if watch.error not in (None, self._error):
            self._line(f"a round failed: {watch.error}")
            self._error = watch.error
        now = watch.elapsed_s()
        if phase != self._phase or (watch.reports and now - self._status_s >= STATUS_INTERVAL_S):
            self._line(" · ".join([phase, *summary(watch)]))
            self._phase, self._status_s = phase, now

    def close(self) -> None:
        pass

    def _line(self, text: str) -> None:
        self._console.print(_timed(self._watch.elapsed_s(), Text(text)), soft_wrap=True)


def live_screen(watch: DemoState, phase: str, width: int, height: int) -> RenderableType:
    """Return what the live part shows at one moment, within the given size."""
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
        parts += [Text(""), *(_line(_decision_line(decision)) for decision in made)]
    return Group(*parts)


def summary(watch: DemoState) -> list[str]:
    """Return the cluster's main figures, as texts."""
    words = [f"max/mean {throughput_imbalance(watch.figures()):.2f}"] if watch.reports else []
    if watch.rounds:
        words.append(f"round {watch.rounds}")
        words.append(f"{len(watch.made)} decisions, {watch.confirmed()} confirmed")
    return words


def _broker_table(figures: Sequence[BrokerFigures], width: int, most: int) -> Table:
    """Return a table of the `most` busiest brokers, in the order of their names."""
    busiest = sorted(figures, key=lambda figure: -figure.throughput_bytes_per_s)[:most]
    shown = [figure for figure in figures if figure in busiest]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("broker", no_wrap=True)
    table.add_column("bundles", justify="right")
    if width >= WIDE:
        table.add_column("msg/s", justify="right")
    table.add_column("MB/s", justify="right")
    table.add_column("cpu", justify="right")
    # A full bar is two and a half times the mean.
    bar_width = max(5, min(50, width - (54 if width >= WIDE else 42)))
    table.add_column("throughput", no_wrap=True, width=bar_width)
    counted = [figure.throughput_bytes_per_s for figure in figures if figure.active]
    mean = sum(counted) / max(1, len(counted))
    for broker in shown:
        ratio = broker.throughput_bytes_per_s / mean if mean > 0 else 0.0
        bar = Text(
            "█" * max(0, min(bar_width, round(bar_width * ratio / 2.5))),
            "red" if ratio > BALANCED else "green",
        )
        rate = [f"{broker.rate_msgs_per_s:,.0f}"] if width >= WIDE else []
        cells = [
            short(broker.name),
            str(broker.bundles),
            *rate,
            f"{broker.throughput_bytes_per_s / 1e6:.1f}",
            f"{broker.cpu_ratio:.0%}",
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
    """Return a table of brokers before the first decision and at the end."""
    later = {broker.name: broker for broker in after}
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("broker", no_wrap=True)
    for title in ("bundles", "MB/s", "cpu"):
        table.add_column(title, justify="right")
        table.add_column("→", justify="right")
    for first in before:
        last = later.get(first.name, first)
        table.add_row(
            short(first.name),
            str(first.bundles),
            str(last.bundles),
            f"{first.throughput_bytes_per_s / 1e6:.1f}",
            f"{last.throughput_bytes_per_s / 1e6:.1f}",
            f"{first.cpu_ratio:.0%}",
            f"{last.cpu_ratio:.0%}",
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
    """Return a simulated broker's name without the port, which all share."""
    return broker.removesuffix(":8080")


def _decision_line(made: DemoDecision) -> Text:
    """Return a line of at most 80 columns: time, outcome, decision."""
    mark, style = {None: ("…", "yellow"), "confirmed": ("✓", "green")}.get(
        made.outcome, ("✗", "red")
    )
    decision = made.decision
    brokers = " → ".join(
        short(broker) for broker in (decision.source, decision.destination) if broker
    )
    if decision.kind == "assign":
        brokers = f"→ {brokers}"
    took = "" if made.took_ms is None else f"  {made.took_ms / 1000:.1f} s"
    outcome = "" if made.outcome in (None, "confirmed") else f"  {made.outcome}"
    text = f"{decision.kind:<6} {decision.bundle.partition('/')[2]}  {brokers}"
    at = f"{made.at_s:6.1f} s "
    line = Text.assemble((at, "dim"), (mark, style), " ", text, (outcome, style), (took, "dim"))
    reason = _explain_outcome(made)
    return line.append(f"  {reason}") if reason else line


def _describe(made: DemoDecision) -> str:
    decision = made.decision
    if decision.kind == "assign":
        return f"assign {decision.bundle} to {short(decision.destination or '?')}"
    target = f" (for {short(decision.destination)})" if decision.destination else ""
    return f"{decision.kind} {decision.bundle} from {short(decision.source or '?')}{target}"


def _describe_outcome(made: DemoDecision) -> str:
    if made.outcome is None or made.took_ms is None:
        return made.outcome or "pending"
    return f"{made.outcome} after {made.took_ms / 1000:.1f} s"


def _explain_outcome(made: DemoDecision) -> str:
    """Explain why a decision was not carried out; empty if it was."""
    return explain_outcome({"outcome": made.outcome, "detail": made.detail})


def _explain(made: DemoDecision) -> str:
    explain = made.decision.explain
    if explain.saw is None or explain.limit is None or explain.unit != "ratio":
        return made.decision.rule
    return f"{made.decision.rule}, {explain.saw:.0%} against {explain.limit:.0%}"


def _timed(at_s: float, text: Text) -> Text:
    return Text.assemble((f"{at_s:6.1f} s  ", "dim"), text)


def _line(text: Text) -> Text:
    """Return a text that is cut at the screen's edge: the live part must not change its height."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
