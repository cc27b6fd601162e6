"""`lbctl shadow`: what a cluster's shadows would have done beside what its own policy did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import parse_time
from lb_stream.cli.shared.output import emit_rich, note, table
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.io.messages.times import clock

if TYPE_CHECKING:
    from lb_stream.query.lake import Row

_QUERY = """
    WITH wanted AS (
             SELECT * FROM shadow_rounds WHERE ($1 IS NULL OR cluster = $1) AND now_ms >= $2),
         beside AS (
             SELECT cluster, log_seq, max_ratio AS real_max, mean_ratio AS real_mean FROM wanted
             WHERE policy = 'real')
    SELECT cluster, policy, arg_max(strategies, log_seq) AS strategies,
           coalesce(arg_max(detail, log_seq) FILTER (WHERE policy = 'real') = 'dry run', false)
               AS dry_run,
           count(*) FILTER (WHERE outcome = 'done') AS rounds,
           count(*) FILTER (WHERE outcome = 'skipped') AS skipped,
           count(*) FILTER (WHERE outcome = 'failed') AS failed,
           arg_max(detail, log_seq) FILTER (WHERE outcome = 'failed') AS last_failure,
           count(*) FILTER (WHERE shed) AS passes,
           coalesce(sum(moves), 0)::BIGINT AS moves,
           coalesce(sum(assignments), 0)::BIGINT AS assignments,
           coalesce(sum(moved_bytes_per_s), 0) AS moved_bytes_per_s,
           sum(arrived)::BIGINT AS arrived, arg_max(elsewhere, log_seq) AS elsewhere,
           avg(max_ratio) AS max_usage, quantile_disc(max_ratio, 0.95) AS max_usage_p95,
           arg_max(max_ratio, log_seq) AS max_usage_last,
           avg(mean_ratio) AS mean_usage, avg(max_ratio / nullif(mean_ratio, 0)) AS max_over_mean,
           avg(real_max) FILTER (WHERE outcome = 'done') AS real_max_usage,
           avg(real_max / nullif(real_mean, 0)) FILTER (WHERE outcome = 'done')
               AS real_max_over_mean,
           min(now_ms) AS first_ms, max(now_ms) AS last_ms
    FROM wanted LEFT JOIN beside USING (cluster, log_seq)
    GROUP BY cluster, policy ORDER BY cluster, policy <> 'real', policy
"""
COLUMNS = (
    "policy",
    "rounds",
    "passes",
    "moves",
    "MB/s",
    "max usage",
    "p95",
    "max/mean",
    "skipped",
    "failed",
)


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("shadow", epilog="Example: lbctl shadow --cluster eu-1 --since 2026-11-21T13:00")(
        shadow
    )


@with_read_options()
def shadow(
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Only rounds since then, as 2026-11-21T13:00."
        ),
    ] = None,
    *,
    options: ReadOptions,
) -> None:
    """Compare a cluster's shadows with its own policy (real) in the same rounds.

    A shadow is a policy that decides and publishes nothing: \\[cluster.NAME.shadow.SHADOW] in the
    job's settings. Max usage is a mean over rounds: for real as reported, for a shadow as predicted
    with all its moves carried out. The table shadow_decisions has all decisions of shadows.
    """
    from lb_stream.query.lake import records, run

    begin = parse_time(since)
    begin_ms = 0 if begin is None else int(begin.timestamp() * 1000)
    rows = records(run(options.open_lake(), _QUERY, [options.cluster, begin_ms]))
    if options.emit_rows(rows, "policy"):
        return
    if not rows:
        note(
            "no shadow has decided a round"
            + (f" since {since}" if since else " yet: name some in [cluster.NAME.shadow.SHADOW]")
        )
    for name in dict.fromkeys(row["cluster"] for row in rows):
        mine = [row for row in rows if row["cluster"] == name]
        first, last = min(row["first_ms"] for row in mine), max(row["last_ms"] for row in mine)
        emit_rich(
            f"{name}, {clock(first)} to {clock(last)}",
            table(COLUMNS, list(map(_build_cells, mine)), right=COLUMNS[1:]),
            *_describe_policies(mine),
        )


def _build_cells(row: Row) -> tuple[str, ...]:
    usages = (_percent(row[name]) for name in ("max_usage", "max_usage_p95"))
    counts = (str(row[name]) for name in ("rounds", "passes", "moves"))
    over = "-" if row["max_over_mean"] is None else f"{row['max_over_mean']:.2f}"
    return (
        row["policy"],
        *counts,
        f"{row['moved_bytes_per_s'] / 1e6:.1f}",
        *usages,
        over,
        str(row["skipped"]),
        str(row["failed"]),
    )


def _describe_policies(rows: list[Row]) -> list[str]:
    """Describe the figures of each policy in sentences."""
    parts = []
    for row in rows:
        name = row["policy"]
        if name == "real":
            again = " (a dry run decides the same moves in each pass)" if row["dry_run"] else ""
            moves = (
                f"{row['moves']} moves decided{again}; {row['arrived']} bundles arrived at another "
                "broker for any reason"
            )
            parts.append(f"real: {row['strategies']}; {moves}")
        elif not row["rounds"]:
            parts.append(f"{name}: has finished no round yet")
        else:
            usage = (
                f"max usage {_percent(row['max_usage'])} on average, real "
                f"{_percent(row['real_max_usage'])} in the same rounds"
            )
            parts.append(
                f"{name}: {row['strategies']}; {usage}; {row['elsewhere']} bundles are now at "
                "another broker than in reality"
            )
        if row["skipped"]:
            parts.append(
                f"{name}: skipped in {row['skipped']} rounds: shadows need more time than "
                "stream.shadow_time_percent gives them"
            )
        if row["failed"]:
            parts.append(
                f"{name}: failed in {row['failed']} rounds, last with {row['last_failure']}"
            )
    return parts


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f} %"
