"""The topics that the pipeline reads and writes: made when missing, checked when they exist.

Time is part of the input (the append time is the clock of every round), so a topic that stores the
producer's time, or one whose records may be too large to arrive, is refused at start with the
command that mends it.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import TopicAlreadyExistsError, TopicAuthorizationFailedError

from lb_stream.access.refusals import build_rights_refusal
from lb_stream.access.roles import Right
from lb_stream.contracts.base import LARGEST_RECORD_BYTES
from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.clients import kafka_python_options

READY_MS = 60_000
"""So long a new topic may take to have leaders: the machine may be busy."""


@dataclass(frozen=True)
class TopicSpec:
    """What one topic must be.

    `partitions` is used when it is made; only an `exact_partitions` topic is checked for it.
    """

    name: str
    partitions: int
    cleanup_policy: str = "delete"
    exact_partitions: bool = False

    @property
    def configs(self) -> dict[str, str]:
        return {
            "message.timestamp.type": "LogAppendTime",
            "cleanup.policy": self.cleanup_policy,
            "max.message.bytes": str(LARGEST_RECORD_BYTES),
        }


@dataclass(frozen=True)
class Mismatch:
    topic: str
    setting: str
    found: str
    expected: str
    mend: str  # a shell command, or what to do where none helps

    def __str__(self) -> str:
        return (
            f"topic {self.topic}: {self.setting} is {self.found}, must be {self.expected}. To "
            f"mend it: {self.mend}"
        )


class TopicMismatch(ValueError):
    """Topics differ from what the pipeline needs; the text has a line for each mismatch."""

    def __init__(self, mismatches: list[Mismatch]):
        super().__init__("\n".join(map(str, mismatches)))
        self.mismatches = mismatches


@dataclass(frozen=True)
class TopicState:
    """What a broker says about a topic that exists."""

    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


def topic_specs(
    names: TopicSettings | None = None, *, reports: int = 4, decisions: int = 4, ownership: int = 4
) -> list[TopicSpec]:
    """The specs of all topics; the arguments are partition counts.

    Commands are one ordered stream, so is their answer.
    """
    names = names or TopicSettings()
    return [
        TopicSpec(names.reports, reports),
        TopicSpec(names.commands, 1, exact_partitions=True),
        TopicSpec(names.results, 1),
        TopicSpec(names.decisions, decisions),
        TopicSpec(names.ownership, ownership, cleanup_policy="compact"),
    ]


def create_topics(
    bootstrap: str, specs: Iterable[TopicSpec], client_options: Mapping[str, Any] | None = None
) -> list[str]:
    """Create the missing topics, check the others, and return the names of the created ones.

    `client_options` go to kafka-python's client (security_protocol, sasl_mechanism, ssl_cafile, …).
    The replication factor is the cluster's default. Raises TopicMismatch before anything is
    created, Refusal for missing rights once the others are created; kafka.errors.KafkaError when
    the cluster cannot be reached or refuses.
    """
    specs = list(specs)
    options = client_options or {}
    with closing(
        KafkaAdminClient(bootstrap_servers=bootstrap, **kafka_python_options(options))
    ) as client:
        missing, mismatches = _inspect(client, specs, bootstrap)
        if mismatches:
            raise TopicMismatch(mismatches)
        made, refused = [], []
        for spec in (spec for spec in specs if spec.name in missing):
            try:
                made += [spec.name] if _create(client, spec) else []
            except TopicAuthorizationFailedError:
                refused.append(Right("Create", "topic", spec.name))
        if refused:
            raise build_rights_refusal(bootstrap, options, refused)
        return made


def inspect_topics(
    bootstrap: str, specs: Iterable[TopicSpec], client_options: Mapping[str, Any] | None = None
) -> tuple[list[str], list[Mismatch]]:
    """Return the names of missing topics and every mismatch of the others; changes nothing.

    Arguments as for `create_topics`.
    """
    with closing(
        KafkaAdminClient(bootstrap_servers=bootstrap, **kafka_python_options(client_options or {}))
    ) as client:
        return _inspect(client, list(specs), bootstrap)


def _inspect(
    client: KafkaAdminClient, specs: list[TopicSpec], bootstrap: str
) -> tuple[list[str], list[Mismatch]]:
    existing = _describe(client, [spec.name for spec in specs])
    mismatches = [
        found
        for spec in specs
        if spec.name in existing
        for found in find_mismatches(spec, existing[spec.name], bootstrap)
    ]
    return [spec.name for spec in specs if spec.name not in existing], mismatches


def find_mismatches(spec: TopicSpec, state: TopicState, bootstrap: str) -> list[Mismatch]:
    """Return every mismatch between an existing topic and `spec`. Pure."""
    mismatches = []
    for setting, expected in spec.configs.items():
        found = state.configs.get(setting, "unknown")
        if not _fits(setting, found, expected):
            entity = f"--entity-type topics --entity-name {spec.name}"
            mend = (
                f"kafka-configs.sh --bootstrap-server {bootstrap} {entity} --alter --add-config "
                f"{setting}={expected}"
            )
            mismatches.append(
                Mismatch(spec.name, setting, found, _at_least(setting) + expected, mend)
            )
    if spec.exact_partitions and state.partitions != spec.partitions:
        # Kafka cannot take partitions away.
        delete = f"kafka-topics.sh --bootstrap-server {bootstrap} --delete --topic {spec.name}"
        mend = f"{delete}, then `lbctl topics create`; or name another topic in the settings"
        mismatches.append(
            Mismatch(
                spec.name, "partition count", str(state.partitions), str(spec.partitions), mend
            )
        )
    return mismatches


def _at_least(setting: str) -> str:
    return "at least " if setting == "max.message.bytes" else ""


def _fits(setting: str, found: str, expected: str) -> bool:
    if setting == "max.message.bytes":
        return found.isdigit() and int(found) >= int(expected)
    return {part.strip() for part in found.split(",")} == {expected}


def _describe(client: KafkaAdminClient, names: list[str]) -> dict[str, TopicState]:
    present = set(client.list_topics()) & set(names)
    if not present:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in sorted(present)]
    configs = client.describe_configs(resources, config_filter="all")["topic"]
    return {
        topic["name"]: TopicState(
            len(topic["partitions"]),
            {key: entry["value"] for key, entry in configs[topic["name"]].items()},
        )
        for topic in client.describe_topics(sorted(present))
    }


def _create(client: KafkaAdminClient, spec: TopicSpec) -> bool:
    """Create a topic and wait for its leaders. Returns False if it exists already."""
    made = True
    try:
        client.create_topics(
            {spec.name: {"num_partitions": spec.partitions, "configs": spec.configs}}
        )
    except TopicAlreadyExistsError:
        made = False
    client.wait_for_topics([spec.name], timeout_ms=READY_MS)
    return made
