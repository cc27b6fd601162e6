"""`lbctl reports`: load reports from files."""

from __future__ import annotations

import gzip
import io
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    CliSettings,
    ConfigFile,
    Json,
    Set,
    check_cluster_name,
    load_cli_settings,
    require_kafka,
    require_topics,
)
from lb_stream.cli.shared.output import CommandError, emit, emit_json, note

if TYPE_CHECKING:
    from lb_stream.io.local.report_lines import Report

app = typer.Typer(
    name="reports", help="Send load reports from files to their topic.", no_args_is_help=True
)

SHOWN_FAILURES = 20


@app.callback()
def _group() -> None:
    """Send load reports from files to their topic."""


@app.command(epilog="Example: lbctl reports send captured.jsonl.gz --cluster eu-1 --pace 10")
def send(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines, plain or gzipped; - is stdin.")
    ],
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="NAME",
            help="The brokers' cluster. Default: the setting stream.default_cluster.",
            callback=check_cluster_name,
        ),
    ] = None,
    pace: Annotated[
        float | None,
        typer.Option(
            "--pace",
            metavar="FACTOR",
            min=0.001,
            help="1: at the times that the reports have; 10: ten times as fast. Default: as fast "
            "as possible. A job takes more than admission.records_per_second reports of a broker "
            "within a second for a storm, of which the newest counts.",
        ),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", metavar="HOST:PORT", help="The broker of reports that don't name one."
        ),
    ] = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Send the load report in each line of a file, byte for byte, to the reports topic.

    A line is a report, or a captured record with a report, its time and its broker. Lines that
    can't be sent are listed, and the rest is sent; the exit code is then 1.
    """
    given = load_cli_settings(config, broker_conf, set_, uses_current=False)
    bootstrap, topic = given.bootstrap, given.settings.topics.reports
    tally = Tally()
    began, code = time.monotonic(), 0
    with (
        _lines(file) as (lines, position, size),
        require_kafka(bootstrap, given),
        _progress(size, position) as advance,
        _sender(bootstrap, given, topic, tally) as post,
    ):
        try:
            _send_all(
                lines,
                cluster or given.settings.stream.default_cluster,
                broker,
                pace,
                tally,
                post,
                advance,
            )
        except KeyboardInterrupt:
            code = 130
    tally.seconds = round(time.monotonic() - began, 3)
    _report(tally, topic, bootstrap, json)
    raise typer.Exit(code or (1 if tally.failures else 0))


@dataclass
class Tally:
    """How many lines were sent, skipped or failed; `brokers` are the keys of sent records."""

    sent: int = 0
    skipped: int = 0
    brokers: set[str] = field(default_factory=set)
    failures: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0


Post = Callable[[int, str, bytes], None]
"""Gives one record to the producer: (line number, key, value)."""


def _send_all(
    lines: Iterator[bytes],
    cluster: str,
    broker: str | None,
    pace: float | None,
    tally: Tally,
    post: Post,
    advance: Callable[[], None],
) -> None:
    from lb_stream.io.local.report_lines import Unsendable, read_line

    keep_time = _pacer(pace)
    for number, line in _readable(lines, tally):
        advance()
        try:
            report = read_line(line, broker)
        except Unsendable as error:
            tally.failures.append((number, str(error)))
            continue
        if report is None:
            tally.skipped += 1
            continue
        keep_time(report)
        post(number, f"{cluster}/{report.broker}", report.value)


def _readable(lines: Iterator[bytes], tally: Tally) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers; a damaged archive's end is a failure."""
    number = 0
    try:
        for number, line in enumerate(lines, start=1):
            yield number, line
    except (OSError, EOFError, zlib.error) as error:
        tally.failures.append((number + 1, f"the rest of the file can't be read: {error}"))


def _pacer(pace: float | None) -> Callable[[Report], None]:
    """Return a function that waits until a report is due.

    A report is due at its distance in time from the first one, divided by the pace.
    """
    start: tuple[float, float] | None = None

    def wait(report: Report) -> None:
        nonlocal start
        if pace is None or report.at_ms is None:
            return
        start = start or (time.monotonic(), report.at_ms)
        due = start[0] + (report.at_ms - start[1]) / 1000 / pace
        time.sleep(max(0.0, due - time.monotonic()))

    return wait


@contextmanager
def _sender(bootstrap: str, given: CliSettings, topic: str, tally: Tally) -> Iterator[Post]:
    """Yield what sends a record; at the end, every record is in `tally`."""
    from kafka.errors import KafkaError

    from lb_stream.contracts.base import LARGEST_RECORD_BYTES
    from lb_stream.io.kafka.signing import SigningProducer
    from lb_stream.settings.signing import load_signer

    settings = {
        "acks": "all",
        "compression_type": "zstd",
        "linger_ms": 5,
        "max_request_size": LARGEST_RECORD_BYTES,
        "max_block_ms": 10_000,
    }
    require_topics(bootstrap, given, given.rights("Write", topic))
    options = settings | given.client_options(bootstrap)
    with SigningProducer(load_signer(given.settings.security), **options) as producer:

        def post(number: int, key: str, value: bytes) -> None:
            def arrived(_: object) -> None:
                tally.sent += 1
                tally.brokers.add(key)

            def lost(error: Exception) -> None:
                tally.failures.append((number, str(error)))

            try:
                future = producer.send(
                    topic, key=key.encode(), value=value, headers=[("kind", b"report")]
                )
            except KafkaError as error:  # too large, no broker
                lost(error)
            else:
                future.add_callback(arrived)
                future.add_errback(lost)

        try:
            yield post
        finally:
            producer.flush()


@contextmanager
def _lines(file: Path) -> Iterator[tuple[Iterator[bytes], Callable[[], int], int | None]]:
    """Yield a file's lines, a function that counts the bytes read, and the file's size.

    The size is None for stdin.
    """
    if str(file) == "-":
        yield iter(sys.stdin.buffer), lambda: 0, None
        return
    try:
        raw = file.open("rb")
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", code=2) from None
    with raw:
        packed = raw.peek(2)[:2] == b"\x1f\x8b"
        lines = io.BufferedReader(gzip.GzipFile(fileobj=raw)) if packed else raw
        yield iter(lines), raw.tell, file.stat().st_size


@contextmanager
def _progress(size: int | None, position: Callable[[], int]) -> Iterator[Callable[[], None]]:
    """Show a progress bar on stderr if it is a terminal; yield what to call for each line."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("sending"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[lines]} lines"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=size, lines=0)
        count = 0

        def advance() -> None:
            nonlocal count
            count += 1
            bar.update(task, completed=position() if size else 0, lines=count)

        yield advance


def _report(tally: Tally, topic: str, bootstrap: str, json: bool) -> None:
    failures = sorted(tally.failures)
    if json:
        failed = [{"line": number, "why": why} for number, why in failures]
        result = {
            "sent": tally.sent,
            "brokers": len(tally.brokers),
            "skipped": tally.skipped,
            "failed": failed,
            "seconds": tally.seconds,
        }
        emit_json({"topic": topic, "bootstrap_servers": bootstrap} | result)
        return
    for number, why in failures[:SHOWN_FAILURES]:
        note(f"line {number}: {why}")
    if len(failures) > SHOWN_FAILURES:
        note(f"and {len(failures) - SHOWN_FAILURES} more: --json names all")
    skipped = f"; lines that hold none: {tally.skipped}" if tally.skipped else ""
    unsent = f"; lines that could not be sent: {len(failures)}" if failures else ""
    emit(
        f"sent {tally.sent} reports of {len(tally.brokers)} brokers to {topic} at {bootstrap} in "
        f"{tally.seconds:.1f} s{skipped}{unsent}\n"
    )
