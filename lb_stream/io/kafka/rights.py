"""What the job does when Kafka refuses it, whichever client meets the refusal.

The job ends, and asks Kafka first which rights are missing. A refusal is never a reason to discard
records, decisions or a plan.
"""

from __future__ import annotations

from lb_stream.access.refusals import (
    REFUSED,
    AccessRefusal,
    LoginRefused,
    find_refusal,
    find_refusal_in_text,
)
from lb_stream.access.roles import Right, resource_names, rights_of
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.preflight import name_missing_rights, require_rights
from lb_stream.stream.ports import FatalError

REFUSALS = REFUSED
"""What kafka-python raises."""


class AccessDenied(FatalError):
    """Kafka denies this user what the job needs; the text says what, and what to do."""


class LoginDenied(AccessDenied):
    """Kafka denies this user the login: a setting is wrong."""


def require_job_rights(settings: Settings) -> list[str]:
    """Require that Kafka gives this user all rights of the role `job`.

    Returns the topics that don't exist. Raises AccessDenied, KafkaError.
    """
    kafka = settings.kafka
    try:
        return require_rights(kafka.bootstrap_servers, kafka.options, _job_rights(settings))
    except AccessRefusal as refusal:
        raise _deny(refusal) from refusal


def build_denial(settings: Settings, error: BaseException) -> AccessDenied:
    """Return the error that the job ends with when kafka-python has raised one of REFUSALS."""
    refusal = find_refusal(settings.kafka.bootstrap_servers, settings.kafka.options, error)
    assert refusal is not None
    return _deny(_with_missing_rights(settings, refusal))


def find_denial(settings: Settings, text: str) -> AccessDenied | None:
    """Return the error that the job ends with for a text of Spark's; None if it is no refusal."""
    kafka = settings.kafka
    refusal = find_refusal_in_text(kafka.bootstrap_servers, kafka.options, text)
    return None if refusal is None else _deny(_with_missing_rights(settings, refusal))


def _with_missing_rights(settings: Settings, refusal: AccessRefusal) -> AccessRefusal:
    kafka = settings.kafka
    rights = _job_rights(settings)
    return name_missing_rights(kafka.bootstrap_servers, kafka.options, rights, refusal)


def _job_rights(settings: Settings) -> list[Right]:
    return rights_of("job", resource_names(settings))


def _deny(refusal: AccessRefusal) -> AccessDenied:
    kind = LoginDenied if isinstance(refusal, LoginRefused) else AccessDenied
    return kind(f"{refusal}. Then start again: the checkpoint and the tables stay as they are")
