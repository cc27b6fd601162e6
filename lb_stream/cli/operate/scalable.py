"""`lbctl scalable`: scalable topics of Pulsar 5.0, their segments, and splits and merges of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.admin_access import AdminAccess, AnyAdminUrl, with_admin_access
from lb_stream.cli.shared.options import (
    BrokerConf,
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

if TYPE_CHECKING:
    from lb_stream.agent.pulsar.scalable import (
        AutoScaling,
        ClusterSurvey,
        Segment,
        SegmentChange,
    )

_CODES = "Exit codes: 0 done or shown, 1 refused or failed, 2 wrong usage."

_COLUMNS = ("id", "hashes", "state", "msg/s", "MB/s", "of bundle", "bundle, broker")
_RIGHT = ("id", "msg/s", "MB/s", "of bundle")

app = typer.Typer(
    name="scalable",
    no_args_is_help=True,
    help="Show scalable topics of Pulsar 5.0 with their segments' bundles and brokers; split and "
    "merge segments.",
)

Topic = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="The scalable topic, with or without topic://."),
]
Preview = Annotated[
    bool,
    typer.Option("--preview", help="Change nothing: show what would become of the segments."),
]


@app.callback()
def _group() -> None:
    """Show scalable topics; split and merge their segments."""


@app.command(
    "list", epilog="Example: lbctl scalable list shop/orders --admin-url http://broker-1:8080"
)
@with_admin_access
@with_read_options(cluster=False)
def list_(
    namespace: Annotated[str, typer.Argument(metavar="TENANT/NAMESPACE", help="The namespace.")],
    admin_url: AnyAdminUrl,
    access: AdminAccess,
    options: ReadOptions,
) -> None:
    """Show the names of a namespace's scalable topics."""
    options.check_settings()
    from lb_stream.agent.pulsar.scalable import list_scalable

    parts = namespace.split("/")
    if len(parts) != 2 or not all(parts):
        raise CommandError(f"{namespace}: expected TENANT/NAMESPACE", 2)
    with _failures():
        found = list_scalable(access.connect(admin_url), namespace)
    if options.emit_rows({"topic": topic} for topic in found):
        return
    for topic in found:
        emit_line(topic)
    if not found:
        note(f"{namespace} has no scalable topic")


@app.command(
    epilog="Example: lbctl scalable show topic://shop/orders/clicks --admin-url "
    "http://broker-1:8080"
)
@with_admin_access
@with_read_options(cluster=False)
def show(
    topic: Topic,
    admin_url: AnyAdminUrl,
    access: AdminAccess,
    options: ReadOptions,
) -> None:
    """Show a scalable topic's segments: hashes of keys, state, load, bundle and broker.

    Sealed segments are shown while they exist. `of bundle` is the segment's share of its bundle's
    messages or bytes, the larger of the two.
    """
    options.check_settings()
    with _failures():
        found = _survey(access, admin_url).read(_full_name(topic))
    answer = {"topic": found.topic, "epoch": found.epoch, "next_id": found.next_id}
    if options.emit_object(answer | {"segments": [_row(segment) for segment in found.segments]}):
        return
    sealed = len(found.segments) - len(found.active)
    emit_line(
        f"{found.topic}: active segments {len(found.active)}, sealed {sealed}, epoch {found.epoch}"
    )
    emit_rich(table(_COLUMNS, [_cells(segment) for segment in found.segments], right=_RIGHT))


@app.command(
    epilog="Example: lbctl scalable split topic://shop/orders/clicks --segment 3 --preview "
    f"--admin-url http://broker-1:8080 · {_CODES}"
)
@with_admin_access
def split(
    topic: Topic,
    admin_url: AnyAdminUrl,
    segment: Annotated[
        int, typer.Option("--segment", metavar="ID", min=0, help="The segment, by its number.")
    ],
    access: AdminAccess,
    preview: Preview = False,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Split a segment in the middle of its hashes. Its halves hash into bundles of their own.

    Pulsar does it at once; `lbctl scalable merge` takes it back.
    """
    load_cli_settings(config, broker_conf, set_)
    with _failures():
        survey = _survey(access, admin_url)
        change = survey.plan_split(survey.read(_full_name(topic)), segment)
        _apply(survey, change, preview, json)


@app.command(
    epilog="Example: lbctl scalable merge topic://shop/orders/clicks --segment 7 --segment 8 "
    f"--preview --admin-url http://broker-1:8080 · {_CODES}"
)
@with_admin_access
def merge(
    topic: Topic,
    admin_url: AnyAdminUrl,
    segment: Annotated[
        list[int],
        typer.Option("--segment", metavar="ID", min=0, help="A segment; given for both."),
    ],
    access: AdminAccess,
    preview: Preview = False,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Merge two active segments whose hashes touch into one.

    Pulsar does it at once; `lbctl scalable split` takes it back.
    """
    load_cli_settings(config, broker_conf, set_)
    if len(set(segment)) != 2:
        raise CommandError("--segment: expected two different segments", 2)
    with _failures():
        survey = _survey(access, admin_url)
        change = survey.plan_merge(survey.read(_full_name(topic)), segment)
        _apply(survey, change, preview, json)


def _survey(access: AdminAccess, url: str) -> ClusterSurvey:
    from lb_stream.agent.pulsar.scalable import ClusterSurvey

    return ClusterSurvey(access.connect(url))


def _full_name(topic: str) -> str:
    from lb_stream.agent.pulsar.scalable import require_scalable

    try:
        return require_scalable(topic)
    except ValueError as error:
        raise CommandError(str(error), 2) from None


@contextmanager
def _failures() -> Iterator[None]:
    """Raise CommandError for errors of Pulsar's; exit code 2 for a topic that doesn't exist."""
    from lb_stream.agent.adapter import BrokerError
    from lb_stream.agent.pulsar.scalable import UnknownTopic

    try:
        yield
    except UnknownTopic as error:
        raise CommandError(str(error), 2) from None
    except BrokerError as error:
        raise CommandError(str(error)) from None


def _apply(survey: ClusterSurvey, change: SegmentChange, preview: bool, json: bool) -> None:
    """Show a change, or make it and show what has become of the segments."""
    from lb_stream.agent.pulsar.scalable import make_change, read_auto_scaling

    children = change.children
    if not preview:
        children = make_change(survey, change)
    scaling = read_auto_scaling(survey.admin, change.topic.topic)
    if json:
        emit_json(
            {"topic": change.topic.topic, "kind": change.kind, "done": not preview}
            | {"parents": [_row(segment) for segment in change.parents]}
            | {"children": [_row(segment) for segment in children]}
            | {"auto_scaling": None if scaling is None else scaling.enabled}
        )
        return
    past = {"split": "split", "merge": "merged"}[change.kind]
    ids = " and ".join(str(segment.id) for segment in change.parents)
    noun, now = ("segment", "is") if len(change.parents) == 1 else ("segments", "are")
    verb = "would be" if preview else now
    emit_line(f"{change.topic.topic}: {noun} {ids} {verb} {past}")
    rows = [
        (word, *_cells(segment))
        for word, segments in (("from", change.parents), ("to", children))
        for segment in segments
    ]
    emit_rich(table(("", *_COLUMNS), rows, right=_RIGHT))
    for line in _explain(change, children, scaling, survey.admin.settings.url):
        emit_line(line)


def _explain(
    change: SegmentChange, children: Sequence[Segment], scaling: AutoScaling | None, url: str
) -> Iterator[str]:
    """Yield what a change means: where the load goes, what remains, how it is taken back."""
    before = {segment.place for segment in change.parents}
    after = {segment.place for segment in children}
    brokers = {place.broker for place in before if place is not None}
    if change.kind == "split":
        yield "Keys that hash evenly give each half about half of the load."
    if before == after:
        yield "The new segments are in the same bundle: it carries as much as before."
    elif brokers == {place.broker for place in after if place is not None}:
        yield "The load stays at the broker; its bundles carry it otherwise."
    if any(place is not None and place.broker is None for place in after):
        yield "A bundle without a broker gets one when Pulsar makes the segment."
    yield (
        "Sealed segments count as topics of their bundles until consumers have read them and "
        "Pulsar deletes them."
    )
    back = " ".join(f"--segment {segment.id}" for segment in children)
    other = "merge" if change.kind == "split" else "split"
    yield (f"To take it back: lbctl scalable {other} {change.topic.topic} {back} --admin-url {url}")
    if change.kind == "merge" and not _are_halves(change.parents, children):
        yield "A split cuts in the middle: its halves will not be the segments that were merged."
    if scaling is not None and scaling.enabled:
        yield (
            f"Pulsar splits and merges this topic too: it merges segments below "
            f"{scaling.merge_msgs_per_s:g} msg/s in after {scaling.merge_after_s:g} s, and splits "
            f"them above {scaling.split_msgs_per_s:g} msg/s in (autoScalePolicy)."
        )


def _are_halves(parents: Sequence[Segment], children: Sequence[Segment]) -> bool:
    """Return whether a split of the merged segment would give its parents' hashes again."""
    halves = children[0].name.halves(next_id=0)
    return {half.range_text for half in halves} == {each.name.range_text for each in parents}


def _row(segment: Segment) -> dict[str, object]:
    """Return a segment for programs."""
    place, load = segment.place, segment.load
    return {
        "id": segment.id,
        "topic": segment.topic,
        "hashes": segment.name.range_text,
        "state": "active" if segment.is_active else "sealed",
        "parents": list(segment.parents),
        "children": list(segment.children),
        "bundle": None if place is None else place.bundle,
        "broker": None if place is None else place.broker,
        "msgs_per_s": None if load is None else load.msgs_per_s,
        "msgs_share_ratio": None if load is None else load.msgs_share_ratio,
        "bytes_per_s": None if load is None else load.bytes_per_s,
        "bytes_share_ratio": None if load is None else load.bytes_share_ratio,
    }


def _cells(segment: Segment) -> tuple[object, ...]:
    """Return a segment's line of a table; bundles are named by their ranges."""
    place, load = segment.place, segment.load
    figures, bounds, broker = ("–", "–", "–"), "–", "–"
    if load is not None:
        share = max(load.msgs_share_ratio, load.bytes_share_ratio)
        figures = (f"{load.msgs_per_s:.0f}", f"{load.bytes_per_s / 1e6:.2f}", f"{share:.0%}")
    if place is not None:
        bounds, broker = place.bundle.rpartition("/")[2], place.broker or "no broker"
    return (
        segment.id,
        segment.name.range_text,
        "active" if segment.is_active else "sealed",
        *figures,
        styled(bounds, broker),
    )
