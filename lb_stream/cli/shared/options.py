"""Options that commands share, and what follows from them: settings, the tables' folder, Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lb_stream.cli.shared.completion import complete_clusters
from lb_stream.cli.shared.output import CommandError, note

if TYPE_CHECKING:
    from lb_stream.access.roles import Right
    from lb_stream.contracts.settings import Settings, StreamSettings
    from lb_stream.settings.resolve import ResolvedSettings
    from lb_stream.store import Store

DEMO_TABLES = Path(".lb/demo/tables")
KAFKA_FOLDER = Path(".lb/kafka")
EMBEDDED_FOLDERS = (KAFKA_FOLDER, Path(".lb/demo/kafka"))
"""Data folders of the brokers that `lbctl kafka start` and the demo start."""

_PANEL = "Settings"
_BALANCER = "balancer."
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings in a TOML file (see lbctl config show). Default: those of the context.",
        rich_help_panel=_PANEL,
    ),
]
BrokerConf = Annotated[
    Path | None,
    typer.Option(
        "--broker-conf",
        metavar="FILE",
        help="A Pulsar broker.conf, whose settings --config overrides.",
        rich_help_panel=_PANEL,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting, which overrides the files; may be given several times.",
        rich_help_panel=_PANEL,
    ),
]
Try = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting to try, by Pulsar's name or this project's; may be given several times. "
        "Settings of sections other than balancer apply to lbctl itself.",
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print only JSON on stdout, for programs.",
        rich_help_panel=_PANEL,
    ),
]


class Format(StrEnum):
    """How rows are printed."""

    table = "table"
    json = "json"
    yaml = "yaml"
    csv = "csv"
    name = "name"


Output = Annotated[
    Format,
    typer.Option(
        "--output",
        "-o",
        help="Print rows as a table, as JSON (one object a line, like --json), as YAML or CSV, or "
        "only their names or ids, one a line.",
        rich_help_panel=_PANEL,
    ),
]
DataFolder = Annotated[
    Path, typer.Option("--data", metavar="FOLDER", help="The broker's data folder.")
]


def check_cluster_name(value: str | None) -> str | None:
    """Return a cluster's name. Raises typer.BadParameter if it has other characters."""
    if value is not None and not re.fullmatch(r"[A-Za-z0-9._-]+", value):
        raise typer.BadParameter("letters, digits, dots, dashes and underscores only")
    return value


def parse_time(text: str | None) -> datetime | None:
    """Return a time given on the command line. Raises typer.BadParameter."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r}: expected a time as 2026-11-21T13:00, local unless it ends with Z or +01:00"
        ) from None


def _ms(option: str, text: str | None) -> int | None:
    try:
        at = parse_time(text)
    except typer.BadParameter as error:
        raise CommandError(f"{option} {error.message}", 2) from None
    return None if at is None else round(at.timestamp() * 1000)


def parse_time_range(from_: str | None, to: str | None) -> tuple[int | None, int | None]:
    """Return begin and end of --from and --to, ms since the epoch. Raises CommandError."""
    begin, end = (_ms(option, text) for option, text in (("--from", from_), ("--to", to)))
    if begin is not None and end is not None and end <= begin:
        raise CommandError(f"--to {to}: expected a time after --from {from_}", 2)
    return begin, end


Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="Only this cluster.",
        callback=check_cluster_name,
        autocompletion=complete_clusters,
    ),
]


def split_settings(given: list[str] | None) -> tuple[dict[str, str], list[str]]:
    """Split the settings of `Try` into the balancer's, to be tried, and lbctl's own.

    Raises CommandError.
    """
    tried: dict[str, str] = {}
    own: list[str] = []
    for setting in given or []:
        name, equals, value = setting.partition("=")
        if not equals:
            raise CommandError(f"--set {setting}: expected KEY=VALUE", 2)
        if "." not in name or name.startswith(_BALANCER):
            tried[name.removeprefix(_BALANCER)] = value
        else:
            own.append(setting)
    return tried, own


@dataclass(frozen=True, slots=True)
class CliSettings:
    """The settings of one run of lbctl, and where each was set (section and key → origin)."""

    settings: Settings
    origins: dict[tuple[str, ...], str]
    _noted: set[str] = field(default_factory=set, compare=False)  # lines that have been written

    def of_cluster(self, cluster: str) -> ResolvedSettings:
        """Return one cluster's settings in force; "": a cluster without a section of its own."""
        from lb_stream.settings.resolve import resolve

        return resolve(self.settings.of_cluster(cluster))

    @property
    def tables(self) -> Store:
        """The tables' folder that is set, or the demo's where only the demo has run.

        Raises SettingError.
        """
        from lb_stream.store import tables_of

        return tables_of(self.stream)

    @property
    def stream(self) -> StreamSettings:
        """The stream's settings, with the tables' folder that is read and its checkpoint."""
        stream = self.settings.stream
        is_set = ("stream", "tables") in self.origins
        if is_set or Path(stream.tables).exists() or not DEMO_TABLES.exists():
            return stream
        line = f"reading the demo's tables in {DEMO_TABLES} (others: --set stream.tables=FOLDER)"
        if line not in self._noted:  # commands that wait read them again and again
            self._noted.add(line)
            note(line)
        checkpoint = DEMO_TABLES.parent / "checkpoint"
        return stream.model_copy(update={"tables": str(DEMO_TABLES), "checkpoint": str(checkpoint)})

    @property
    def bootstrap(self) -> str:
        """Kafka's bootstrap servers that are set, or those of a broker that lbctl has started."""
        if ("kafka", "bootstrap_servers") not in self.origins:
            from lb_stream.io.local.running_kafka import find_running_kafka

            for folder in EMBEDDED_FOLDERS:
                if running := find_running_kafka(folder):
                    note(
                        f"using the broker in {folder} at {running.bootstrap} (another: --set "
                        "kafka.bootstrap_servers=HOST:PORT)"
                    )
                    return running.bootstrap
        return self.settings.kafka.bootstrap_servers

    def client_options(self, bootstrap: str) -> dict[str, Any]:
        """Return the arguments of every kafka-python client."""
        from lb_stream.io.kafka.clients import FAST_RETRY, kafka_python_options

        return {
            "bootstrap_servers": bootstrap.split(","),
            **FAST_RETRY,
            **kafka_python_options(self.settings.kafka.options),
        }

    def rights(self, operation: str, *topics: str) -> list[Right]:
        """Return one right for each of these topics."""
        from lb_stream.access.roles import Right

        return [Right(operation, "topic", topic) for topic in topics]


def load_cli_settings(
    config: Path | None,
    broker_conf: Path | None,
    arguments: list[str] | None,
    *,
    uses_current: bool = True,
) -> CliSettings:
    """Read the settings of one run of lbctl, of the context if no file is given.

    `uses_current`: the current context counts, not only one that is chosen for this command. It
    doesn't for commands that make things up: they would send them to a real cluster's topics.

    Raises SettingError, CommandError.
    """
    from lb_stream.cli.shared.contexts import find_files
    from lb_stream.io.without_pandas import keep_pandas_out

    keep_pandas_out()
    from lb_stream.settings.load import load

    loaded = load(*find_files(config, broker_conf, uses_current=uses_current), arguments or ())
    for warning in loaded.warnings:
        note(f"warning: {warning}")
    return CliSettings(loaded.settings, loaded.origins)


@contextmanager
def require_kafka(
    bootstrap: str, given: CliSettings, rights: Sequence[Right] = ()
) -> Iterator[None]:
    """Raise CommandError if no Kafka broker answers, and for errors of Kafka's client inside.

    `rights` are those that are needed inside: an error names the right that is missing.
    """
    from lb_stream.io.kafka.reachable import describe_unreachable

    advice = (
        "start one with `lbctl kafka start`, or name yours: --set kafka.bootstrap_servers=HOST:PORT"
    )
    if (reasons := describe_unreachable(bootstrap)) is not None:
        raise CommandError(f"no Kafka broker answers ({reasons}): {advice}")
    import logging

    from kafka.errors import KafkaError

    from lb_stream.access.refusals import AccessRefusal, find_refusal
    from lb_stream.io.kafka.preflight import name_missing_rights

    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it raises its errors, too
    try:
        yield
    except AccessRefusal as refusal:
        raise CommandError(str(refusal), refusal.code) from refusal
    except KafkaError as error:
        options = given.settings.kafka.options
        if (found := find_refusal(bootstrap, options, error)) is not None:
            found = name_missing_rights(bootstrap, options, rights, found) if rights else found
            raise CommandError(str(found), found.code) from error
        raise CommandError(f"Kafka at {bootstrap}: {type(error).__name__}: {error}") from error


def require_topics(bootstrap: str, given: CliSettings, rights: Sequence[Right]) -> None:
    """Raise AccessRefusal if a right is missing, CommandError if a topic doesn't exist."""
    from lb_stream.io.kafka.preflight import require_rights

    if absent := require_rights(bootstrap, given.settings.kafka.options, rights):
        raise CommandError(f"there is no topic {', '.join(absent)}: run `lbctl topics create`")
