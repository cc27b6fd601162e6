"""`lbctl assess`: whether a cluster is uneven, why, and what could be done, in one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.assess.sources import (
    SourceOptions,
    record_kafka,
    record_pulsar,
    record_tables,
    with_source_options,
)
from lb_stream.cli.shared.admin_access import AdminAccess, with_admin_access
from lb_stream.cli.shared.options import (
    BrokerConf,
    CliSettings,
    ConfigFile,
    Json,
    Set,
    check_cluster_name,
)
from lb_stream.cli.shared.output import CommandError, emit_json, emit_line, note

if TYPE_CHECKING:
    from lb_stream.assess.assessment import Assessment

PARTIAL = 3
"""Exit code: the page is written, and brokers are missing in it."""
PARTS = 100
"""Steps of the progress that is shown."""
EPILOG = (
    "Example: lbctl assess pulsar http://broker:8080 --minutes 10; lbctl assess --reports "
    "assessment.jsonl; lbctl assess kafka --bootstrap kafka:9092 --cluster eu-1; lbctl assess "
    "tables .lb/tables · Exit codes: 0 written; 1 the source can't be read; 2 wrong usage or "
    "input; 3 written, without some brokers."
)


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("assess", epilog=EPILOG)(assess)


@with_admin_access
@with_source_options
def assess(
    access: AdminAccess,
    options: SourceOptions,
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
            help="The cluster's name. Default: its own, or the only one in tables.",
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

    Only reads: GET requests to the brokers' admin API, a topic, a job's tables, or a file. Writes
    one HTML page: how even each resource is, the hottest brokers and why, what the reports leave
    out, what is wrong in the balancer's settings, the moves that would help and what they cost, and
    the same span with other policies. --json: all figures as one object, and no page.
    docs/assess.md walks through it.
    """
    from lb_stream.io.without_pandas import keep_pandas_out

    keep_pandas_out()
    from lb_stream.assess.assessment import assess as assess_recording
    from lb_stream.assess.assessment import list_missing, read_cluster_settings
    from lb_stream.assess.recording import read_recording
    from lb_stream.io.local.progress import progress
    from lb_stream.settings.load import load

    given = load(config, broker_conf, set_ or ())
    kind = options.kind
    with progress("assessing", every=PARTS // 5) as show_progress:

        def on_progress(text: str, share: float) -> None:
            show_progress(text, int(share * PARTS), PARTS)

        path, url, origin = options.reports or record or html.with_suffix(".jsonl"), None, None
        match kind:
            case "pulsar":
                origin = url = record_pulsar(access, options, path, on_progress)
            case "kafka":
                of_kafka = CliSettings(given.settings, given.origins)
                origin = record_kafka(of_kafka, options, cluster, path)
            case "tables":
                cluster, origin = record_tables(options, cluster, path)
        recording = read_recording(path, broker)
        name = cluster or recording.cluster
        settings = read_cluster_settings(recording, given, name)
        found = assess_recording(recording, name, settings, on_progress, url, origin)
    _show(found, html, json)
    if missing := list(list_missing(found)):
        note(f"brokers without a report: {len(missing)}, such as {missing[0]}; the page says why")
        raise typer.Exit(PARTIAL)


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
    emit_line(f"wrote {html}; next:")
    for step in found.next_steps:
        emit_line(f"  {step.command}")
