"""`lbctl rollout`: restart a cluster's brokers, one after the other. Core's operations add commands.

See docs/rollouts.md.
"""

from __future__ import annotations

import json as json_
import time
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.command_lines import OperatorGroup
from lb_stream.cli.shared.options import (
    BrokerConf,
    CliSettings,
    Cluster,
    ConfigFile,
    Format,
    Json,
    Output,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import (
    CommandError,
    emit_json,
    emit_line,
    emit_rich,
    emit_rows,
    note,
    styled,
    table,
)
from lb_stream.cli.shared.sending import SendOptions, request_results, with_send_options
from lb_stream.io.messages.times import clock

if TYPE_CHECKING:
    from rich.text import Text

    from lb_stream.query.lake import Row
    from lb_stream.query.rollouts import RolloutNow

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


# --- the rollout that is on ---


@app.command(
    "status",
    epilog="Example: lbctl rollout status --cluster eu-1 · Exit codes: 0 a rollout is on; 1 it "
    "stands still; 3 none is on.",
)
def status(
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Show the rollout that is on: its brokers with their phases, moves, usage, and what is next."""
    given = load_cli_settings(config, broker_conf, set_)
    from lb_stream.cli.shared.staleness import warn_if_stale
    from lb_stream.query.cluster_state import require_single_cluster_in
    from lb_stream.query.lake import open_lake
    from lb_stream.query.rollouts import load_rollout

    with open_lake(given.tables) as lake:
        warn_if_stale(given, lake)
        state = require_single_cluster_in(lake, cluster)
        now = load_rollout(lake, state)
    if json:
        emit_json({"cluster": state.cluster, "rollout": None} if now is None else now.to_dict())
    if now is None:
        if not json:
            note(
                f"no rollout of {state.cluster} is on; lbctl rollout history shows earlier ones, "
                "lbctl rollout start begins one"
            )
        raise typer.Exit(NONE_LEFT)
    if not json:
        _show(now)
    if now.still_ms is not None:
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
    "printed may be restarted; 1 refused or failed; 2 wrong usage; 3 no broker is left to begin.",
)
@with_send_options()
def next_(*, options: SendOptions) -> None:
    """Empty the next broker, wait until it may be restarted, and print its name.

    All else goes to stderr. Given again, it waits for the same broker until that is restarted.
    """
    for by_cluster in request_results(options, [("rollout-next", {})]):
        (result,) = by_cluster.values()
        broker = result.text.partition(" ")[0] if result.outcome == "done" else None
        if options.json:
            emit_json({**result.model_dump(mode="json"), "broker": broker})
        else:
            rule = f" ({result.rule})" if result.rule else ""
            note(f"{result.outcome}{rule}: {result.text}")
        if broker is not None:
            if not options.json:
                emit_line(broker)
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
def history(
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", min=1, help="Show the last N rollouts.")
    ] = 10,
    rollout: Annotated[
        str | None,
        typer.Option("--rollout", metavar="ID", help="Show the events of this one; or `last`."),
    ] = None,
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
    output: Output = Format.table,
) -> None:
    """Show the last rollouts, or what has happened in one of them, from the table rollouts."""
    given = load_cli_settings(config, broker_conf, set_)
    from lb_stream.query.cluster_state import require_cluster
    from lb_stream.query.lake import open_lake
    from lb_stream.query.rollouts import load_last_rollouts, load_rollout_events

    with open_lake(given.tables) as lake:
        require_cluster(lake, cluster)
        rollouts = load_last_rollouts(lake, cluster, 1 if rollout == "last" else last)
        if rollout is not None:
            wanted = rollouts[-1]["rollout"] if rollout == "last" and rollouts else rollout
            events = load_rollout_events(lake, cluster, wanted)
    if rollout is not None:
        if not events:
            raise CommandError(f"no rollout {rollout} is in the table: lbctl rollout history", 2)
        if not emit_rows(events, output, json):
            emit_rich(table(("when", "broker", "event"), [_event_cells(row) for row in events]))
        return
    rows = [row | {"arguments": json_.loads(row["arguments"] or "{}")} for row in rollouts]
    if emit_rows(rows, output, json):
        return
    if not rows:
        note("no rollout has been started yet" + (f" in cluster {cluster}" if cluster else ""))
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
