"""What a refusal of Kafka's means, whoever met it: kafka-python by its exceptions, Spark's Kafka
source by Java's text."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

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


class TlsRefused(KafkaConnectionError):  # type: ignore[misc]
    """No TLS connection comes about: a certificate that isn't trusted, a key that isn't opened."""


log = logging.getLogger(__name__)

AGAIN_S = 30.0
"""Who goes on after a refusal tries again after this time: passwords, certificates and rights may
be on their way."""
FORGOTTEN_S = 2 * AGAIN_S
"""A refusal that comes again after so long is told again."""

LOGINS_REFUSED = (
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    IllegalSaslStateError,
    TlsRefused,
)
"""What kafka-python's clients raise when Kafka doesn't let the user in (TlsRefused: those of
`io.kafka.clients`)."""
RIGHTS_REFUSED = (AuthorizationError,)
"""What they raise when it does, and a right is missing."""
REFUSED = (*LOGINS_REFUSED, *RIGHTS_REFUSED)

_IN_TEXT = re.compile(
    r"\.errors\.(\w*(?:Authorization|SaslAuthentication|SslAuthentication|UnsupportedSaslMechanism)Exception): "
    r"*([^\n]*)"
    r"|(?=\[Error \d+\] (\w*(?:Authorization\w*|SaslAuthenticationFailed)Error))([^\n]*)"
)
"""What Spark's own client says, among other things, and kafka-python in the text of an error that
it doesn't expect."""


class AccessRefusal(Exception):
    """Kafka refuses this user.

    The text is one line: as whom, what, and what to do. `code` is the exit code.
    """

    code = 1


class LoginRefused(AccessRefusal):
    """Kafka doesn't let the user in: a wrong setting."""

    code = 2


class RightsRefused(AccessRefusal):
    """Kafka lets the user in, and a right is missing."""


def build_login_refusal(where: str, options: Mapping[str, Any], why: object) -> LoginRefused:
    """Kafka does not let this user in."""
    tls = isinstance(why, TlsRefused) or not str(options.get("security_protocol", "")).startswith(
        "SASL"
    )
    keys = (
        "ssl_cafile, ssl_certfile, ssl_keyfile, ssl_password"
        if tls
        else _LOGIN_KEYS.get(str(options.get("sasl_mechanism")), _PASSWORD)
    )
    said = _plain(why)
    return LoginRefused(
        f"Kafka at {where} does not let {principal_of(options)} in: {said}. Check kafka.options: "
        f"security_protocol, {keys}"
    )


_PASSWORD = "sasl_mechanism, sasl_plain_username, sasl_plain_password"
_LOGIN_KEYS = {"OAUTHBEARER": "sasl_mechanism, sasl_oauth_token_file"}


def build_rights_refusal(
    where: str, options: Mapping[str, Any], missing: Sequence[Right | str]
) -> RightsRefused:
    """Kafka lets this user in, and these rights are missing."""
    given, user = ", ".join(map(str, missing)), principal_of(options)
    return RightsRefused(
        f"Kafka at {where} refuses {user}: missing {given}. docs/security.md lists the rights of "
        "each role"
    )


def find_refusal(
    where: str, options: Mapping[str, Any], error: BaseException, doing: str = ""
) -> AccessRefusal | None:
    """What an exception of kafka-python's tells; None: no refusal.

    `doing`: the operation on topics that was tried, Read or Write.
    """
    if isinstance(error, LOGINS_REFUSED):
        return build_login_refusal(where, options, error)
    if not isinstance(error, RIGHTS_REFUSED):
        return None
    if doing and isinstance(error, TopicAuthorizationFailedError) and error.args:
        topics = [error.args[0]] if isinstance(error.args[0], str) else sorted(error.args[0])
        return build_rights_refusal(
            where, options, [Right(doing, "topic", topic) for topic in topics]
        )
    return build_rights_refusal(where, options, [f"a right ({_plain(error)})"])


def find_refusal_in_text(where: str, options: Mapping[str, Any], text: str) -> AccessRefusal | None:
    """The refusal that a text of Spark's tells of, if it does."""
    if (found := _IN_TEXT.search(text)) is None:
        return None
    name, said = found[1] or found[3], found[2] or found[4]
    if name.endswith(("AuthorizationException", "AuthorizationFailedError", "AuthorizationError")):
        return build_rights_refusal(where, options, [f"a right ({said})"])
    return build_login_refusal(where, options, said)


class RefusalLog:
    """What somebody who goes on says of refusals: each once, until another one comes.

    Any thread may call.
    """

    def __init__(self, where: str, options: Mapping[str, Any]) -> None:
        self._where, self._options = where, options
        self._last: dict[str, tuple[str, float]] = {}

    def note(self, error: Exception, doing: str) -> bool:
        """Whether an error is a refusal; it is logged if it is news.

        `doing`: the operation on topics that was tried.
        """
        refusal = find_refusal(self._where, self._options, error, doing)
        if refusal is None:
            return False
        text, now = str(refusal), time.monotonic()
        said, at = self._last.get(doing, ("", 0.0))
        self._last[doing] = text, now
        if text != said or now - at > FORGOTTEN_S:
            log.warning("%s; trying again every %.0f s", text, AGAIN_S)
        return True

    def waits(self, doing: str) -> bool:
        """Whether a refusal of this operation is so young that it need not be tried again yet."""
        return doing in self._last and time.monotonic() - self._last[doing][1] < AGAIN_S


def _plain(why: object) -> str:
    """An exception in words, without the client's numbers and names of classes."""
    text = " ".join(str(why).split())
    return re.sub(r"^(?:\[Error \d+\] )?(?:\w+Error: )*", "", text) or type(why).__name__
