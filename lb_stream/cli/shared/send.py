"""Sends a command to the running balancer and waits for its answers."""

from __future__ import annotations

import getpass
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import typer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from pydantic import ValidationError

from lb_stream.cli.shared.options import Effective, kafka_at, require_topic
from lb_stream.cli.shared.output import CommandError, emit, emit_json, emit_line, note
from lb_stream.contracts.commands import COMMANDS, Command, CommandResult, DrainBroker
from lb_stream.core.commands.persistent_commands import broker_of

if TYPE_CHECKING:
    from lb_stream.cli.shared.sending import Sending

OTHERS_S = 1.0
"""Clusters that answer the same command do so in one transaction: after the first of them the others aren't long in coming."""


def send(how: Sending, kind: str, fields: dict[str, Any]) -> None:
    """Send a command and print what came of it. Raises typer.Exit(1) when it was refused, failed, or didn't end in time."""
    command = _command(how, kind, fields)
    key, bootstrap, topics = how.key, how.given.bootstrap, how.given.settings.topics
    options = how.given.client_options(bootstrap)
    with kafka_at(bootstrap):
        require_topic(options, topics.commands)
        require_topic(options, topics.results)
        answers = _Answers(options, topics.results, command.id)
        with closing(answers):
            _produce(options, topics.commands, key, command)
            if how.no_wait:
                if how.json:
                    emit_json({"id": command.id, "cluster": key or None, "kind": kind, "outcome": "sent"})
                else:
                    emit(f"sent: {command.id}\n")
                return
            last = _wait(how, command, answers, _progress(how, command, key))
    for answer in last.values():
        _print(how, answer, alone=len(last) == 1)
    if any(answer.outcome != "done" for answer in last.values()):
        raise typer.Exit(1)


def _command(how: Sending, kind: str, fields: dict[str, Any]) -> Command:
    head = {"id": how.command_id or str(uuid.uuid4()), "by": principal(how.given), "sent_ms": time.time_ns() // 1_000_000}
    try:
        return COMMANDS[kind].model_validate(head | fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise CommandError(f"{name + ': ' if name else ''}{first['msg']}", 2) from None


def principal(given: Effective) -> str:
    """Who sends: the Kafka principal where one logs in by name and password, else the user of this machine."""
    user = given.settings.kafka.options.get("sasl_plain_username")
    return f"User:{user}" if user else f"{getpass.getuser()}@{socket.gethostname()}"


def _produce(options: dict[str, Any], topic: str, key: str, command: Command) -> None:
    with closing(KafkaProducer(**options, acks="all", max_request_size=10 * 1024 * 1024)) as producer:
        producer.send(topic, key=key.encode(), value=command.to_json().encode()).get(timeout=30)


class _Answers:
    """The answers to one command, from the moment on at which this is made."""

    def __init__(self, options: dict[str, Any], topic: str, command_id: str) -> None:
        self._id = command_id.encode()
        self._consumer = KafkaConsumer(**options, isolation_level="read_committed", enable_auto_commit=False)
        partitions = [TopicPartition(topic, number) for number in sorted(self._consumer.partitions_for_topic(topic) or ())]
        self._consumer.assign(partitions)
        for partition, end in self._consumer.end_offsets(partitions).items():
            self._consumer.seek(partition, end)

    def poll(self, seconds: float) -> Iterator[CommandResult]:
        """Those that come within this time, as soon as there are any."""
        for records in self._consumer.poll(timeout_ms=int(seconds * 1000)).values():
            yield from (CommandResult.model_validate_json(record.value) for record in records if record.key == self._id)

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()


def _progress(how: Sending, command: Command, key: str) -> Callable[[], None]:
    """What shows how a command gets on that takes its time."""
    if not isinstance(command, DrainBroker):
        return lambda: None
    from lb_stream.cli.shared.drain_watch import DrainWatch

    return DrainWatch(how.given.tables, key, broker_of(command.broker)).look


def _wait(how: Sending, command: Command, answers: _Answers, progress: Callable[[], None]) -> dict[str, CommandResult]:
    """Cluster → its last answer. Raises CommandError when none comes, or one is still open, at the end of the time."""
    last: dict[str, CommandResult] = {}
    end, others = time.monotonic() + how.timeout_s, 0.0
    while (left := end - time.monotonic()) > 0:
        for answer in answers.poll(min(left, 0.5)):
            others = others or time.monotonic() + (OTHERS_S if how.all_clusters else 0.0)
            last[answer.cluster] = answer
            if answer.outcome == "accepted":
                note(f"accepted{' by ' + answer.cluster if how.all_clusters else ''}: {answer.text}")
        if last:
            progress()
        if last and time.monotonic() >= others and all(answer.outcome != "accepted" for answer in last.values()):
            return dict(sorted(last.items()))
    if last:
        waiting = sorted(name for name, answer in last.items() if answer.outcome == "accepted")
        raise CommandError(f"{', '.join(waiting)}: not done after {how.timeout_s:g} s; it goes on: lbctl commands --id {command.id}")
    raise CommandError(
        f"no answer after {how.timeout_s:g} s: is the job running (lbctl status), and does it know the cluster? "
        f"The command {command.id} stays on the topic and is done when the job reads it"
    )


def _print(how: Sending, answer: CommandResult, alone: bool) -> None:
    if how.json:
        emit_json(answer.model_dump(mode="json"))
        return
    rule = f" ({answer.rule})" if answer.rule and answer.outcome != "done" else ""
    emit_line(f"{'' if alone else answer.cluster + ': '}{answer.outcome}{rule}: {answer.text}")
