"""What the job does about a refusal of Kafka's, whichever client meets it: it ends, and asks first
which rights are missing.

A refusal is never a reason to discard anything.
"""

from __future__ import annotations

from lb_stream.access.refusals import (
    REFUSED,
    AccessRefusal,
    LoginRefused,
    find_refusal,
    find_refusal_in_text,
)
from lb_stream.access.roles import resource_names, rights_of
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.preflight import name_missing_rights, require_rights
from lb_stream.stream.ports import FatalError

REFUSALS = REFUSED
"""What kafka-python raises."""


class AccessDenied(FatalError):
    """Kafka does not let this user do what the job needs; the text says what and how to go on."""


class LoginDenied(AccessDenied):
    """Kafka does not let this user in: a wrong setting."""


def require_job_rights(settings: Settings) -> list[str]:
    """Make sure that the job may do all that it will.

    Returns the topics that aren't there. Raises AccessDenied, and KafkaError.
    """
    try:
        return require_rights(
            settings.kafka.bootstrap_servers,
            settings.kafka.options,
            rights_of("job", resource_names(settings)),
        )
    except AccessRefusal as refusal:
        raise _denied(refusal) from refusal


def build_denial(settings: Settings, error: BaseException) -> AccessDenied:
    """What to end with when kafka-python has raised one of REFUSALS."""
    found = find_refusal(settings.kafka.bootstrap_servers, settings.kafka.options, error)
    assert found is not None
    return _named(settings, found)


def find_denial(settings: Settings, text: str) -> AccessDenied | None:
    """The same for a text of Spark's, if it tells of a refusal."""
    found = find_refusal_in_text(settings.kafka.bootstrap_servers, settings.kafka.options, text)
    return None if found is None else _named(settings, found)


def _named(settings: Settings, found: AccessRefusal) -> AccessDenied:
    """A refusal by the names of the rights that are missing."""
    return _denied(
        name_missing_rights(
            settings.kafka.bootstrap_servers,
            settings.kafka.options,
            rights_of("job", resource_names(settings)),
            found,
        )
    )


def _denied(refusal: AccessRefusal) -> AccessDenied:
    kind = LoginDenied if isinstance(refusal, LoginRefused) else AccessDenied
    return kind(f"{refusal}. Then start again: the checkpoint and the tables stay as they are")
