"""Missing rights in Kafka, reported as such whichever client meets them. They are never a reason to discard anything."""

from __future__ import annotations

import re

from kafka import KafkaAdminClient
from kafka.errors import AuthorizationError, SaslAuthenticationFailedError

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.options import client_options
from lb_stream.io.kafka.topics import undescribed
from lb_stream.stream.ports import Stopped

REFUSALS = (AuthorizationError, SaslAuthenticationFailedError)
"""What kafka-python raises."""
_REFUSED = re.compile(r"(?:\.errors\.\w*(?:Authorization|SaslAuthentication)Exception: *|(?=\[Error \d+\] \w*Authorization))([^\n]*)")
"""What Spark's own client says, among other things, and kafka-python in the text of an error that it doesn't expect."""


class Denied(Stopped):
    """Kafka does not let this user do what the job needs; the text says what and how to go on."""

    def __init__(self, settings: Settings, what: object) -> None:
        given = settings.kafka.options
        user = f"the user {given['sasl_plain_username']}" if "sasl_plain_username" in given else "this job's user"
        super().__init__(
            f"Kafka at {settings.kafka.bootstrap_servers} refuses {user}: {what}. Give it the rights that docs/operating.md lists "
            f"(or the right login, kafka.options) and start again: the checkpoint and the tables stay as they are"
        )


def denied_in(settings: Settings, text: str) -> Denied | None:
    """The refusal that a text of Spark's tells of, if it does."""
    found = _REFUSED.search(text)
    return None if found is None else Denied(settings, found[1])


def check_described(settings: Settings, topics: list[str]) -> None:
    """Make sure that topics which aren't seen aren't there, either. Raises Denied: without the right to describe them they look alike."""
    admin = KafkaAdminClient(**client_options(settings))
    try:
        hidden = undescribed(admin, topics)
    finally:
        admin.close()
    if hidden:
        raise Denied(settings, f"it may not describe {', '.join(hidden)}")
