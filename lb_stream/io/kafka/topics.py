"""The topics that the pipeline reads and writes: created when missing, checked when they exist.

Time is part of the input: the append time is the clock of every round. So a topic that stores the
producer's time, or one whose records may be too large to arrive, is refused at start. The message
has the command that fixes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import TopicAlreadyExistsError, TopicAuthorizationFailedError

from lb_stream.access.refusals import build_rights_refusal
from lb_stream.access.roles import Right
from lb_stream.contracts.base import LARGEST_RECORD_BYTES
from lb_stream.contracts.settings import TopicSettings
from lb_stream.contracts.topics import TOPICS
from lb_stream.io.kafka.clients import kafka_python_options

READY_MS = 60_000
"""How long a new topic may take to have leaders: the machine may be busy."""
_LARGEST_RECORD = "max.message.bytes"


@dataclass(frozen=True)
class TopicSpec:
    """What one topic must be like.

    `partitions`: the number with which it is created. `exact_partitions`: an existing topic must
    have that number, too.
    """

    name: str
    partitions: int
    cleanup_policy: str = "delete"
    exact_partitions: bool = False

    @property
    def configs(self) -> dict[str, str]:
        """Return the topic's settings in Kafka."""
        return {
            "message.timestamp.type": "LogAppendTime",
            "cleanup.policy": self.cleanup_policy,
            _LARGEST_RECORD: str(LARGEST_RECORD_BYTES),
        }


@dataclass(frozen=True)
class Mismatch:
    """A setting of a topic that differs from what the pipeline needs.

    `fix`: a shell command, or what to do where no command helps.
    """

    topic: str
    setting: str
    found: str
    expected: str
    fix: str

    def __str__(self) -> str:
        return (
            f"topic {self.topic}: {self.setting} is {self.found}, must be {self.expected}. To "
            f"fix it: {self.fix}"
        )


class TopicMismatch(ValueError):
    """Topics differ from what the pipeline needs; the text has a line for each mismatch."""

    def __init__(self, mismatches: list[Mismatch]) -> None:
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
    """Return the specs of all topics; the arguments are partition counts."""
    names = names or TopicSettings()
    counts = {"reports": reports, "decisions": decisions, "ownership": ownership}
    return [
        TopicSpec(
            getattr(names, topic.setting),
            counts.get(topic.setting, topic.partitions),
            topic.cleanup_policy,
            topic.exact_partitions,
        )
        for topic in TOPICS
    ]


def create_topics(
    bootstrap: str, specs: Iterable[TopicSpec], client_options: Mapping[str, object] | None = None
) -> list[str]:
    """Create the missing topics, check the others, and return the names of the created ones.

    `client_options` go to kafka-python's client (security_protocol, sasl_mechanism, ssl_cafile, …).
    The replication factor is the cluster's default. Raises TopicMismatch before any topic is
    created, AccessRefusal for missing rights after the other topics are created, and KafkaError
    when no broker answers.
    """
    specs = list(specs)
    options = client_options or {}
    with closing(
        KafkaAdminClient(bootstrap_servers=bootstrap, **kafka_python_options(options))
    ) as client:
        missing, mismatches = _inspect(client, specs, bootstrap)
        if mismatches:
            raise TopicMismatch(mismatches)
        created, refused = [], []
        for spec in specs:
            if spec.name not in missing:
                continue
            try:
                if _create(client, spec):
                    created.append(spec.name)
            except TopicAuthorizationFailedError:
                refused.append(Right("Create", "topic", spec.name))
        if refused:
            raise build_rights_refusal(bootstrap, options, refused)
        return created


def inspect_topics(
    bootstrap: str, specs: Iterable[TopicSpec], client_options: Mapping[str, object] | None = None
) -> tuple[list[str], list[Mismatch]]:
    """Return the names of missing topics and the mismatches of the others; change nothing.

    Arguments as for `create_topics`.
    """
    options = kafka_python_options(client_options or {})
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap, **options)) as client:
        return _inspect(client, list(specs), bootstrap)


def describe_topics(
    bootstrap: str, specs: Iterable[TopicSpec], client_options: Mapping[str, object] | None = None
) -> dict[str, TopicState]:
    """Return what a broker says about those of the topics that exist.

    Arguments as for `create_topics`.
    """
    options = kafka_python_options(client_options or {})
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap, **options)) as client:
        return _describe(client, [spec.name for spec in specs])


def _inspect(
    client: KafkaAdminClient, specs: list[TopicSpec], bootstrap: str
) -> tuple[list[str], list[Mismatch]]:
    existing = _describe(client, [spec.name for spec in specs])
    missing = [spec.name for spec in specs if spec.name not in existing]
    mismatches = [
        mismatch
        for spec in specs
        if spec.name in existing
        for mismatch in find_mismatches(spec, existing[spec.name], bootstrap)
    ]
    return missing, mismatches


def find_mismatches(spec: TopicSpec, state: TopicState, bootstrap: str) -> list[Mismatch]:
    """Return every mismatch between an existing topic and `spec`.

    `bootstrap`: host:port of Kafka, for the commands that fix a mismatch. Pure.
    """
    mismatches = []
    for setting, expected in spec.configs.items():
        found = state.configs.get(setting, "unknown")
        if _fits(setting, found, expected):
            continue
        fix = (
            f"kafka-configs.sh --bootstrap-server {bootstrap} --entity-type topics --entity-name "
            f"{spec.name} --alter --add-config {setting}={expected}"
        )
        shown = f"at least {expected}" if setting == _LARGEST_RECORD else expected
        mismatches.append(Mismatch(spec.name, setting, found, shown, fix))
    if spec.exact_partitions and state.partitions != spec.partitions:
        # Kafka can't reduce a topic's partitions.
        fix = (
            f"kafka-topics.sh --bootstrap-server {bootstrap} --delete --topic {spec.name}, then "
            "`lbctl topics create`; or name another topic in the settings"
        )
        found, shown = str(state.partitions), str(spec.partitions)
        mismatches.append(Mismatch(spec.name, "partition count", found, shown, fix))
    return mismatches


def _fits(setting: str, found: str, expected: str) -> bool:
    if setting == _LARGEST_RECORD:
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
    """Create a topic and wait for its leaders. Returns False if another program has created it."""
    is_new = True
    try:
        client.create_topics(
            {spec.name: {"num_partitions": spec.partitions, "configs": spec.configs}}
        )
    except TopicAlreadyExistsError:
        is_new = False
    client.wait_for_topics([spec.name], timeout_ms=READY_MS)
    return is_new
