"""`lbctl assess`: whether a cluster is uneven, why, and what could be done, in one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.admin_access import AdminAccess, with_admin_access
from lb_stream.cli.shared.options import (
    BrokerConf,
    ConfigFile,
    Json,
    Set,
    check_cluster_name,
)
from lb_stream.cli.shared.output import CommandError, emit_json, emit_line, note

if TYPE_CHECKING:
    from collections.abc import Callable

    from lb_stream.agent.pulsar.recorder import ReadOnlyClient
    from lb_stream.assess.assessment import Assessment

PARTIAL = 3
"""Exit code: the page is written, and brokers are missing in it."""
PARTS = 100
"""Steps of the progress that is shown."""
PULSAR = "pulsar"
EPILOG = (
    "Example: lbctl assess pulsar http://broker:8080 --minutes 10; lbctl assess --reports "
    "assessment.jsonl · Exit codes: 0 written; 1 the cluster can't be read; 2 wrong usage or "
    "input; 3 written, without some brokers."
)


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("assess", epilog=EPILOG)(assess)


@with_admin_access
def assess(
    access: AdminAccess,
    source: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[pulsar URL]",
            help="The admin API of any broker of a Pulsar cluster, http(s)://HOST:PORT.",
        ),
    ] = None,
    reports: Annotated[
        Path | None,
        typer.Option(
            "--reports",
            metavar="FILE",
            help="Load reports instead of a cluster, one on a line, as brokers emit them or as "
            "captured; may be gzipped.",
        ),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option(
            "--minutes", metavar="N", min=0.0, help="How long to read the cluster's reports."
        ),
    ] = 10.0,
    every: Annotated[
        float,
        typer.Option("--every", metavar="S", min=1.0, help="Seconds between reports of a broker."),
    ] = 30.0,
    max_requests: Annotated[
        float,
        typer.Option(
            "--max-requests", metavar="N", min=0.1, help="Requests a second to the cluster."
        ),
    ] = 10.0,
    html: Annotated[
        Path, typer.Option("--html", metavar="FILE", help="Where to write the page.")
    ] = Path("assessment.html"),
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="FILE",
            help="Where to keep what was read, for --reports. Default: beside the page, as .jsonl.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="NAME",
            help="The cluster's name. Default: its own.",
            callback=check_cluster_name,
        ),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="HOST:PORT", help="The sender of reports that name none."),
    ] = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Assess a cluster from its load reports alone, without Kafka, Java or Spark.

    Only reads: GET requests to the brokers' admin API, or a file. Writes one HTML page: how even
    each resource is, the hottest brokers and why, what the reports leave out, what is wrong in the
    balancer's settings, the moves that would help and what they cost, and the same span with other
    policies. --json: all figures as one object, and no page. docs/assess.md walks through it.
    """
    from lb_stream.io.without_pandas import keep_pandas_out

    keep_pandas_out()
    from lb_stream.assess.assessment import assess as assess_recording
    from lb_stream.assess.assessment import list_missing, read_cluster_settings
    from lb_stream.assess.recording import read_recording
    from lb_stream.io.local.progress import progress
    from lb_stream.settings.load import load

    given = load(config, broker_conf, set_ or ())
    url = _find_url(source, reports)
    with progress("assessing", every=PARTS // 5) as show_progress:

        def on_progress(text: str, share: float) -> None:
            show_progress(text, int(share * PARTS), PARTS)

        if url is not None:
            reports = record or html.with_suffix(".jsonl")
            _record(access, url, reports, (minutes, every, max_requests), on_progress)
        assert reports is not None
        recording = read_recording(reports, broker)
        name = cluster or recording.cluster
        settings = read_cluster_settings(recording, given, name)
        found = assess_recording(recording, name, settings, on_progress, url)
    _show(found, html, json)
    if missing := list(list_missing(found)):
        note(f"brokers without a report: {len(missing)}, such as {missing[0]}; the page says why")
        raise typer.Exit(PARTIAL)


def _find_url(source: list[str] | None, reports: Path | None) -> str | None:
    """Return the cluster's address; None: a file is read. Raises CommandError."""
    if source and source[0] == PULSAR and len(source) == 2 and reports is None:
        return source[1]
    if not source and reports is not None:
        return None
    raise CommandError(
        f"{' '.join(source or ()) or 'no cluster'}: expected either {PULSAR} URL, as in "
        "`lbctl assess pulsar http://broker:8080`, or --reports FILE",
        2,
    )


def _record(
    access: AdminAccess,
    url: str,
    path: Path,
    limits: tuple[float, float, float],
    on_progress: Callable[[str, float], None],
) -> None:
    """Record a cluster into a file. `limits`: minutes, seconds between reports, requests a second.

    Ctrl-C ends it early, with what there is by then. Raises CommandError.
    """
    from lb_stream.agent.adapter import BrokerError
    from lb_stream.agent.pulsar.recorder import Pace, ReadOnlyClient, record
    from lb_stream.io.local.signals import StopRequest

    minutes, every_s, per_s = limits
    client = ReadOnlyClient(access.connect(url).settings, Pace(per_s))
    part = path.with_name(f"{path.name}.part")  # an earlier recording stays until this one is whole
    try:
        with part.open("w", encoding="utf-8") as file, StopRequest() as stop:
            recorded = record(client, minutes, every_s, file.write, on_progress, lambda: bool(stop))
        part.replace(path)
    except BrokerError as error:
        part.unlink(missing_ok=True)
        raise CommandError(f"{error}{_advise(str(error), client)}") from None
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    for line in recorded.notes:
        note(line)
    note(f"wrote {path}, which lbctl assess --reports reads")


def _advise(text: str, client: ReadOnlyClient) -> str:
    """Return what to do about an error, after its text; empty where the text says it."""
    if "no answer in time" in text:
        return f" ({client.settings.read_timeout_s:g} s): raise --read-timeout"
    other = ("expected JSON", "expected a JSON", "answers 404")
    unreached = text.startswith("GET ") and ("refused" in text or "closed connection" in text)
    if unreached or any(sign in text for sign in other):
        return ": give the admin API of a broker, which is at port 8080 as a rule"
    return ""


def _show(found: Assessment, html: Path, json: bool) -> None:
    """Print the assessment as JSON, or write the page and print the verdict."""
    if json:
        emit_json(found.to_dict())
        return
    from lb_stream.cli.assess.page import page

    try:
        html.write_text(page(found), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{html}: {error.strerror}") from None
    emit_line(found.verdict)
    for doubt in found.observed.doubts:
        emit_line(f"  doubt: {doubt.description}")
    emit_line(f"wrote {html}")
