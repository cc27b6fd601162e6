"""What the job does about a refusal of Kafka's, whichever client meets it: it ends, and asks first
which rights are missing.

A refusal is never a reason to discard anything.
"""

from __future__ import annotations

from lb_stream.access.refusals import REFUSED, AccessRefusal, LoginRefused, refusal_in, refusal_of
from lb_stream.access.roles import names_in, rights_of
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.preflight import by_name, require
from lb_stream.stream.ports import FatalError

REFUSALS = REFUSED
"""What kafka-python raises."""


class Denied(FatalError):
    """Kafka does not let this user do what the job needs; the text says what and how to go on."""


class NotLetIn(Denied):
    """Kafka does not let this user in: a wrong setting."""


def require_rights(settings: Settings) -> list[str]:
    """Make sure that the job may do all that it will.

    Returns the topics that aren't there. Raises Denied, and KafkaError.
    """
    try:
        return require(
            settings.kafka.bootstrap_servers,
            settings.kafka.options,
            rights_of("job", names_in(settings)),
        )
    except AccessRefusal as refusal:
        raise _denied(refusal) from refusal


def denied(settings: Settings, error: BaseException) -> Denied:
    """What to end with when kafka-python has raised one of REFUSALS."""
    found = refusal_of(settings.kafka.bootstrap_servers, settings.kafka.options, error)
    assert found is not None
    return _named(settings, found)


def denied_in(settings: Settings, text: str) -> Denied | None:
    """The same for a text of Spark's, if it tells of a refusal."""
    found = refusal_in(settings.kafka.bootstrap_servers, settings.kafka.options, text)
    return None if found is None else _named(settings, found)


def _named(settings: Settings, found: AccessRefusal) -> Denied:
    """A refusal by the names of the rights that are missing."""
    return _denied(
        by_name(
            settings.kafka.bootstrap_servers,
            settings.kafka.options,
            rights_of("job", names_in(settings)),
            found,
        )
    )


def _denied(refusal: AccessRefusal) -> Denied:
    kind = NotLetIn if isinstance(refusal, LoginRefused) else Denied
    return kind(f"{refusal}. Then start again: the checkpoint and the tables stay as they are")
