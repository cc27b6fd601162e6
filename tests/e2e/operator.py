"""An operator of the pipeline under test."""

import json
from dataclasses import dataclass
from typing import Any

from kafka import KafkaProducer

from lb_stream.sim import SimCluster
from tests.e2e.pipeline import Pipeline
from tests.support.lbctl_runner import Result, lbctl

CLUSTER = "eu-1"


@dataclass
class Operator:
    """Somebody with lbctl, and the cluster that they look after."""

    run: Pipeline
    cluster: SimCluster

    @property
    def options(self) -> list[str]:
        """The options with which lbctl finds the pipeline."""
        topics = self.run.topics
        given = {
            "kafka.bootstrap_servers": self.run.bootstrap,
            "stream.tables": self.run.folder / "tables",
            "stream.checkpoint": self.run.folder / "checkpoint",
        }
        given |= {
            f"topics.{name}": getattr(topics, name)
            for name in ("reports", "commands", "results", "decisions", "ownership")
        }
        return [part for name, value in given.items() for part in ("--set", f"{name}={value}")]

    def ctl(self, *arguments: str, stdin: bytes = b"") -> Result:
        """One call of lbctl."""
        return lbctl(*arguments, *self.options, cwd=self.run.folder, stdin=stdin)

    def done(self, *arguments: str) -> str:
        """What is said to a command that is done."""
        result = self.ctl(*arguments)
        assert result.code == 0, (arguments, result, self.run.log()[-3000:])
        assert result.out.startswith("done: "), (arguments, result)
        return result.out.removeprefix("done: ").strip()

    def refused(self, *arguments: str) -> str:
        """What is said to a command that is refused."""
        result = self.ctl(*arguments)
        assert result.code == 1, (arguments, result)
        assert result.out.startswith("refused"), (arguments, result)
        return result.out.strip()

    def rows(self, *arguments: str) -> list[Any]:
        """What a question to the tables gives."""
        result = self.ctl(*arguments, "--json")
        assert result.code == 0, (arguments, result)
        return result.objects

    def send(self, command: dict[str, Any], key: str = CLUSTER) -> None:
        """A command as any program sends it."""
        producer = KafkaProducer(bootstrap_servers=self.run.bootstrap)
        producer.send(
            self.run.topics.commands, key=key.encode(), value=json.dumps(command).encode()
        ).get(timeout=30)
        producer.close()

    def answers(self, command_id: str) -> list[tuple[str, str | None]]:
        """Outcome and rule of all that was answered to a command, as the table has it."""
        rows = self.run.table("commands").to_pylist()
        return [
            (row["outcome"], row["rule"])
            for row in sorted(rows, key=lambda row: row["log_seq"])
            if row["id"] == command_id
        ]
