"""The options of readers, commands that show rows: of which tables and cluster, in which form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lb_stream.cli.shared.grouped_options import CliCommand, group_options, read_parameters
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
from lb_stream.cli.shared.output import emit_object, emit_rows
from lb_stream.cli.shared.watching import with_watch

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake


@dataclass(frozen=True)
class ReadOptions:
    """What a reader is asked for. `cluster` None: all clusters, or the only one there is."""

    cluster: str | None
    output: Format
    config: Path | None
    broker_conf: Path | None
    set_: list[str] | None

    @cached_property
    def given(self) -> CliSettings:
        """The settings, read when they are needed first. Raises SettingError, CommandError."""
        return load_cli_settings(self.config, self.broker_conf, self.set_)

    def check_settings(self) -> None:
        """Read the settings before all else: wrong ones are named first, also where none is used.

        Raises SettingError, CommandError.
        """
        _ = self.given

    @property
    def in_cluster(self) -> str:
        """Return the end of a sentence about the named cluster; empty: none is named."""
        return f" in cluster {self.cluster}" if self.cluster else ""

    def open_lake(self, *, may_be_stale: bool = False) -> Lake:
        """Open the tables, and warn if they don't show the present.

        `may_be_stale`: no warning, because the rows are about the past.
        Raises QueryError where there are no tables, or none has the named cluster.
        """
        from lb_stream.cli.shared.staleness import warn_if_stale
        from lb_stream.query.cluster_state import require_cluster
        from lb_stream.query.lake import open_lake

        lake = open_lake(self.given.tables)
        require_cluster(lake, self.cluster)
        if not may_be_stale:
            warn_if_stale(self.given, lake)
        return lake

    def emit_rows(self, rows: Iterable[Mapping[str, object]], name: str | None = None) -> bool:
        """Write rows in the form asked for, as `output.emit_rows`; False: it is one for people."""
        return emit_rows(rows, self.output, name=name)

    def emit_object(self, value: Mapping[str, object]) -> bool:
        """Write one object in the form asked for, as `output.emit_object` does."""
        return emit_object(value, self.output)


def with_read_options(
    *, cluster: bool = True, watch: bool = True
) -> Callable[[CliCommand], CliCommand]:
    """Replace a reader's parameter `options` by the options that make it, and add --watch.

    `cluster`: rows may be limited to a cluster's. `watch`: rows may change while somebody looks.
    """

    def decorate(command: CliCommand) -> CliCommand:
        shared = read_parameters(_read_options)
        if not cluster:
            del shared["cluster"]
        grouped = group_options(command, "options", _read_options, shared)
        return with_watch(grouped) if watch else grouped

    return decorate


def _read_options(
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
    output: Output = Format.table,
) -> ReadOptions:
    from lb_stream.io.without_pandas import keep_pandas_out

    keep_pandas_out()  # before the reader imports what makes Arrow look for pandas
    return ReadOptions(cluster, Format.json if json else output, config, broker_conf, set_)
