"""Names of topics for tests."""

from collections.abc import Callable

from lb_stream.contracts.settings import TopicSettings


def topics_named(prefix: str) -> TopicSettings:
    """A set of topics of its own."""
    return topics_by(lambda purpose: f"{prefix}-{purpose}")


def topics_by(name: Callable[[str], str]) -> TopicSettings:
    """The topics whose names this gives, by purpose."""
    return TopicSettings(**{purpose: name(purpose) for purpose in TopicSettings.model_fields})


def with_own_outputs(read: TopicSettings, name: Callable[[str], str]) -> TopicSettings:
    """The same reports and commands; what is written goes to topics of its own."""
    return read.model_copy(
        update={purpose: name(purpose) for purpose in ("results", "decisions", "ownership")}
    )
