"""The rights of each role in Kafka: those that its programs need, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lb_stream.contracts.settings import Settings, TopicSettings

Role = Literal["create", "job", "agent", "operator", "follower", "lookup"]


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A right in the terms of Kafka's ACLs. `kind`: topic, group or transactional-id."""

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.kind} {self.name}"


_KINDS = {"watermark": "group", "transactions": "transactional-id"}
IMPLY_DESCRIBE = frozenset({"Read", "Write", "Delete", "Alter", "Describe"})
"""Operations that imply Describe of the same resource, so that no role needs both."""

_CREATE = ("Create", "Describe", "DescribeConfigs")
ROLES: dict[Role, dict[str, tuple[str, ...]]] = {
    "create": {name: _CREATE for name in TopicSettings.model_fields},
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
    """Return the rights of a role.

    `names`: resource → its name; a resource without a name is left out.
    """
    return [
        Right(operation, _KINDS.get(resource, "topic"), names[resource])
        for resource, operations in ROLES[role].items()
        for operation in operations
        if resource in names
    ]


def resource_names(settings: Settings) -> dict[str, str]:
    """Return the names of all resources: resource → its name in Kafka."""
    pipeline = settings.stream.pipeline_id
    return {
        **settings.topics.model_dump(),
        "watermark": watermark_group(pipeline),
        "transactions": pipeline,
    }


def watermark_group(pipeline: str) -> str:
    """Return the group whose committed offset is a pipeline's watermark."""
    return f"{pipeline}-watermark"
