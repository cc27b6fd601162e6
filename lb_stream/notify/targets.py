"""Where people are told: webhooks, mail, chat, on-call, each by an address of Apprise's, which is a secret as a whole.

Nothing of an address is shown: a target is called by its name. Apprise logs nothing by itself; what it says of a failure is told
with every part of the address left out.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass, field
from typing import Any, get_args
from urllib.parse import unquote, urlsplit

from apprise import Apprise, AppriseAsset, NotifyFormat, NotifyType

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import Event, NotifySettings
from lb_stream.io.local.settings_files import secret_of
from lb_stream.io.messages.secrets import hide
from lb_stream.io.messages.shown import shown

_PLACE = ("notify", "targets")
_EXPECTED = "an address of Apprise's (slack://…, mailtos://…, jsons://HOST/PATH), or file:PATH of a file that holds it"
_SHORTEST = 3
"""Shorter parts of an address are let stand: they are found everywhere."""
LONGEST_ANSWER = 300
ACCEPTED = "accepted"
RESOLVING = frozenset({"Pager Duty", "Opsgenie"})
"""Services whose incidents Apprise resolves with a message of success that has the title of the one that opened them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a message. `said`: in the target's words as far as there are any; `took_ms`: how long it was waited for."""

    taken: bool
    said: str
    took_ms: int


@dataclass(frozen=True, slots=True)
class Target:
    """One target: its name, the service in Apprise's word, the events that it is told, and what sends to it."""

    name: str
    service: str
    events: tuple[Event, ...]
    secrets: tuple[str, ...] = field(repr=False)
    sender: Any = field(repr=False)

    @property
    def resolves(self) -> bool:
        """Whether its messages of one event need one title."""
        return self.service in RESOLVING

    def send(self, title: str, body: str, trouble: bool, timeout_s: float) -> Answer:
        """Send a message and wait for the answer, for `timeout_s` at most. `trouble`: something is wrong; else it is over, or a test."""
        begin = time.monotonic()
        kind = NotifyType.WARNING if trouble else NotifyType.SUCCESS
        try:
            result = self.sender.notify(title=title, body=body, notify_type=kind, body_format=NotifyFormat.TEXT, timeout=timeout_s)
            said = "; ".join(dict.fromkeys(entry.message.strip() for entry in result.logs()))
            taken = bool(result)
        except Exception as error:  # a plug-in of Apprise's: one target's trouble stays its own
            taken, said = False, f"{type(error).__name__}: {error}"
        words = ACCEPTED if taken else self._without_secrets(said) or "refused, without a word"
        return Answer(taken, words, round((time.monotonic() - begin) * 1000))

    def _without_secrets(self, said: str) -> str:
        text = shown(" ".join(hide(said).split()))
        for secret in self.secrets:
            text = re.sub(re.escape(secret), "***", text, flags=re.IGNORECASE)
        return text if len(text) <= LONGEST_ANSWER else text[: LONGEST_ANSWER - 1] + "…"


def targets(settings: NotifySettings) -> tuple[Target, ...]:
    """All of them, in the order of their names. Raises SettingError, which shows no address."""
    _hush()
    for name in settings.routes:
        if name not in settings.targets:
            known = ", ".join(sorted(settings.targets)) or "there is none"
            raise SettingError(f"notify.routes.{name}", ",".join(settings.routes[name]), f"the name of a target: {known}")
    return tuple(_target(name, settings) for name in sorted(settings.targets))


def _target(name: str, settings: NotifySettings) -> Target:
    address = secret_of((*_PLACE, name), settings.targets[name])
    # No picture from elsewhere in the messages, nothing kept on disk.
    asset = AppriseAsset(
        app_id="lb_stream", app_desc="lb_stream", app_url="", image_url_mask="", image_path_mask="", storage_mode="memory", async_mode=False
    )
    sender = Apprise(asset=asset)
    try:
        taken = sender.add(address)
    except Exception:  # what a plug-in of Apprise's makes of an address that it can't read
        taken = False
    if not taken or len(sender) != 1:
        raise SettingError(".".join((*_PLACE, name)), "***", _EXPECTED)
    service, longest_s = sender[0], settings.timeout_ms / 1000
    # A call that has been given up goes on in a thread that the process waits for when it ends.
    service.socket_connect_timeout = min(service.socket_connect_timeout, longest_s)
    service.socket_read_timeout = min(service.socket_read_timeout, longest_s)
    return Target(name, str(service.service_name), settings.routes.get(name) or get_args(Event), parts(address), sender)


def parts(address: str) -> tuple[str, ...]:
    """The texts of an address that may be secret, longest first: any of its parts but the scheme, as written and decoded."""
    rest = address.partition("://")[2]
    pieces = {rest, *re.split(r"[/?&=@:,;#]+", rest), urlsplit(address).netloc}
    found = {text for piece in pieces for text in (piece, unquote(piece)) if len(text) >= _SHORTEST}
    return tuple(sorted(found, key=len, reverse=True))


def _hush() -> None:
    """Apprise and the HTTP library below it log addresses with their paths."""
    for name in ("apprise", "urllib3", "requests", "requests_oauthlib", "oauthlib", "gntp", "slixmpp"):
        logger = logging.getLogger(name)
        logger.propagate = False
        logger.handlers = [logging.NullHandler()]
