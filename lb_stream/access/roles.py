"""The least rights of each role: what its programs ask of Kafka, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lb_stream.contracts.settings import Settings, TopicSettings

Role = Literal["create", "job", "agent", "operator", "follower", "lookup"]


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One right, in the words of Kafka's ACLs. `kind`: topic, group or transactional-id."""

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.kind} {self.name}"


_KINDS = {"watermark": "group", "transactions": "transactional-id"}
IMPLY_DESCRIBE = frozenset({"Read", "Write", "Delete", "Alter", "Describe"})
"""Who has one of these may also describe the resource: no role needs both."""

_MAKE = ("Create", "Describe", "DescribeConfigs")
ROLES: dict[Role, dict[str, tuple[str, ...]]] = {
    "create": {name: _MAKE for name in TopicSettings.model_fields},
    "job": {
        "reports": ("Read", "DescribeConfigs"),
        "commands": ("Read", "Write", "DescribeConfigs"),
        "results": ("Write", "DescribeConfigs"),
        "decisions": ("Read", "Write", "DescribeConfigs"),
        "ownership": ("Write", "DescribeConfigs"),
        "watermark": ("Read",),
        "transactions": ("Write",),
    },
    "agent": {"reports": ("Write",), "decisions": ("Read",), "ownership": ("Read",)},
    "operator": {"commands": ("Read", "Write"), "results": ("Read",)},
    "follower": {"decisions": ("Read",), "ownership": ("Read",)},
    "lookup": {"ownership": ("Read",), "commands": ("Write",), "results": ("Read",)},
}
"""Role → resource → operations.

A resource is a topic's key in the settings, the group of the watermark, or the transactional id.
"""


def rights_of(role: Role, names: Mapping[str, str]) -> list[Right]:
    """The rights of a role. `names`: resource → its name; one without a name isn't used."""
    return [
        Right(operation, _KINDS.get(resource, "topic"), names[resource])
        for resource, operations in ROLES[role].items()
        for operation in operations
        if resource in names
    ]


def resource_names(settings: Settings) -> dict[str, str]:
    """The names of all resources."""
    pipeline = settings.stream.pipeline_id
    return {
        **settings.topics.model_dump(),
        "watermark": watermark_group(pipeline),
        "transactions": pipeline,
    }


def watermark_group(pipeline: str) -> str:
    """The group whose committed offset says how far a pipeline's log has been published."""
    return f"{pipeline}-watermark"
