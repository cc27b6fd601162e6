"""`lbctl rollout`: restart a cluster's brokers, one after the other. Core's operations add commands.

See docs/rollouts.md.
"""

from __future__ import annotations

import json as json_
import time
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.command_lines import OperatorGroup
from lb_stream.cli.shared.completion import complete_rollouts
from lb_stream.cli.shared.options import (
    BrokerConf,
    CliSettings,
    Cluster,
    ConfigFile,
    Json,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import (
    CommandError,
    emit_json,
    emit_line,
    emit_rich,
    note,
    styled,
    table,
)
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.cli.shared.sending import SendOptions, request_results, with_send_options
from lb_stream.io.messages.times import clock

if TYPE_CHECKING:
    from rich.text import Text

    from lb_stream.query.lake import Row
    from lb_stream.query.rollouts import RolloutNow
    from lb_stream.sim.simulation.rollout_prediction import RolloutPrediction

NONE_LEFT = 3
"""Exit code: no broker is left to begin, or no rollout is on."""
BACK_TIMEOUT_S = 900.0
POLL_S = 1.0
_COLOURS = {"draining": "yellow", "empty": "bold yellow", "down": "yellow", "done": "green"}

app = typer.Typer(
    name="rollout",
    cls=OperatorGroup,
    no_args_is_help=True,
    help="Restart, upgrade or replace brokers one after the other, with the fewest moves.",
)


@app.callback()
def _group() -> None:
    """Restart, upgrade or replace brokers one after the other, with the fewest moves."""


# --- before it ---


@app.command(
    "plan",
    epilog="Example: lbctl rollout plan --cluster eu-1 --at-most 2 · Exit codes: 0 all brokers can "
    "be restarted; 1 they can't, or it would be refused; 2 wrong usage.",
)
@with_read_options(watch=False)
def plan(
    of: Annotated[
        list[str] | None,
        typer.Option("--of", metavar="PATTERN", help="Only these brokers, as in rollout start."),
    ] = None,
    in_order: Annotated[
        str | None,
        typer.Option("--in-order", metavar="BROKER,BROKER…", help="These brokers, in this order."),
    ] = None,
    at_most: Annotated[
        int,
        typer.Option("--at-most", metavar="N", min=1, help="So many may be away at a time."),
    ] = 1,
    canary: Annotated[
        str | None, typer.Option("--canary", metavar="BROKER", help="The broker that is first.")
    ] = None,
    even_if_full: Annotated[
        bool,
        typer.Option("--even-if-full", help="Also brokers whose load the others can't carry."),
    ] = False,
    restart_s: Annotated[
        float,
        typer.Option(
            "--restart-s", metavar="S", min=1.0, max=3600.0, help="How long each is away."
        ),
    ] = 90.0,
    *,
    options: ReadOptions,
) -> None:
    """Simulate a rollout from the present on: order, moves, peak usage, and how long it takes.

    Nothing is sent. Loads stay as they are now; docs/simulation.md describes what is assumed.
    """
    from lb_stream.cli.shared.broker_names import require_broker_name
    from lb_stream.core.commands.base import BadForm
    from lb_stream.io.kafka.commands import InvalidCommand, build_command
    from lb_stream.io.local.progress import progress
    from lb_stream.operations.rollout_start import RolloutStart
    from lb_stream.query.lake import open_lake
    from lb_stream.query.past.tables import build_lake_query, load_recent_history
    from lb_stream.sim.scenario.from_history import LoadHistory
    from lb_stream.sim.simulation.rollout_prediction import BrokersNotRecorded, predict_rollout

    given, cluster = options.given, options.cluster
    names = [] if in_order is None else [name.strip() for name in in_order.split(",")]
    fields: dict[str, object] = {
        "of": of or [],
        "in_order": [require_broker_name(given, cluster, name) for name in names],
        "at_most": at_most,
        "canary": None if canary is None else require_broker_name(given, cluster, canary),
        "even_if_full": even_if_full,
    }
    try:
        RolloutStart.check_given(fields)
        command = build_command("rollout-start", fields, "plan", "plan")
    except (BadForm, InvalidCommand) as error:
        raise CommandError(str(error), 2) from None
    assert isinstance(command, RolloutStart)
    with open_lake(given.tables, require_columns=False) as lake:
        history = LoadHistory(**load_recent_history(build_lake_query(lake), cluster))
    try:
        with progress("simulating", every=25) as advance:
            found = predict_rollout(
                history,
                command,
                restart_s,
                lambda part: advance(history.cluster, int(part * 100), 100),
            )
    except BrokersNotRecorded as error:
        raise CommandError(str(error)) from None
    if found.answer.outcome == "refused":
        raise CommandError(f"it would be refused ({found.answer.rule}): {found.answer.text}")
    if not options.emit_object(found.to_dict()):
        _show_plan(found, restart_s)
    if not found.fits:
        raise typer.Exit(1)


def _show_plan(found: RolloutPrediction, restart_s: float) -> None:
    for line in found.notes:
        note(line)
    emit_line(f"{found.cluster}: a rollout from now on, each broker away for {restart_s:g} s")
    columns = ("", "broker", "begun", "empty", "back", "moves", "why now")
    rows = [
        (
            str(place),
            turn.broker,
            *(_after(t_s) for t_s in (turn.begun_s, turn.empty_s, turn.back_s)),
            str(turn.moves),
            turn.why,
        )
        for place, turn in enumerate(found.turns, 1)
    ]
    emit_rich("", table(columns, rows, right=("", "begun", "empty", "back", "moves")), "")
    for line in found.lines:
        emit_line(line)


def _after(t_s: float | None) -> str:
    """Return a time of the plan: minutes and seconds from its begin."""
    return "-" if t_s is None else f"{int(t_s) // 60}:{int(t_s) % 60:02d}"


# --- the rollout that is on ---


@app.command(
    "status",
    epilog="Example: lbctl rollout status --cluster eu-1 · Exit codes: 0 a rollout is on; 1 it "
    "stands still; 3 none is on.",
)
@with_read_options()
def status(options: ReadOptions) -> None:
    """Show the rollout that is on: its brokers with their phases, moves, usage, and what is next."""
    from lb_stream.query.cluster_state import require_single_cluster_in
    from lb_stream.query.rollouts import load_rollout

    with options.open_lake() as lake:
        state = require_single_cluster_in(lake, options.cluster)
        now = load_rollout(lake, state)
    is_shown = options.emit_object(
        {"cluster": state.cluster, "rollout": None} if now is None else now.to_dict()
    )
    if now is None:
        if not is_shown:
            note(
                f"no rollout of {state.cluster} is on; lbctl rollout history shows earlier ones, "
                "lbctl rollout start begins one"
            )
        raise typer.Exit(NONE_LEFT)
    if not is_shown:
        _show(now)
    if now.progress.still_ms is not None:
        raise typer.Exit(1)


def _show(now: RolloutNow) -> None:
    order = now.order
    rules = [
        "in the order given" if order.in_order else "",
        f"{order.at_most} at a time" if order.at_most > 1 else "",
        f"to version {order.version}" if order.version else "",
        f"canary {order.canary}" if order.canary else "",
    ]
    how = ", ".join(filter(None, rules))
    emit_line(
        f"{now.cluster}: rollout {order.id} by {order.by or 'unknown'} since {clock(order.at_ms)}"
        + (f", {how}" if how else "")
    )
    columns = ("broker", "phase", "since", "moves", "bundles", "note")
    emit_rich("", table(columns, [_cells(row) for row in now.rows], right=columns[3:5]), "")
    for line in now.lines:
        emit_line(line)


def _cells(row: Row) -> tuple[str | Text, ...]:
    place = {None: "", 1: ", next"}.get(row["place"], f" ({row['place']})")
    return (
        row["broker"],
        styled((row["phase"] + place, _COLOURS.get(row["phase"], ""))),
        clock(row["since_ms"]),
        str(row["moves"] or ""),
        "" if row["bundles"] is None else str(row["bundles"]),
        row["note"],
    )


@app.command(
    "next",
    epilog="Example: lbctl rollout next --wait --cluster eu-1 · Exit codes: 0 the broker that is "
    "printed may be restarted; 1 refused or failed; 2 wrong usage; 3 no broker is left to begin, "
    "or the named one is restarted already.",
)
@with_send_options()
def next_(
    broker: Annotated[
        str | None,
        typer.Argument(
            metavar="[BROKER]", help="This broker, now, in whatever order the rollout is."
        ),
    ] = None,
    *,
    options: SendOptions,
) -> None:
    """Empty the next broker, or a named one, wait until it may be restarted, and print its name.

    All else goes to stderr. Given again while no other one may be begun, it waits for the same
    broker until that is restarted. A named broker is emptied if the rollout's rules allow it.
    """
    fields = {} if broker is None else {"broker": options.require_broker(broker)}
    for by_cluster in request_results(options, [("rollout-next", fields)]):
        (result,) = by_cluster.values()
        empty = result.text.partition(" ")[0] if result.outcome == "done" else None
        if options.json:
            emit_json({**result.model_dump(mode="json"), "broker": empty})
        else:
            rule = f" ({result.rule})" if result.rule else ""
            note(f"{result.outcome}{rule}: {result.text}")
        if empty is not None:
            if not options.json:
                emit_line(empty)
            return
        is_over = result.rule == "rollout_done" or (
            result.rule == "no_rollout" and _has_just_ended(options.given, result.cluster)
        )
        raise typer.Exit(NONE_LEFT if is_over else 1)


def _has_just_ended(given: CliSettings, cluster: str) -> bool:
    """Return whether the cluster's last rollout has ended with all of its brokers restarted."""
    from lb_stream.query import QueryError
    from lb_stream.query.lake import open_lake
    from lb_stream.query.rollouts import load_last_rollouts

    try:
        with open_lake(given.tables) as lake:
            last = load_last_rollouts(lake, cluster, 1)
    except QueryError:
        return False
    return bool(last) and last[0]["outcome"] == "ended"


@app.command(
    "back",
    epilog="Example: lbctl rollout back broker-3 --wait --cluster eu-1 · Exit codes: 0 it is back; "
    "1 it is not, or the rollout was aborted; 2 wrong usage.",
)
def back(
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="The broker that restarts.")],
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait/--wait", show_default=False, help="Only look whether it is back now."
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", min=0.1, help="Seconds to wait for it.")
    ] = BACK_TIMEOUT_S,
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Wait until a broker is back from its restart: it reports, with a new start of its process."""
    given = load_cli_settings(config, broker_conf, set_)
    from lb_stream.cli.shared.broker_names import require_broker_name
    from lb_stream.cli.shared.rollout_watch import BackWatch
    from lb_stream.cli.shared.sending import choose_cluster

    name = require_broker_name(given, cluster, broker)
    watch = BackWatch(given.tables, choose_cluster(given, cluster), name)
    until_s = time.monotonic() + timeout
    while (answer := watch.look()) is None and not no_wait and time.monotonic() < until_s:
        time.sleep(min(POLL_S, max(until_s - time.monotonic(), 0.0)))
    is_back = answer is not None
    if json:
        emit_json({"broker": name, "back": is_back, "text": answer or watch.state})
    elif answer is not None:
        emit_line(answer)
    if not is_back:
        waited = "" if no_wait else f" after {timeout:g} s"
        if not json:
            note(f"{name} is not back{waited}: {watch.state}")
        raise typer.Exit(1)


# --- the past ---


@app.command("history", epilog="Example: lbctl rollout history --last 3 --cluster eu-1")
@with_read_options()
def history(
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", min=1, help="Show the last N rollouts.")
    ] = 10,
    rollout: Annotated[
        str | None,
        typer.Option(
            "--rollout",
            metavar="ID",
            help="Show the events of this one, by its id or the begin of it; or `last`.",
            autocompletion=complete_rollouts,
        ),
    ] = None,
    *,
    options: ReadOptions,
) -> None:
    """Show the last rollouts, or what has happened in one of them, from the table rollouts."""
    from lb_stream.query.past.names import find_rollout
    from lb_stream.query.rollouts import load_last_rollouts, load_rollout_events

    cluster = options.cluster
    with options.open_lake(may_be_stale=True) as lake:
        rollouts = load_last_rollouts(lake, cluster, 1 if rollout == "last" else last)
        if rollout is not None:
            wanted = find_rollout(lake, rollout, cluster) or rollout
            if rollout == "last" and rollouts:
                wanted = rollouts[-1]["rollout"]
            events = load_rollout_events(lake, cluster, wanted)
    if rollout is not None:
        if not events:
            raise CommandError(f"no rollout {rollout} is in the table: lbctl rollout history", 2)
        if not options.emit_rows(events, "broker"):
            emit_rich(table(("when", "broker", "event"), [_event_cells(row) for row in events]))
        return
    rows = [row | {"arguments": json_.loads(row["arguments"] or "{}")} for row in rollouts]
    if options.emit_rows(rows, "rollout"):
        return
    if not rows:
        note(f"no rollout has been started yet{options.in_cluster}")
    else:
        columns = ("rollout", "begun", "took", "restarted", "moves", "outcome")
        cells = [_rollout_cells(row) for row in rows]
        emit_rich(table(columns, cells, right=("restarted", "moves")))


def _event_cells(row: Row) -> tuple[str | Text, ...]:
    return clock(row["at_ms"]), row["broker"] or "", styled(row["phase"], row["text"])


def _rollout_cells(row: Row) -> tuple[str | Text, ...]:
    from lb_stream.query.health import describe_duration

    outcome = {"ended": "done", "aborted": "aborted", None: "on"}[row["outcome"]]
    return (
        styled(row["rollout"], f"{row['cluster']}, by {row['by'] or 'unknown'}"),
        clock(row["begun_ms"]),
        describe_duration(row["last_ms"] - row["begun_ms"]),
        str(row["done"]),
        str(row["moves"]),
        styled((outcome, {"done": "green", "on": "yellow"}.get(outcome, "red"))),
    )


# --- hands ---


@app.command(
    "run",
    epilog="Example: lbctl rollout run --hook 'ssh {host} sudo systemctl restart pulsar-broker' · "
    "Exit codes: 0 all are restarted; 1 a hook failed, it stands still or was aborted; 2 wrong "
    "usage; 3 no rollout is on.",
)
def run(
    hook: Annotated[
        str,
        typer.Option(
            "--hook",
            metavar="COMMAND|URL",
            help="What restarts a broker: a command in which {broker} and {host} are replaced, or "
            "a URL that gets a POST. file:PATH: it is in that file.",
        ),
    ],
    hook_timeout: Annotated[
        float,
        typer.Option("--hook-timeout", metavar="S", min=0.1, help="Seconds that it may take."),
    ] = 600.0,
    hook_secret: Annotated[
        str,
        typer.Option(
            "--hook-secret", metavar="file:PATH", help="The secret that signs a POST, in a file."
        ),
    ] = "",
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Restart all brokers of the rollout that is on, each by a hook once it is empty.

    It may be killed and run again at any time: the rollout's state is in the log. The hook may then
    be called again for a broker that is empty and has not stopped yet.
    """
    given = load_cli_settings(config, broker_conf, set_)
    from lb_stream.cli.operate.rollout_run import RestartHook, RolloutRunner
    from lb_stream.cli.shared.sending import DEFAULT_TIMEOUT_S, choose_cluster
    from lb_stream.query.cluster_state import require_cluster
    from lb_stream.query.lake import open_lake

    wanted = RestartHook.parse(hook, hook_secret, hook_timeout)
    name = choose_cluster(given, cluster)
    with open_lake(given.tables) as lake:
        require_cluster(lake, name)
    options = SendOptions(given, name, False, False, DEFAULT_TIMEOUT_S, None, json)
    runner = RolloutRunner(options, name, wanted)
    text = runner.run()
    if json:
        ended = {"rollout": runner.rollout, "restarted": runner.restarted, "text": text}
        emit_json({"cluster": name, **ended})
    else:
        emit_line(text)
