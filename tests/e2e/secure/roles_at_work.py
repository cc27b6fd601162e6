"""Users of a secured broker: one for each role, each with settings of its own, and each role's
programs as they are started."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from lb_stream.access.principal import principal_of
from lb_stream.access.roles import Right, Role, resource_names, rights_of
from lb_stream.agent import Agent, AgentConfig, AgentError
from lb_stream.contracts.settings import KafkaSettings, Settings, StreamSettings, TopicSettings
from lb_stream.contracts.tables import LEADERS
from lb_stream.io.messages.errors import describe_error
from lb_stream.job.kafka_checks import prepare_topics
from lb_stream.sim import SimBroker, build_cluster
from lb_stream.sim.brokers import wall_clock_ms
from tests.support.lbctl_runner import Result, lbctl
from tests.support.secure_kafka import Acls, SecureKafka
from tests.support.table_rows import fill

CLUSTER = "eu-1"
PASSWORDS = {f"lb-{role}": f"word-of-{role}" for role in get_args(Role)}


@dataclass(frozen=True)
class Users:
    """Who logs in at `bootstrap`, with which `kafka.options`, and the names of the topics and of
    the pipeline that they use."""

    bootstrap: str
    options: Mapping[str, Mapping[str, Any]]
    topics: TopicSettings
    folder: Path
    pipeline: str

    @staticmethod
    def of(kafka: SecureKafka, way: str, folder: Path, prefix: str) -> "Users":
        """A user for each role. `way`: scram, mtls or bearer."""
        login = {"scram": kafka.scram, "mtls": kafka.certified, "bearer": kafka.bearer}[way]
        topics = TopicSettings(**{name: f"{prefix}-{name}" for name in TopicSettings.model_fields})
        folder.mkdir()
        options = {role: login(f"lb-{role}") for role in get_args(Role)}
        return Users(
            kafka.mtls if way == "mtls" else kafka.bootstrap, options, topics, folder, prefix
        )

    def settings(self, role: str, **changed: Any) -> Settings:
        """The job's settings; `changed` are kafka.options."""
        kafka = KafkaSettings(
            bootstrap_servers=self.bootstrap, options={**self.options[role], **changed}
        )
        stream = StreamSettings(
            pipeline_id=self.pipeline,
            tables=str(self.folder / "tables"),
            checkpoint=str(self.folder / "checkpoint"),
        )
        return Settings(kafka=kafka, topics=self.topics, stream=stream)

    def rights(self, role: Role) -> list[Right]:
        """What the role must have here."""
        return rights_of(role, resource_names(self.settings(role)))

    def right_of_job(self, operation: str, resource: str) -> Right:
        """One right of the job. `resource`: as the table of the roles names it."""
        name = resource_names(self.settings("job"))[resource]
        return next(
            right
            for right in self.rights("job")
            if (right.operation, right.name) == (operation, name)
        )

    def principal(self, role: str) -> str:
        """As whom it logs in."""
        return principal_of(self.options[role])

    def file(self, role: str, **changed: Any) -> Path:
        """The settings as a file for --config."""
        settings, path = self.settings(role, **changed), self.folder / f"{role}.toml"
        sections = {
            "kafka": {"bootstrap_servers": self.bootstrap},
            "kafka.options": settings.kafka.options,
        }
        sections |= {
            "topics": self.topics.model_dump(),
            "stream": settings.stream.model_dump(include={"pipeline_id", "tables", "checkpoint"}),
        }
        lines = (
            line
            for name, values in sections.items()
            for line in (
                f"[{name}]",
                *(f"{key} = {json.dumps(value)}" for key, value in values.items()),
            )
        )
        path.touch(mode=0o600)  # it holds secrets: lbctl warns of one that others can read
        path.write_text("\n".join(lines) + "\n")
        return path

    # --- what each role starts; each gives its one line and its exit code ---

    def agent(self, **changed: Any) -> Agent:
        """Agents of three simulated brokers, of which one runs hot."""
        names = (self.topics.reports, self.topics.decisions, self.topics.ownership)
        options = {**self.options["agent"], **changed}
        config = AgentConfig(
            self.bootstrap,
            CLUSTER,
            *names,
            report_interval_s=1.0,
            heartbeat_interval_s=5.0,
            client_options=options,
        )
        cluster = build_cluster(3, 24, "hot_spot", start_ms=wall_clock_ms())
        return Agent(config, [SimBroker(cluster, name) for name in cluster.brokers])

    def ended(self, role: str, right: Right | None = None, **changed: Any) -> tuple[str, int]:
        """Start what the role starts (and what needs this right), expect that it doesn't come
        about."""
        if role == "job":
            return _told(
                lambda: prepare_topics(
                    self.settings("job", **changed), take_over=False, standby=False
                )
            )
        if role == "agent":
            return _told(lambda: self.agent(**changed).start())
        done = self.lbctl(role, *_command_of(role, right, self.topics), **changed)
        return done.err.removeprefix("lbctl: "), done.code

    def lbctl(self, role: str, *arguments: str, **changed: Any) -> Result:
        """A command, by the role's settings."""
        option = (
            "--settings" if "update-dynamic-config" in arguments else "--config"
        )  # there --config names a key
        return lbctl(*arguments, option, str(self.file(role, **changed)), cwd=self.folder)

    @contextmanager
    def program(self, role: str, *arguments: str) -> Iterator["Program"]:
        """`lbctl` as a process of its own, by the role's settings; killed when it still runs at the
        end."""
        command = [
            sys.executable,
            "-c",
            "from lb_stream.cli.main import main; main()",
            *arguments,
            "--config",
            str(self.file(role)),
        ]
        out, err = (self.folder / f"{role}-{arguments[0]}.{name}" for name in ("out", "err"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(command, stdout=stdout, stderr=stderr, cwd=self.folder)
        try:
            yield Program(process, out, err)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def job_elsewhere(self) -> None:
        """Let the tables say that the job runs on another machine: its ticks are looked for."""
        leader = {
            "pipeline": self.pipeline,
            "epoch": 1,
            "host": "elsewhere",
            "pid": 1,
            "since_ms": wall_clock_ms(),
        }
        fill(self.folder / "tables", LEADERS, [leader])


@dataclass(frozen=True)
class Program:
    """A started program, and where it prints to."""

    process: "subprocess.Popen[bytes]"
    out: Path
    err: Path

    @property
    def objects(self) -> list[Any]:
        """The JSON lines that it has printed."""
        return [
            json.loads(line)
            for line in self.out.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]

    def ended(self, longest_s: float) -> tuple[str, int]:
        """What it says at its end, and its exit code."""
        code = self.process.wait(timeout=longest_s)
        return self.err.read_text().removeprefix("lbctl: "), code


@contextmanager
def users_with_rights(
    kafka: SecureKafka,
    acls: Acls,
    way: str,
    folder: Path,
    prefix: str,
    roles: tuple[Role, ...] = get_args(Role),
) -> Iterator[Users]:
    """A user for each role, who has its rights until the end."""
    made = Users.of(kafka, way, folder, prefix)
    for role in roles:
        acls.allow(made.principal(role), *made.rights(role))
    try:
        yield made
    finally:
        for role in roles:
            acls.take(made.principal(role), *made.rights(role))


def refuses(users: Users, role: str, *rights: Right) -> str:
    """The expression that a line fits which says who lacks which rights to what."""
    missing = re.escape(", ".join(map(str, rights)))
    return (
        rf"Kafka at {re.escape(users.bootstrap)} refuses {re.escape(users.principal(role))}: "
        rf"missing {missing}\. .*"
    )


def _command_of(role: str, right: Right | None, topics: TopicSettings) -> tuple[str, ...]:
    reads_ticks = right == Right("Read", "topic", topics.commands)
    follows_records = right == Right("Read", "topic", topics.ownership)
    return {
        "create": ("topics", "create"),
        "operator": ("status",) if reads_ticks else ("clusters", "pause", CLUSTER),
        "follower": ("lookup-server", "--no-ask", "--address", "127.0.0.1:0")
        if follows_records
        else ("decisions", "--follow", "--json"),
        "lookup": ("lookup-server", "--address", "127.0.0.1:0"),
    }[role]


def _told(start: Any) -> tuple[str, int]:
    try:
        start()
    except AgentError as error:
        return f"{error}\n", error.code
    except Exception as error:
        found = describe_error(error)
        if found is None:
            raise
        return f"{found[0]}\n", found[1]
    return "", 0
