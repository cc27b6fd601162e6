"""Where the load reports of an assessment come from: a file, a cluster, a topic or a job's tables.

What is read becomes a recording, from which the page is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.grouped_options import CliCommand, group_options, read_parameters
from lb_stream.cli.shared.options import CliSettings, require_kafka
from lb_stream.cli.shared.output import CommandError, note
from lb_stream.cli.shared.spans import parse_duration

if TYPE_CHECKING:
    from lb_stream.cli.shared.admin_access import AdminAccess

PULSAR, KAFKA, TABLES = "pulsar", "kafka", "tables"
USAGE = (
    f"expected one of: {PULSAR} URL, as in `lbctl assess pulsar http://broker:8080`; {KAFKA} "
    f"--bootstrap HOST:PORT --cluster NAME; {TABLES} FOLDER; --reports FILE"
)
MINUTES = 10.0
SINCE = "1h"
_PULSAR, _KAFKA, _TABLES = "Of a Pulsar cluster", "Of a topic", "Of a job's tables"

OnProgress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options that say what is read. None: not given."""

    words: Sequence[str]
    reports: Path | None
    minutes: float | None
    every: float | None
    max_requests: float | None
    bootstrap: str | None
    topic: str | None
    from_beginning: bool
    since: str | None

    @property
    def kind(self) -> str | None:
        """Return the kind of source; None: a file. Raises CommandError."""
        match self.words:
            case [] if self.reports is not None:
                kind = None
            case [("pulsar" | "tables") as kind, _] | [("kafka") as kind] if self.reports is None:
                pass
            case _:
                raise CommandError(f"{' '.join(self.words) or 'no source'}: {USAGE}", 2)
        for option, value, kinds in (
            ("--minutes", self.minutes, (PULSAR, KAFKA)),
            ("--every", self.every, (PULSAR,)),
            ("--max-requests", self.max_requests, (PULSAR,)),
            ("--bootstrap", self.bootstrap, (KAFKA,)),
            ("--topic", self.topic, (KAFKA,)),
            ("--from-beginning", self.from_beginning or None, (KAFKA,)),
            ("--since", self.since, (TABLES,)),
        ):
            if value is not None and kind not in kinds:
                raise CommandError(
                    f"{option} is for {' and '.join(kinds)} alone, not for {kind or '--reports'}", 2
                )
        if self.from_beginning and self.minutes is not None:
            raise CommandError("--minutes and --from-beginning: give one of them", 2)
        return kind


def with_source_options(command: CliCommand) -> CliCommand:
    """Replace a command's parameter `options` by the options that say what is read."""
    shared = read_parameters(_read_options)
    return group_options(command, "options", _read_options, shared, shared)


def _read_options(
    source: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[pulsar URL|kafka|tables FOLDER]",
            help="What is read: the admin API of any broker of a Pulsar cluster, "
            "http(s)://HOST:PORT; the topic to which agents report; the tables of a job.",
        ),
    ] = None,
    reports: Annotated[
        Path | None,
        typer.Option(
            "--reports",
            metavar="FILE",
            help="Load reports in a file instead, one on a line, as brokers emit them or as "
            "captured; may be gzipped.",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            metavar="N",
            min=0.0,
            help="How long to read the cluster's reports; of a topic, those of how many last "
            "minutes. Default: 10.",
        ),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            "--every",
            metavar="S",
            min=1.0,
            help="Seconds between reports of a broker. Default: 30.",
            rich_help_panel=_PULSAR,
        ),
    ] = None,
    max_requests: Annotated[
        float | None,
        typer.Option(
            "--max-requests",
            metavar="N",
            min=0.1,
            help="Requests a second to the cluster. Default: 10.",
            rich_help_panel=_PULSAR,
        ),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            metavar="HOST:PORT",
            help="Kafka's servers. Default: the setting kafka.bootstrap_servers.",
            rich_help_panel=_KAFKA,
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="NAME",
            help="The reports' topic. Default: the setting topics.reports.",
            rich_help_panel=_KAFKA,
        ),
    ] = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning",
            help="Read all that the topic holds, instead of the last minutes.",
            rich_help_panel=_KAFKA,
        ),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="How much of the history's end to read, as 30m or 2h. Default: 1h.",
            rich_help_panel=_TABLES,
        ),
    ] = None,
) -> SourceOptions:
    return SourceOptions(
        source or (),
        reports,
        minutes,
        every,
        max_requests,
        bootstrap,
        topic,
        from_beginning,
        since,
    )


@contextmanager
def open_recording(path: Path) -> Iterator[Callable[[str], object]]:
    """Give a function that writes a line; an earlier recording stays until this one is whole."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            yield file.write
        part.replace(path)
    except OSError as error:
        if error.filename is None:
            raise
        raise CommandError(f"{path}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    note(f"wrote {path}, which lbctl assess --reports reads")


def record_pulsar(
    access: AdminAccess, options: SourceOptions, path: Path, on_progress: OnProgress
) -> str:
    """Record a cluster by its admin API; return the address. Raises CommandError.

    Ctrl-C ends it early, with what there is by then.
    """
    from lb_stream.agent.adapter import BrokerError
    from lb_stream.agent.pulsar.recorder import Pace, ReadOnlyClient, record
    from lb_stream.cli.assess.advice import advise
    from lb_stream.io.local.signals import StopRequest

    url = options.words[1]
    minutes = MINUTES if options.minutes is None else options.minutes
    client = ReadOnlyClient(access.connect(url).settings, Pace(options.max_requests or 10.0))
    try:
        with open_recording(path) as write, StopRequest() as stop:
            recorded = record(
                client, minutes, options.every or 30.0, write, on_progress, lambda: bool(stop)
            )
    except BrokerError as error:
        raise CommandError(f"{error}{advise(error, client.settings)}") from None
    for line in recorded.notes:
        note(line)
    return url


def record_kafka(
    given: CliSettings, options: SourceOptions, cluster: str | None, path: Path
) -> str:
    """Record a topic's reports; return what was read, for people. Raises CommandError, QueryError.

    They are those of the last minutes, or all.
    """
    from lb_stream.assess.topic_recorder import record_topic

    if cluster is None:
        raise CommandError("--cluster is needed: several clusters may report in one topic", 2)
    bootstrap = options.bootstrap or given.bootstrap
    topic = options.topic or given.settings.topics.reports
    minutes = MINUTES if options.minutes is None else options.minutes
    since_ms = 0 if options.from_beginning else round(1000 * (time.time() - 60 * minutes))
    with require_kafka(bootstrap, given, given.rights("Read", topic)):
        try:
            with open_recording(path) as write:
                left_out = record_topic(
                    given.client_options(bootstrap),
                    topic,
                    cluster,
                    since_ms,
                    given.settings.stream.default_cluster,
                    write,
                )
        except TimeoutError as error:
            raise CommandError(f"Kafka at {bootstrap}: {error}: try again later") from None
    for line in left_out:
        note(line)
    return f"the topic {topic} at {bootstrap}"


def record_tables(options: SourceOptions, cluster: str | None, path: Path) -> tuple[str, str]:
    """Record the history in a job's tables; return the cluster's name and what was read.

    Raises MissingPackageError, QueryError, CommandError.
    """
    from lb_stream.io.messages.missing_packages import require_extras

    require_extras("lbctl assess tables", "cli")
    from lb_stream.assess import tables_recorder
    from lb_stream.store import Store

    span_ms = parse_duration("--since", options.since or SINCE, 1)
    folder = Store.at(options.words[1], setting="tables")
    try:
        with open_recording(path) as write:
            name = tables_recorder.record_tables(folder, cluster, span_ms, write)
    except OSError as error:
        if error.errno is not None:
            raise
        # an object store that can't be reached, which has several lines of reasons
        reasons = " ".join(str(error).split())
        raise CommandError(f"{folder} can't be read: {reasons}") from None
    return name, f"the tables in {folder}"
