"""Explains what a refusal of Kafka's means, whichever client meets it.

kafka-python raises exceptions; Spark's Kafka source has Java's text.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence

from kafka.errors import (
    AuthorizationError,
    IllegalSaslStateError,
    KafkaConnectionError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    UnsupportedSaslMechanismError,
)

from lb_stream.access.principal import principal_of
from lb_stream.access.roles import Right

log = logging.getLogger(__name__)


class TlsRefused(KafkaConnectionError):  # type: ignore[misc]
    """No TLS connection can be made: a certificate isn't trusted, or a key can't be opened."""


AGAIN_S = 30.0
"""After this time a program that goes on after a refusal tries again.

Passwords, certificates and rights may be changing.
"""
FORGOTTEN_S = 2 * AGAIN_S
"""After this time the same refusal is logged again."""

LOGINS_REFUSED = (
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    IllegalSaslStateError,
    TlsRefused,
)
"""What kafka-python's clients raise when Kafka doesn't let the user in.

TlsRefused is raised by those of `io.kafka.clients` only.
"""
RIGHTS_REFUSED = (AuthorizationError,)
"""What they raise when Kafka lets the user in, and a right is missing."""
REFUSED = (*LOGINS_REFUSED, *RIGHTS_REFUSED)

_IN_TEXT = re.compile(
    r"\.errors\.(?P<java>\w*"
    r"(?:Authorization|SaslAuthentication|SslAuthentication|UnsupportedSaslMechanism)Exception): *"
    r"(?P<java_text>[^\n]*)"
    r"|(?=\[Error \d+\] (?P<python>\w*(?:Authorization\w*|SaslAuthenticationFailed)Error))"
    r"(?P<python_text>[^\n]*)"
)
"""A refusal in a text: Java's name and message, or kafka-python's in an error of another kind."""
_RIGHTS = ("AuthorizationException", "AuthorizationFailedError", "AuthorizationError")
"""How the names end that mean a missing right."""

_PASSWORD_KEYS = "sasl_mechanism, sasl_plain_username, sasl_plain_password"
_LOGIN_KEYS = {"OAUTHBEARER": "sasl_mechanism, sasl_oauth_token_file"}
_TLS_KEYS = "ssl_cafile, ssl_certfile, ssl_keyfile, ssl_password"


class AccessRefusal(Exception):
    """Kafka refuses this user.

    The text is one line: which user, what was refused, and what to do. `code`: the exit code.
    """

    code = 1


class LoginRefused(AccessRefusal):
    """Kafka doesn't let the user in: a setting is wrong."""

    code = 2


class RightsRefused(AccessRefusal):
    """Kafka lets the user in, and a right is missing."""


def build_login_refusal(where: str, options: Mapping[str, object], why: object) -> LoginRefused:
    """Return the error for a user whom Kafka doesn't let in.

    `where`: host:port; `options`: the setting `kafka.options`; `why`: an exception or its text.
    """
    uses_sasl = str(options.get("security_protocol", "")).startswith("SASL")
    if isinstance(why, TlsRefused) or not uses_sasl:
        keys = _TLS_KEYS
    else:
        keys = _LOGIN_KEYS.get(str(options.get("sasl_mechanism")), _PASSWORD_KEYS)
    return LoginRefused(
        f"Kafka at {where} does not let {principal_of(options)} in: {_plain_text(why)}. Check "
        f"kafka.options: security_protocol, {keys}"
    )


def build_rights_refusal(
    where: str, options: Mapping[str, object], missing: Sequence[Right | str]
) -> RightsRefused:
    """Return the error for a user whom Kafka lets in, and who lacks these rights."""
    rights, user = ", ".join(map(str, missing)), principal_of(options)
    return RightsRefused(
        f"Kafka at {where} refuses {user}: missing {rights}. Add ACLs for this user: "
        "docs/security.md lists the rights of each role"
    )


def find_refusal(
    where: str, options: Mapping[str, object], error: BaseException, doing: str = ""
) -> AccessRefusal | None:
    """Return the refusal that an exception of kafka-python's means; None if it means none.

    `doing`: the operation on topics that was tried, Read or Write.
    """
    if isinstance(error, LOGINS_REFUSED):
        return build_login_refusal(where, options, error)
    if not isinstance(error, RIGHTS_REFUSED):
        return None
    if doing and isinstance(error, TopicAuthorizationFailedError) and error.args:
        topics = [error.args[0]] if isinstance(error.args[0], str) else sorted(error.args[0])
        rights = [Right(doing, "topic", topic) for topic in topics]
        return build_rights_refusal(where, options, rights)
    return build_rights_refusal(where, options, [f"a right ({_plain_text(error)})"])


def find_refusal_in_text(
    where: str, options: Mapping[str, object], text: str
) -> AccessRefusal | None:
    """Return the refusal that a text of Spark's contains; None if it contains none."""
    if (found := _IN_TEXT.search(text)) is None:
        return None
    name = found["java"] or found["python"]
    message = found["java_text"] or found["python_text"]
    if name.endswith(_RIGHTS):
        return build_rights_refusal(where, options, [f"a right ({message})"])
    return build_login_refusal(where, options, message)


class RefusalLog:
    """Logs the refusals that a program meets and goes on after: each once, until another one comes.

    Any thread may call its methods. `doing`: the operation on topics that was tried, Read or Write.
    """

    def __init__(self, where: str, options: Mapping[str, object]) -> None:
        self._where, self._options = where, options
        self._last: dict[str, tuple[str, float]] = {}

    def note(self, error: Exception, doing: str) -> bool:
        """Return whether an error is a refusal, and log it if it is a new one."""
        refusal = find_refusal(self._where, self._options, error, doing)
        if refusal is None:
            return False
        text, now = str(refusal), time.monotonic()
        last_text, last_at = self._last.get(doing, ("", 0.0))
        self._last[doing] = text, now
        if text != last_text or now - last_at > FORGOTTEN_S:
            log.warning("%s; trying again every %.0f s", text, AGAIN_S)
        return True

    def is_waiting(self, doing: str) -> bool:
        """Return whether an operation was refused less than AGAIN_S ago, so that it must wait."""
        return doing in self._last and time.monotonic() - self._last[doing][1] < AGAIN_S


def _plain_text(why: object) -> str:
    """Return an exception's text without the client's error numbers and class names."""
    text = " ".join(str(why).split())
    plain = re.sub(r"^(?:\[Error \d+\] )?(?:(?:\w+Error|TlsRefused): )*", "", text)
    return plain or type(why).__name__
