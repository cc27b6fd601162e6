"""The folder of a cluster that is balanced from one machine: its settings, tables, logs, Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lb_stream.cli.shared.output import CommandError
from lb_stream.contracts.keys import SettingError
from lb_stream.io.local.running_kafka import HOST
from lb_stream.settings.differing import EXPECTED, read_runtime_texts
from lb_stream.settings.load import load_settings

DEFAULT_STATISTICS_S = 60
"""Pulsar's own default of statsUpdateFrequencyInSecs."""
REPORTS_LATE = 2.5
"""How many intervals of a broker's statistics a move may take until reports show it."""


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """Paths below `root`, which is absolute."""

    root: Path

    @property
    def config(self) -> Path:
        """The settings of job, agents and commands."""
        return self.root / "lb.toml"

    @property
    def broker_conf(self) -> Path:
        """The settings in force of a broker when the folder was made."""
        return self.root / "broker.conf"

    @property
    def kafka(self) -> Path:
        """The data of the Kafka that was started for it; absent: Kafka is somewhere else."""
        return self.root / "kafka"

    @property
    def lock(self) -> Path:
        """Held by the one command that runs in the folder."""
        return self.root / "run.lock"

    def find_kafka_port(self, address: str) -> int | None:
        """Return the port for a Kafka in the folder, 0 for any; None: `address` is somewhere else.

        `address`: of the settings; empty if there are none.
        """
        if not address:
            return 0
        host, _, port = address.rpartition(":")
        is_here = self.kafka.exists() and host == HOST and port.isdecimal()
        return int(port) if is_here else None

    def log(self, part: str) -> Path:
        """The output of a part: job or agents."""
        return self.root / f"{part}.log"


def write_settings(
    folder: ClusterFolder, cluster: str, bootstrap: str, broker: str, runtime: Mapping[str, object]
) -> tuple[str, ...]:
    """Write the files of settings; return a line for each value that can't be used here.

    `runtime`: settings in force of `broker`. Raises CommandError.
    """
    texts, unusable = read_runtime_texts(runtime, EXPECTED)
    head = [f"# Settings of balancing in force in {broker}."]
    head += [f"# {line}" for line in unusable]
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
        folder.broker_conf.write_text(
            "\n".join([*head, *(f"{key}={text}" for key, text in sorted(texts.items()))]) + "\n"
        )
        folder.config.write_text(_build_toml(folder, cluster, bootstrap, runtime))
    except OSError as error:
        raise CommandError(f"{folder.root}: {error.strerror}") from None
    return unusable


def require_settings(folder: ClusterFolder, arguments: Sequence[str] = ()) -> str:
    """Return Kafka's address of the settings in the folder, or of arguments. Raises CommandError.

    Variables don't count: the folder's tables belong to one Kafka.
    """
    try:
        loaded = load_settings(folder.config, folder.broker_conf, arguments, {})
        return loaded.kafka.bootstrap_servers
    except SettingError as error:
        raise CommandError(f"{error}; correct it in {folder.root}", 2) from None


def _build_toml(
    folder: ClusterFolder, cluster: str, bootstrap: str, runtime: Mapping[str, object]
) -> str:
    try:
        statistics_s = float(str(runtime.get("statsUpdateFrequencyInSecs", DEFAULT_STATISTICS_S)))
    except ValueError:
        statistics_s = DEFAULT_STATISTICS_S
    timeout_ms = round(REPORTS_LATE * statistics_s * 1000)
    return f"""\
# Settings of the balancer for this cluster. They override broker.conf beside this file.
# Every setting: lbctl config show. What each does: docs/configuration.md.

[kafka]
bootstrap_servers = {json.dumps(bootstrap)}

[stream]
tables = {json.dumps(str(folder.root / "tables"))}
checkpoint = {json.dumps(str(folder.root / "checkpoint"))}

[cluster.{json.dumps(cluster)}]
# Pulsar places a bundle when a client looks a topic of it up.
assign_unowned = "on_lookup"
# Reports show a move up to twice statsUpdateFrequencyInSecs late.
unloading_timeout_ms = {timeout_ms}
# Without these two lines: the strategies of broker.conf.
shedding_strategy = "LeastMoves"
placement_strategy = "LeastMoves"
"""
