"""What would come of a change, before it is made: for `lbctl what-if`, and for --preview of the
commands that change something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from lb_stream.cli.shared.options import CliSettings
from lb_stream.cli.shared.output import CommandError, emit_json, emit_line, emit_rich, note, table
from lb_stream.cli.shared.sending import SendOptions

if TYPE_CHECKING:
    from lb_stream.core.commands.base import Operation, WhatIf
    from lb_stream.sim.simulation.prediction import Prediction

MINUTES = 30.0
MOST_MOVES = 10
PARTS = 100
WORSE = 0.0005
"""A max usage that differs by no more than this is the same: it is shown with three digits."""
Preview = Annotated[
    bool,
    typer.Option(
        "--preview",
        help="Send nothing: show what would come of it, played from the present for half an hour.",
    ),
]


def show_prediction(
    given: CliSettings,
    cluster: str | None,
    change: WhatIf,
    minutes: float = MINUTES,
    json: bool = False,
) -> None:
    """Play the present of a cluster (None: the only one) as it is and changed, and print both.

    Raises typer.Exit(1) when the change doesn't fit, or is an approval that leaves the busiest
    broker busier than it is without; CommandError when it would be refused; QueryError,
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
    with progress("simulating", every=PARTS) as told:
        found, notes = predict_change(
            history, change, minutes, lambda part: told(name, int(part * PARTS), PARTS)
        )
    answers = found[CHANGED].answers
    if answers and all(answer.outcome == "refused" for answer in answers):
        raise CommandError(f"it would be refused ({answers[0].rule}): {answers[0].text}")
    if json:
        figures = {label: {**one.figures, "moved": one.moves} for label, one in found.items()}
        said = (
            {
                "answers": [
                    {name: getattr(answer, name) for name in ("outcome", "rule", "text")}
                    for answer in answers
                ]
            }
            if answers
            else {}
        )
        emit_json({"cluster": name, "minutes": minutes, **figures, **said})
    else:
        for line in notes:
            note(line)
        for answer in answers:
            rule = f" ({answer.rule})" if answer.rule and answer.outcome != "done" else ""
            emit_line(f"{answer.outcome}{rule}: {answer.text}")
        _show(name, minutes, found)
    if change.waits and (worse := _worse(found)):
        note(worse)
        raise typer.Exit(1)
    if not found[CHANGED].figures["fits"] or any(
        answer.outcome in ("refused", "failed") for answer in answers
    ):
        raise typer.Exit(1)


def _worse(found: Mapping[str, Prediction]) -> str:
    """Say how much busier the busiest broker ends than without the change; empty: it doesn't."""
    from lb_stream.sim.simulation.prediction import AS_IT_IS, CHANGED

    before, after = (found[name].figures["usage_max_after"] for name in (AS_IT_IS, CHANGED))
    if after <= before + WORSE:
        return ""
    return (
        f"this makes it worse: the busiest broker ends at {after:.1%}, without it at {before:.1%}; "
        "lbctl proposals shows the plan that it may be part of, and lbctl approve --plan PLAN "
        "approves all of that"
    )


def preview_moves(
    send: SendOptions, kind: str, several: Sequence[Mapping[str, Any]], waits: bool = False
) -> None:
    """Show what would come of commands of one kind.

    Raises as `show_prediction`; CommandError (2) for one that can't be.
    """
    from lb_stream.core.commands.base import WhatIf
    from lb_stream.io.kafka.commands import InvalidCommand, build_command

    try:
        orders = [
            build_command(kind, one, "preview", f"preview:{number}")
            for number, one in enumerate(several)
        ]
    except InvalidCommand as error:
        raise CommandError(str(error), 2) from None
    timeless = [
        order.model_copy(update={"sent_ms": 0}) for order in orders
    ]  # the played time is another one
    show_preview(send, WhatIf(commands=timeless, waits=waits))


class _Tables:
    """A cluster's present, as the tables have it."""

    def __init__(self, send: SendOptions) -> None:
        self._send = send

    def silent_brokers(self) -> tuple[str, ...]:
        """Return the brokers that have been silent for too long."""
        from lb_stream.query.cluster_state import require_cluster
        from lb_stream.query.lake import open_lake
        from lb_stream.query.status_facts import load_cluster_facts

        with open_lake(self._send.given.tables) as lake:
            require_cluster(lake, self._send.cluster)
            found = [
                facts.silent
                for facts in load_cluster_facts(lake)
                if facts.cluster == self._send.cluster
            ]
        return tuple(found[0]) if found else ()

    def is_paused(self) -> bool:
        """Return whether the cluster is paused."""
        from lb_stream.query.cluster_state import require_single_cluster

        return require_single_cluster(
            self._send.given.tables, self._send.cluster
        ).operator_state.paused


def preview_command(send: SendOptions, model: type[Operation], fields: Mapping[str, Any]) -> None:
    """Show what would come of a command.

    Raises as `show_prediction`; CommandError (2) for one that can't be.
    """
    from lb_stream.core.commands.base import CannotPreview
    from lb_stream.io.kafka.commands import InvalidCommand, build_command

    try:
        command = cast("Operation", build_command(model.spec.kind, fields, "preview", "preview:0"))
    except InvalidCommand as error:
        raise CommandError(str(error), 2) from None
    try:
        change = command.preview(_Tables(send))
    except CannotPreview as error:
        raise CommandError(str(error)) from None
    show_preview(send, change)


def show_preview(send: SendOptions, change: WhatIf) -> None:
    """`show_prediction` for a command that would be sent so.

    Raises CommandError for all clusters at once.
    """
    if send.all_clusters:
        raise CommandError(
            "--preview plays one cluster: name it with --cluster, without --all-clusters", 2
        )
    show_prediction(send.given, send.cluster, change, json=send.json)


def _show(cluster: str, minutes: float, found: Mapping[str, Prediction]) -> None:
    from lb_stream.sim.simulation.prediction import FIGURES, format_figure

    labels = list(found)
    rows = [
        [title, *(format_figure(prediction.figures[name]) for prediction in found.values())]
        for name, title in FIGURES.items()
        if any(prediction.figures[name] is not None for prediction in found.values())
    ]
    emit_rich(
        f"{cluster}, the next {minutes:g} minutes with the load of now",
        table(["", *labels], rows, right=labels),
        "",
    )
    changed = found[labels[-1]]
    if not changed.figures["fits"]:
        emit_rich(
            "It doesn't fit: a broker is asked for more than it has, or keeps bundles that should "
            "leave."
        )
    if changed.moves:
        first = changed.moves[:MOST_MOVES]
        moves = [
            [
                f"{one['t_s']:g}",
                one["bundle"],
                one["from"],
                one["to"] or "nobody",
                str(one["clients"]),
            ]
            for one in first
        ]
        emit_rich(
            table(
                ["after s", "bundle", "from", "to", "clients"], moves, right=["after s", "clients"]
            )
        )
        if len(changed.moves) > MOST_MOVES:
            emit_rich(f"and {len(changed.moves) - MOST_MOVES} more")
