"""A real Kafka broker (one node, KRaft) from the fetched jars, at the loopback address by default.

    with EmbeddedKafka(Path(".lb/kafka")) as kafka:
        kafka.bootstrap  # "127.0.0.1:40123"

Topics survive a stop, a crash and a restart. A restart keeps its ports if they are free. object
process can find or stop the broker: `<data_dir>/broker.json` has its pid, start time and ports.
"""

import base64
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from lb_stream.contracts.base import LARGEST_RECORD_BYTES
from lb_stream.io.local import processes
from lb_stream.io.local.jars import JarsError, default_folder, jar_paths
from lb_stream.io.local.java import JavaUnfit, find_java
from lb_stream.io.local.processes import locked
from lb_stream.io.local.running_kafka import (
    HOST,
    RunningKafka,
    find_running_kafka,
    read_last_kafka,
    write_running_kafka,
)
from lb_stream.settings.files import CONF

LARGEST_LOG_BYTES = 10 * 1024 * 1024
# The serial collector needs the least memory and threads, beside Spark on two cores.
JVM_OPTIONS = ("-XX:+UseSerialGC", "-Xshare:auto", "-Djava.awt.headless=true")


class KafkaError(RuntimeError):
    """The embedded broker did not start or stop; the text says why and what to do."""


class KafkaAlreadyRunning(KafkaError):
    """A broker runs on this data folder already; `bootstrap` is its address."""

    def __init__(self, data_dir: Path, broker: RunningKafka):
        super().__init__(
            f"a broker already runs on {data_dir} at {broker.bootstrap} (pid {broker.pid}): use "
            "it, or stop it with `lbctl kafka stop`"
        )
        self.bootstrap = broker.bootstrap


class EmbeddedKafka:
    """One broker on one data folder.

    - `heap`: a value of Java's -Xmx.
    - `port`, `controller_port`: 0: the port of the last start, else any free one.
    - `usual_port`: preferred to any other free port if it is free; 0: none.
    - `host`: the address of this machine at which it listens, and which it gives to clients.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        controller_port: int = 0,
        heap: str = "512m",
        host: str = HOST,
        usual_port: int = 0,
    ):
        self.data_dir = Path(data_dir).resolve()
        self.port = port
        self.controller_port = controller_port
        self.heap = heap
        self.host = host
        self.usual_port = usual_port

    @staticmethod
    def find_running(data_dir: Path) -> RunningKafka | None:
        """Return the broker that runs on this data folder, from whatever process; None: none."""
        return find_running_kafka(Path(data_dir))

    @property
    def pid(self) -> int | None:
        broker = self.find_running(self.data_dir)
        return broker.pid if broker else None

    @property
    def bootstrap(self) -> str:
        """The broker's `host:port`. Raises KafkaError if it doesn't run."""
        broker = self.find_running(self.data_dir)
        if broker is None:
            raise KafkaError(f"no broker runs on {self.data_dir}")
        return broker.bootstrap

    @property
    def log_file(self) -> Path:
        return self.data_dir / "kafka.log"

    def start(self, timeout_s: float = 60) -> str:
        """Start the broker; return its bootstrap servers once it answers.

        Raises KafkaAlreadyRunning, or KafkaError with the reason and the end of the log.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with locked(self.data_dir / ".start.lock"):
            if present := self.find_running(self.data_dir):
                raise KafkaAlreadyRunning(self.data_dir, present)
            java, classpath = self._java(), self._classpath()
            self._choose_ports()
            self._rotate_log()
            properties = self._write_properties()
            self._format(java, classpath, properties)
            broker = self._spawn(java, classpath, properties)
        try:
            self._wait_until_ready(broker, time.monotonic() + timeout_s)
        except BaseException:
            self.stop(grace_s=1)
            raise
        return broker.bootstrap

    def stop(self, grace_s: float = 15) -> bool:
        """Stop the broker on this data folder, from whatever process; return whether one ran.

        It gets SIGTERM, and SIGKILL after `grace_s` seconds: Kafka recovers from both.
        """
        broker = self.find_running(self.data_dir)
        return broker is not None and processes.end(broker.pid, broker.started, grace_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _java(self) -> str:
        try:
            return str(find_java().path)
        except JavaUnfit as error:
            raise KafkaError(str(error)) from error

    def _classpath(self) -> str:
        try:
            return os.pathsep.join(str(path) for path in jar_paths("broker", default_folder()))
        except JarsError as error:
            raise KafkaError(f"the embedded broker's jars are not there: {error}") from error

    def _choose_ports(self) -> None:
        last = read_last_kafka(self.data_dir)
        chosen: list[int] = []
        previous_ports = (last.port, last.controller_port) if last else (self.usual_port, 0)
        for wanted, previous in zip((self.port, self.controller_port), previous_ports, strict=True):
            if wanted and (wanted in chosen or not _is_free(self.host, wanted)):
                raise KafkaError(
                    f"port {wanted} of {self.host} is in use: choose another one, or 0 for any "
                    "free port"
                )
            unused = previous and previous not in chosen and _is_free(self.host, previous)
            chosen.append(
                wanted or (previous if previous and unused else free_port(chosen, self.host))
            )
        self._ports = chosen[0], chosen[1]

    def _write_properties(self) -> Path:
        port, controller_port = self._ports
        path = self.data_dir / "server.properties"
        path.write_text(
            "".join(
                f"{key}={value}\n" for key, value in self.properties(port, controller_port).items()
            )
        )
        return path

    def properties(self, port: int, controller_port: int) -> dict[str, str | int]:
        """Return the broker's settings."""
        return server_properties(self.data_dir, port, controller_port, self.host)

    def format_options(self) -> list[str]:
        """Return more options for formatting the storage, such as users."""
        return []

    def jvm_options(self) -> list[str]:
        """Return more options for the broker's JVM."""
        return []

    def is_ready(self, port: int) -> bool:
        """Return whether the broker answers clients; its port opens a little earlier."""
        return _answers(f"{self.host}:{port}")

    def _format(self, java: str, classpath: str, properties: Path) -> None:
        """Format the storage if that isn't done.

        A folder whose formatting was interrupted has no topics, and is formatted anew.
        """
        logs, done = self.data_dir / "data", self.data_dir / ".formatted"
        if done.exists():
            return
        shutil.rmtree(logs, ignore_errors=True)
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if cluster_id.startswith("-"):
            cluster_id = "A" + cluster_id[1:]  # a leading dash would be read as an option
        command = [
            java,
            "-XX:TieredStopAtLevel=1",
            *JVM_OPTIONS,
            *self._logging(),
            "-cp",
            classpath,
            "kafka.tools.StorageTool",
        ]
        command += [
            "format",
            "--standalone",
            "--cluster-id",
            cluster_id,
            "--config",
            str(properties),
            *self.format_options(),
        ]
        result = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        if result.returncode != 0:
            raise KafkaError(f"formatting {logs} failed:\n{result.stdout.strip()}")
        done.touch()

    def _logging(self) -> tuple[str, str]:
        return (
            f"-Dlog4j2.configurationFile={CONF / 'kafka-log4j2.properties'}",
            f"-Dkafka.logs.dir={self.data_dir}",
        )

    def _spawn(self, java: str, classpath: str, properties: Path) -> RunningKafka:
        options = [f"-Xmx{self.heap}", *JVM_OPTIONS, *self.jvm_options(), *self._logging()]
        command = [java, *options, "-cp", classpath, "kafka.Kafka", str(properties)]
        with self.log_file.open("ab") as log:
            # Its own session: Ctrl-C in the terminal reaches us only, and we stop it in order.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.data_dir,
            )
        # Its pid and start time show whether it runs. This keeps Popen from a warning that it does.
        process.returncode = 0
        started = processes.start_mark(process.pid)
        if started is None:
            raise KafkaError(f"Kafka ended at once.\n{self.log_tail()}")
        broker = RunningKafka(process.pid, started, *self._ports, self.host)
        write_running_kafka(self.data_dir, broker)
        return broker

    def _wait_until_ready(self, broker: RunningKafka, deadline: float) -> None:
        while not self.is_ready(broker.port):
            if processes.start_mark(broker.pid) != broker.started:
                raise KafkaError(
                    f"Kafka ended while starting. {_advice(self.log_tail())}\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise KafkaError(
                    f"Kafka does not answer on {broker.bootstrap} in time; the end of "
                    f"{self.log_file}:\n{self.log_tail()}"
                )
            time.sleep(0.05)

    def _rotate_log(self) -> None:
        if self.log_file.exists() and self.log_file.stat().st_size > LARGEST_LOG_BYTES:
            self.log_file.replace(self.log_file.with_suffix(".log.1"))

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of the broker's log."""
        text = self.log_file.read_text(errors="replace") if self.log_file.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


def server_properties(
    data_dir: Path, port: int, controller_port: int, host: str = HOST
) -> dict[str, str | int]:
    """Return settings of a broker and controller in one process, with small internal topics."""
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.bootstrap.servers": f"{host}:{controller_port}",
        "log.dirs": str(data_dir / "data"),
        "auto.create.topics.enable": "false",  # a misspelt topic is an error, not a new topic
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        # Kafka's default of 50 partitions each makes the first consumer and the first transaction
        # wait.
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        "message.max.bytes": LARGEST_RECORD_BYTES,
        "replica.fetch.max.bytes": LARGEST_RECORD_BYTES,
        "log.message.timestamp.type": "LogAppendTime",
        # The default, 128 MiB, is too much for the small heap.
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        "num.network.threads": 2,
        "num.io.threads": 4,
        # A killed broker's registration blocks its next start until the session ends: 9 s by
        # default.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
    }


def _advice(log: str) -> str:
    if "Address already in use" in log:
        return "A port was taken in the meantime: start again, or give other ports."
    if "Could not reserve enough space" in log or "OutOfMemoryError" in log:
        return "Not enough memory for its heap: free some, or give a smaller `heap`."
    if "Failed to acquire lock" in log:
        return "Another broker holds the data folder: stop it first."
    return "The end of its log:"


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        # A port in TIME_WAIT counts as free: Kafka can take it.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def free_port(taken: Collection[int] = (), host: str = HOST) -> int:
    """Return a port of this address that is free now, and not in `taken`."""
    while True:
        with socket.socket() as probe:
            probe.bind((host, 0))
            port: int = probe.getsockname()[1]
        if port not in taken:
            return port


def _answers(bootstrap: str) -> bool:
    try:
        host, _, port = bootstrap.rpartition(":")
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError as ClientError

    try:
        with KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=5_000) as client:
            return bool(client.describe_cluster()["brokers"])
    except ClientError:
        return False
