"""The topics: what is a record's key, how a topic is cleaned up, and into how many partitions.

The names are the defaults of the settings `topics.…`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lb_stream.contracts.settings import TopicSettings


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. `setting`: the key of its name in `topics`; `key`: what the keys of records are.

    `partitions`: the number with which it is created. `exact_partitions`: an existing topic must
    have that number, too.
    """

    setting: str
    key: str
    partitions: int
    cleanup_policy: Literal["delete", "compact"] = "delete"
    exact_partitions: bool = False

    @property
    def name(self) -> str:
        """Return the name that the topic has by default."""
        return str(TopicSettings.model_fields[self.setting].default)

    @property
    def description(self) -> str:
        """Return what the topic is for."""
        return str(TopicSettings.model_fields[self.setting].description)


TOPICS = (
    Topic("reports", "<cluster>/<host:port>", 4),
    # commands and their results are read in order
    Topic("commands", "<cluster>, empty: all", 1, exact_partitions=True),
    Topic("results", "the command's id", 1),
    Topic("decisions", "<cluster>/<bundle>", 4),
    Topic("ownership", "<cluster>/<bundle>", 4, "compact"),
)
