"""Predicts what a change would do, for `lbctl what-if` and for --preview of operators' commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from lb_stream.cli.shared.options import CliSettings
from lb_stream.cli.shared.output import CommandError, emit_json, emit_line, emit_rich, note, table
from lb_stream.cli.shared.sending import SendOptions

if TYPE_CHECKING:
    from lb_stream.core.commands.base import Operation, WhatIf
    from lb_stream.sim.simulation.prediction import Prediction

MINUTES = 30.0
MAX_SHOWN_MOVES = 10
PARTS = 100
Preview = Annotated[
    bool,
    typer.Option(
        "--preview",
        help="Send nothing: simulate the next half hour with the command, and show the outcome.",
    ),
]


def show_prediction(
    given: CliSettings,
    cluster: str | None,
    change: WhatIf,
    minutes: float = MINUTES,
    json: bool = False,
) -> None:
    """Simulate a cluster's next minutes without and with a change, and print both.

    `cluster` None: the only one. Raises typer.Exit(1) if the change doesn't fit, or if an approval
    leaves the busiest broker busier; CommandError if the change would be refused; QueryError,
    SettingError, ScenarioError.
    """
    from lb_stream.io.local.progress import progress
    from lb_stream.query.lake import open_lake
    from lb_stream.query.past.tables import build_lake_query, load_recent_history
    from lb_stream.sim.scenario.from_history import LoadHistory
    from lb_stream.sim.simulation.prediction import CHANGED, predict_change

    with open_lake(given.tables, require_columns=False) as lake:
        history = LoadHistory(**load_recent_history(build_lake_query(lake), cluster))
    name = history.cluster
    with progress("simulating", every=PARTS) as advance:
        found, notes = predict_change(
            history, change, minutes, lambda part: advance(name, int(part * PARTS), PARTS)
        )
    answers = found[CHANGED].answers
    if answers and all(answer.outcome == "refused" for answer in answers):
        raise CommandError(f"it would be refused ({answers[0].rule}): {answers[0].text}")
    if json:
        fields: dict[str, object] = {"cluster": name, "minutes": minutes}
        for label, prediction in found.items():
            fields[label] = {**prediction.figures, "moved": prediction.moves}
        if answers:
            fields["answers"] = [
                {field: getattr(answer, field) for field in ("outcome", "rule", "text")}
                for answer in answers
            ]
        emit_json(fields)
    else:
        for line in notes:
            note(line)
        for answer in answers:
            rule = f" ({answer.rule})" if answer.rule and answer.outcome != "done" else ""
            emit_line(f"{answer.outcome}{rule}: {answer.text}")
        _show(name, minutes, found)
    if change.waits and (worse := _describe_worsening(found)):
        note(worse)
        raise typer.Exit(1)
    has_failed = any(answer.outcome in ("refused", "failed") for answer in answers)
    if has_failed or not found[CHANGED].figures["fits"]:
        raise typer.Exit(1)


def _describe_worsening(found: Mapping[str, Prediction]) -> str:
    """Describe how much busier the change leaves the busiest broker; empty: it does not."""
    from lb_stream.sim.simulation.prediction import AS_IT_IS, CHANGED
    from lb_stream.sim.simulation.prediction_texts import SAME_USAGE

    before, after = (found[name].figures["usage_max_after"] for name in (AS_IT_IS, CHANGED))
    if after <= before + SAME_USAGE:
        return ""
    return (
        f"this raises max usage: the busiest broker ends at {after:.1%} instead of {before:.1%}; "
        "lbctl proposals shows whether it is part of a plan, lbctl approve --plan PLAN approves "
        "all of a plan"
    )


def preview_moves(
    options: SendOptions, kind: str, moves: Sequence[Mapping[str, object]], waits: bool = False
) -> None:
    """Print what moves by commands of one kind would do.

    Raises as `show_prediction`, and CommandError (2) for a malformed command.
    """
    from lb_stream.core.commands.base import WhatIf
    from lb_stream.io.kafka.commands import InvalidCommand, build_command

    try:
        commands = [
            build_command(kind, fields, "preview", f"preview:{number}")
            for number, fields in enumerate(moves)
        ]
    except InvalidCommand as error:
        raise CommandError(str(error), 2) from None
    # The simulation has a clock of its own.
    timeless = [command.model_copy(update={"sent_ms": 0}) for command in commands]
    _show_preview(options, WhatIf(commands=timeless, waits=waits))


class _TablesPresent:
    """A cluster's present, from the tables."""

    def __init__(self, options: SendOptions) -> None:
        self._options = options

    def silent_brokers(self) -> tuple[str, ...]:
        """Return the brokers that have been silent for too long."""
        from lb_stream.query.cluster_state import require_cluster
        from lb_stream.query.lake import open_lake
        from lb_stream.query.status_facts import load_cluster_facts

        with open_lake(self._options.given.tables) as lake:
            require_cluster(lake, self._options.cluster)
            found = [
                facts.silent
                for facts in load_cluster_facts(lake)
                if facts.cluster == self._options.cluster
            ]
        return tuple(found[0]) if found else ()

    def is_paused(self) -> bool:
        """Return whether the cluster is paused."""
        from lb_stream.query.cluster_state import require_single_cluster

        return require_single_cluster(
            self._options.given.tables, self._options.cluster
        ).operator_state.paused


def preview_command(
    options: SendOptions, model: type[Operation], fields: Mapping[str, object]
) -> None:
    """Print what a command would do.

    Raises as `show_prediction`, and CommandError (2) for a malformed command.
    """
    from lb_stream.core.commands.base import CannotPreview
    from lb_stream.io.kafka.commands import InvalidCommand, build_command

    try:
        command = cast("Operation", build_command(model.spec.kind, fields, "preview", "preview:0"))
    except InvalidCommand as error:
        raise CommandError(str(error), 2) from None
    try:
        change = command.preview(_TablesPresent(options))
    except CannotPreview as error:
        raise CommandError(str(error)) from None
    _show_preview(options, change)


def _show_preview(options: SendOptions, change: WhatIf) -> None:
    """Print what a change would do in the cluster that the options name.

    Raises as `show_prediction`, and CommandError (2) for all clusters at once.
    """
    if options.all_clusters:
        raise CommandError(
            "--preview simulates one cluster: name it with --cluster, without --all-clusters", 2
        )
    show_prediction(options.given, options.cluster, change, json=options.json)


def _show(cluster: str, minutes: float, found: Mapping[str, Prediction]) -> None:
    from lb_stream.sim.simulation.prediction_texts import FIGURES, describe_verdict, format_figure

    labels = list(found)
    rows = [
        [
            figure.title,
            *(format_figure(shown.figures[name], figure.unit) for shown in found.values()),
        ]
        for name, figure in FIGURES.items()
        if any(prediction.figures[name] is not None for prediction in found.values())
    ]
    emit_rich(
        f"{cluster}, the next {minutes:g} minutes with the current load",
        table(["", *labels], rows, right=labels),
        "",
    )
    changed = found[labels[-1]]
    emit_rich(describe_verdict(found))
    if changed.moves:
        moves = [
            [
                f"{move['t_s']:g}",
                move["bundle"],
                move["from"],
                move["to"] or "unassigned",
                str(move["clients"]),
            ]
            for move in changed.moves[:MAX_SHOWN_MOVES]
        ]
        emit_rich(
            table(
                ["after s", "bundle", "from", "to", "clients"], moves, right=["after s", "clients"]
            )
        )
        if len(changed.moves) > MAX_SHOWN_MOVES:
            emit_rich(f"and {len(changed.moves) - MAX_SHOWN_MOVES} more")
