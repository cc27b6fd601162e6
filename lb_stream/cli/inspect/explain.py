"""`lbctl explain`: why something was decided, or why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.broker_names import require_broker_name
from lb_stream.cli.shared.completion import (
    complete_brokers,
    complete_brokers_and_bundles,
    complete_bundles,
    complete_decisions,
    complete_rounds,
)
from lb_stream.cli.shared.output import (
    CommandError,
    emit,
    emit_line,
    emit_rich,
    note,
    note_whole_id,
    styled,
    table,
)
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock
from lb_stream.query.wording import DRY_RUN, NOTHING_DECIDED, PENDING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lb_stream.query.explanations import BrokerPart, DecisionExplanation
    from lb_stream.query.lake import Lake, Row
    from lb_stream.query.why_not import NoMoveExplanation


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command(
        "explain",
        epilog="Example: lbctl explain eu-1:42:0 · lbctl explain --why-not "
        "acme/orders/0x00000000_0x40000000",
    )(explain)


@with_read_options(watch=False)
def explain(
    decision: Annotated[
        str | None,
        typer.Argument(
            metavar="[DECISION]",
            help="A decision's id, CLUSTER:SEQ:ORDINAL, or its begin; or `last`.",
            autocompletion=complete_decisions,
        ),
    ] = None,
    bundle: Annotated[
        str | None,
        typer.Option(
            "--bundle",
            metavar="BUNDLE",
            help="Explain the last decisions about a bundle.",
            autocompletion=complete_bundles,
        ),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            metavar="BROKER",
            help="Explain the last moves from and to a broker.",
            autocompletion=complete_brokers,
        ),
    ] = None,
    round_: Annotated[
        str | None,
        typer.Option(
            "--round",
            metavar="CLUSTER:SEQ",
            help="Show what a round saw, decided and refused.",
            autocompletion=complete_rounds,
        ),
    ] = None,
    why_not: Annotated[
        str | None,
        typer.Option(
            "--why-not",
            metavar="BUNDLE|BROKER",
            help="Explain what keeps a bundle where it is, or a broker hot.",
            autocompletion=complete_brokers_and_bundles,
        ),
    ] = None,
    last: Annotated[
        int,
        typer.Option(
            "--last",
            "-n",
            metavar="N",
            min=1,
            help="With --bundle and --broker: how many decisions are shown.",
        ),
    ] = 10,
    *,
    options: ReadOptions,
) -> None:
    """Explain a decision, or why there is none, from the tables.

    A decision's explanation has its reason, its candidates, its expected and its actual effect.
    """
    questions = {
        "DECISION": decision,
        "--bundle": bundle,
        "--broker": broker,
        "--round": round_,
        "--why-not": why_not,
    }
    if sum(value is not None for value in questions.values()) != 1:
        raise CommandError(f"expected one of {', '.join(questions)}", code=2)
    lake, cluster = options.open_lake(may_be_stale=True), options.cluster
    if decision is not None:
        _show_decision(lake, decision, options)
    elif round_ is not None:
        _show_round(lake, round_, options)
    elif why_not is not None:
        _show_why_not(lake, *_find_bundle_or_broker(lake, why_not, options), options)
    elif broker is not None:
        name = require_broker_name(options.given, cluster, broker)
        _show_about(lake, "broker", name, last, options)
    else:
        _show_about(lake, "bundle", _find_bundle(lake, str(bundle), cluster), last, options)


def _show_decision(lake: Lake, decision: str, options: ReadOptions) -> None:
    from lb_stream.query.explanations import explain_decision, explain_last
    from lb_stream.query.past.names import find_decision

    if decision == "last":
        found = explain_last(lake, options.cluster)
        if found is None:
            raise CommandError(NOTHING_DECIDED)
    else:
        whole = find_decision(lake, decision, options.cluster)
        note_whole_id(decision, whole)
        found = explain_decision(lake, whole)
    if not options.emit_object(found.to_dict()):
        emit_rich(*_render_decision(found))


# --- screens ---


def _render_decision(found: DecisionExplanation) -> list[RenderableType]:
    row, explain = found.decision, found.decision["explain"]
    unit = explain.get("unit")
    facts = [
        ("decision", f"{row['decision_id']}, {row['kind']}, {clock(row['issued_ms'])}"),
        ("strategy", f"{row['strategy']}, rule {row['rule']}, reason {row['reason']}"),
        *(
            (name, figure(explain[name], unit))
            for name in ("saw", "average", "limit")
            if explain.get(name) is not None
        ),
        ("outcome", _describe_outcome(row)),
        *((("real cost", _describe_cost(row, found.cost)),) if found.cost else ()),
        *_plan_facts(explain),
    ]
    if row["children"]:
        facts.append(("children", ", ".join(row["children"])))
    if found.follows:
        facts.append(("follows", found.follows))
    if found.followed_by:
        facts.append(("followed by", found.followed_by))
    lines: list[RenderableType] = [
        found.sentence,
        "",
        *(f"{name:<12} {value}" for name, value in facts),
    ]
    if any(part.before or part.after for part in found.parts):
        heading = "The brokers as that round saw them, and once its moves had ended:"
        lines += ["", styled((heading, "bold")), _loads_table(found.parts, unit)]
        if explain.get("expected_after") is not None:
            counted = (
                f", with all {found.moves} moves of the round from it" if found.moves > 1 else ""
            )
            lines.append(
                styled(
                    (
                        f"(expected: by {row['strategy']}'s own measure, which may be "
                        f"smoothed{counted})",
                        "dim",
                    )
                )
            )
    if explain.get("candidates"):
        in_unit = f" ({unit})" if unit and unit != "ratio" else ""
        heading = f"Candidates, the lowest score first{in_unit}:"
        lines += ["", styled((heading, "bold")), _candidates_table(row, explain["candidates"])]
    return lines


def _plan_facts(explain: Row) -> Iterator[tuple[str, str]]:
    """Yield what a planning strategy says about the move and its plan."""
    if explain.get("cost") is not None:
        yield "cost", f"{explain['cost']:.2f} (1: the average bundle's)"
    if explain.get("client_seconds") is not None:
        yield "clients lose", figure(explain["client_seconds"], "client-seconds")
    if explain.get("gain") is not None:
        yield "gain", f"{figure(explain['gain'], explain.get('unit'))} off its source"
    if explain.get("plan_moves") is not None:
        yield "plan", f"{explain['plan_moves']} moves, {explain['plan_fewest']} at least are needed"
    if explain.get("plan") is not None:
        yield "with splits", _describe_expectation(explain)


def _describe_expectation(explain: Row) -> str:
    """Describe what the plan with splits that a decision belongs to is expected to reach."""
    before, unsplit, split, after = (
        figure(explain[f"plan_max_{moment}"], "ratio")
        for moment in ("before", "unsplit", "split", "after")
    )
    return (
        f"plan {explain['plan']}: max usage {before}, {split} after its splits alone, {after} "
        f"after its moves; {unsplit} after the best moves without splits"
    )


def _describe_outcome(row: Row) -> str:
    """Describe how a decision ended, and in which round."""
    if row["dry_run"]:
        return DRY_RUN
    if row["outcome"] is None:
        return f"{PENDING} until {clock(row['expires_ms'])}"
    return (
        f"{row['outcome']} in {row['took_ms'] / 1000:.1f} s, round {row['ended_seq']}: "
        f"{row['detail']}"
    )


def _describe_cost(decision: Row, cost: Row) -> str:
    if cost["unserved_s"] is not None:
        parts = [f"{cost['unserved_s']:.1f} s unserved"]
    elif decision["outcome"] == "confirmed" and decision["destination"] is not None:
        parts = ["the tables don't show how long it was unserved"]
    else:
        parts = ["no report has shown the bundle at a broker yet"]
    if cost["clients"] is None:
        return f"{parts[0]}; bundle_history lacks its clients and traffic"
    parts.append(f"{cost['clients']:,} client{'' if cost['clients'] == 1 else 's'} disturbed")
    parts += [] if cost["client_s"] is None else [f"{cost['client_s']:,.0f} client-seconds"]
    parts += [] if cost["bytes_per_s"] is None else [figure(cost["bytes_per_s"], "bytes/s")]
    return ", ".join(parts)


def _loads_table(parts: tuple[BrokerPart, ...], unit: str | None) -> RenderableType:
    rows = []
    for part in parts:
        expected = "" if part.expected is None else figure(part.expected, unit)
        before, after = (
            _figures(load) if load else ("?",) * 4 for load in (part.before, part.after)
        )
        rows.append((part.broker, part.role, "usage", before[0], expected, after[0]))
        rows += [
            ("", "", name, before[at], "", after[at])
            for at, name in enumerate(("MB/s", "msg/s", "bundles"), start=1)
        ]
    return table(
        ("broker", "as", "", "before", "expected", "after"),
        rows,
        right=("before", "expected", "after"),
    )


def _candidates_table(row: Row, candidates: list[Row]) -> RenderableType:
    from lb_stream.query.wording import explain_exclusion

    rows = []
    for candidate in candidates:
        rule = candidate["refused_by"]
        score = "-" if candidate["score"] is None else f"{candidate['score']:.6g}"
        text = "chosen" if candidate["broker"] == row["destination"] else ""
        if rule:
            text = f"{rule}: {explain_exclusion(rule)}"
        rows.append((candidate["broker"], score, text))
    return table(("broker", "score", ""), rows, right=("score",))


def _show_about(lake: Lake, column: str, value: str, last: int, options: ReadOptions) -> None:
    """Show decisions and refusals about a bundle or a broker; `column` says which of them."""
    from lb_stream.query.explanations import (
        build_explanation,
        load_decisions_about,
        load_refusals_about,
        require_broker,
    )

    cluster = options.cluster
    rows = load_decisions_about(lake, column, value, cluster, last)
    condition = "list_contains(subjects, $1)" if column == "bundle" else "broker = $1"
    refusals = load_refusals_about(
        lake, f"{condition} AND ($2 IS NULL OR cluster = $2)", [value, cluster]
    )
    found = [build_explanation(lake, row) for row in rows]
    if column == "broker" and not found and not refusals:
        require_broker(lake, value, cluster)
    answer: Row = {column: value, "decisions": [entry.to_dict() for entry in found]}
    if options.emit_object(answer | {"refusals": refusals}):
        return
    if not found and not refusals:
        hint = f"; why not: lbctl explain --why-not {value}" if column == "bundle" else ""
        note(f"nothing was decided about {value}, and nothing refused{hint}")
    for entry in found:
        emit_line(
            f"{clock(entry.decision['issued_ms'])} {entry.decision['decision_id']}: "
            f"{entry.sentence}"
        )
        emit("\n")
    _show_refusals(refusals)
    if len(found) == last:
        note(f"the last {last}: -n N shows more")


def _show_refusals(refusals: list[Row]) -> None:
    if refusals:
        emit_rich(
            "Refused:",
            table(
                ("rule", "broker", "times", "last", "saw", "limit", "why"),
                [_refusal_cells(row) for row in refusals],
                right=("times",),
            ),
        )


def _refusal_cells(row: Row) -> tuple[str, ...]:
    saw = [
        figure(value, row["unit"])
        for value in dict.fromkeys((row["least"], row["greatest"]))
        if value is not None
    ]
    limit = "-" if row["limit"] is None else figure(row["limit"], row["unit"])
    return (
        row["rule"],
        row["broker"] or "-",
        str(row["times"]),
        f"round {row['last_seq']}",
        " to ".join(saw) or "-",
        limit,
        row["why"],
    )


def _show_round(lake: Lake, text: str, options: ReadOptions) -> None:
    from lb_stream.query.explanations import explain_round
    from lb_stream.query.wording import describe_outcome

    cluster, _, number = text.rpartition(":")
    if not cluster or not number.isdigit():
        raise CommandError(f"--round {text}: expected CLUSTER:SEQ, such as eu-1:42", code=2)
    found = explain_round(lake, cluster, int(number))
    if options.emit_object(found):
        return
    # the round, and what it saw
    caught_up = (
        ""
        if found["inputs"].get("caught_up", True)
        else ", still reading what was there at the start"
    )
    emit_line(
        f"Round {number} of {cluster} at {clock(found['now_ms'])}, epoch {found['epoch']}, batch "
        f"{found['batch_id']}{caught_up}"
    )
    if found["error"]:
        emit(f"It failed, nothing was decided:\n{found['error']}\n")
    if found["brokers"]:
        rows = [
            (broker["broker"], "" if broker["alive"] else "dead", *_figures(broker))
            for broker in found["brokers"]
        ]
        emit_rich(
            "\nIt saw:",
            table(
                ("broker", "", "usage", "MB/s", "msg/s", "bundles"),
                rows,
                right=("usage", "MB/s", "msg/s", "bundles"),
            ),
        )
    # outcomes, decisions, refusals
    if found["outcomes"]:
        emit("\nEarlier decisions that ended in it:\n")
    for outcome in found["outcomes"]:
        emit_line(
            f"{outcome['outcome']}: {outcome['decision_id']} {outcome['bundle']}: "
            f"{outcome['detail']}"
        )
    if found["decisions"]:
        emit("\nIt decided:\n")
        for decision in found["decisions"]:
            brokers = " → ".join(filter(None, (decision["source"], decision["destination"])))
            emit_line(
                f"{decision['decision_id']} {decision['kind']} {decision['bundle']} {brokers}, "
                f"{decision['rule']}: {describe_outcome(decision)}"
            )
    else:
        emit("\nIt decided nothing.\n")
    _show_refusals(found["refusals"])


def _figures(load: Row) -> tuple[str, str, str, str]:
    return (
        figure(load["usage_ratio"], "ratio"),
        f"{(load['bytes_per_s'] or 0) / 1e6:.2f}",
        f"{load['msgs_per_s'] or 0:.0f}",
        str(load["bundles"]),
    )


def _find_bundle(lake: Lake, given: str, cluster: str | None, live: bool = False) -> str:
    """Find a bundle by its name or a part of it; a note says which bundle a part stands for."""
    from lb_stream.query.past.names import find_bundle

    bundle = find_bundle(lake, given, cluster, live=live)
    note_whole_id(given, bundle)
    return bundle


def _find_bundle_or_broker(
    lake: Lake, name: str, options: ReadOptions
) -> tuple[str | None, str | None]:
    """Find a bundle, else a broker, by its name or a part of it, such as a bundle's tenant."""
    from lb_stream.query.past.names import find_fitting_bundles

    cluster = options.cluster
    if "/" in name:
        return _find_bundle(lake, name, cluster, live=True), None
    try:
        return None, require_broker_name(options.given, cluster, name)
    except CommandError:
        if not find_fitting_bundles(lake, f"{name}/", cluster, live=True):
            raise
        return _find_bundle(lake, f"{name}/", cluster, live=True), None


def _show_why_not(lake: Lake, bundle: str | None, broker: str | None, options: ReadOptions) -> None:
    from lb_stream.query.status_facts import gather_job_facts
    from lb_stream.query.why_not import explain_no_move

    facts = gather_job_facts(lake, options.given.tables, options.given.settings)
    found: NoMoveExplanation = explain_no_move(
        lake, facts, options.cluster, bundle=bundle, broker=broker
    )
    if options.emit_object(found.to_dict()):
        return
    rows = [
        ("keeps it" if check.blocks else "", check.name, check.description)
        for check in found.checks
    ]
    emit_rich(found.sentence, "", table(("", "checked", "found"), rows))
    if found.refusals:
        emit("\n")
        _show_refusals(list(found.refusals))
