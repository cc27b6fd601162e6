"""Targets of notifications: webhooks, mail, chat, on-call, each with an address for Apprise.

An address is a secret as a whole: messages and logs name its target instead. Apprise's own logs are
off; from its account of a failure every part of the address is removed. Each message is sent by a
process of its own (`delivery`).
"""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import get_args
from urllib.parse import unquote, urlsplit

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import Event, NotifySettings
from lb_stream.io.messages.shown import shown
from lb_stream.notify.delivery import Delivery, DeliveryResult, find_sender
from lb_stream.settings.files import read_secret
from lb_stream.settings.secrets import hide

_KEY = ("notify", "targets")
_EXPECTED = (
    "an address of Apprise's (slack://…, mailtos://…, jsons://HOST/PATH), or file:PATH of "
    "a file that holds it"
)
_MIN_SECRET_LENGTH = 3
"""Shorter parts of an address are not removed from texts: they occur everywhere."""
MAX_ANSWER_LENGTH = 300
START_S = 120.0
"""How long a message's process may take besides the target's timeout, as a busy machine starts it
slowly."""
ACCEPTED = "accepted"
RESOLVING_SERVICES = frozenset({"Pager Duty", "Opsgenie"})
"""Services at which Apprise resolves an incident by a message of success with the same title."""
_APPRISE_LOGGERS = (
    "apprise",
    "urllib3",
    "requests",
    "requests_oauthlib",
    "oauthlib",
    "gntp",
    "slixmpp",
)
"""Loggers of Apprise and of the HTTP libraries below it: they log addresses with their paths."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A target's answer to a message. `took_ms`: the time until it came."""

    is_accepted: bool
    text: str
    took_ms: int


@dataclass(frozen=True, slots=True)
class Target:
    """A target: its name, its service in Apprise, the names of its events, and its address.

    `secrets`: the parts of the address, the longest first.
    """

    name: str
    service: str
    events: tuple[Event, ...]
    address: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def needs_same_title(self) -> bool:
        """Return whether messages about the begin and the end of events need one title."""
        return self.service in RESOLVING_SERVICES

    def send(self, title: str, body: str, is_problem: bool, timeout_s: float) -> Answer:
        """Send a message, wait for the answer up to `timeout_s`, and return it.

        `is_problem`: something is wrong; else it is over, or a test.
        """
        delivery: Delivery = {
            "address": self.address,
            "timeout_s": timeout_s,
            "title": title,
            "body": body,
            "is_problem": is_problem,
        }
        timeout_ms = round(timeout_s * 1000)
        try:
            process = _run_delivery(json.dumps(delivery).encode(), timeout_s + START_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Answer(False, f"can't be sent: {type(error).__name__}", timeout_ms)
        if process.returncode == 0:
            result: DeliveryResult = json.loads(process.stdout.splitlines()[-1])
            if result["is_accepted"]:
                return Answer(True, ACCEPTED, result["took_ms"])
            reason = self._without_secrets(result["answer"]) or "refused, without a reason"
            return Answer(False, reason, result["took_ms"])
        if process.returncode == -signal.SIGALRM:
            return Answer(False, f"gave no answer within {timeout_s:g} s", timeout_ms)
        last_line = " ".join(process.stderr.decode(errors="replace").splitlines()[-1:])
        text = last_line or f"its process ended ({process.returncode})"
        return Answer(False, self._without_secrets(text), timeout_ms)

    def _without_secrets(self, answer: str) -> str:
        """Return one line of a text, cut to length, with *** for every part of the address."""
        text = shown(" ".join(hide(answer).split()))
        for secret in self.secrets:
            text = re.sub(re.escape(secret), "***", text, flags=re.IGNORECASE)
        return text if len(text) <= MAX_ANSWER_LENGTH else text[: MAX_ANSWER_LENGTH - 1] + "…"


def _run_delivery(delivery: bytes, timeout_s: float) -> subprocess.CompletedProcess[bytes]:
    """Run the process of a message. Raises OSError, TimeoutExpired.

    It has a session of its own: Ctrl-C doesn't reach it, and the watcher waits for its end.
    """
    command = (sys.executable, "-P", "-m", "lb_stream.notify.delivery")
    return subprocess.run(
        command,
        input=delivery,
        capture_output=True,
        timeout=timeout_s,
        start_new_session=True,
        check=False,
    )


def build_targets(settings: NotifySettings) -> tuple[Target, ...]:
    """Return all targets in the order of their names. Raises SettingError, without any address."""
    _silence_loggers()
    for name in settings.routes:
        if name not in settings.targets:
            known = ", ".join(sorted(settings.targets)) or "there is none"
            raise SettingError(
                f"notify.routes.{name}",
                ",".join(settings.routes[name]),
                f"the name of a target: {known}",
            )
    return tuple(_build_target(name, settings) for name in sorted(settings.targets))


def _build_target(name: str, settings: NotifySettings) -> Target:
    address = read_secret((*_KEY, name), settings.targets[name])
    sender = find_sender(address)
    if sender is None:
        raise SettingError(".".join((*_KEY, name)), "***", _EXPECTED)
    return Target(
        name,
        str(sender[0].service_name),
        settings.routes.get(name) or get_args(Event),
        address,
        list_secret_parts(address),
    )


def list_secret_parts(address: str) -> tuple[str, ...]:
    """Return the texts of an address that may be secret, the longest first.

    These are its parts besides the scheme, as written and decoded.
    """
    rest = address.partition("://")[2]
    pieces = {rest, *re.split(r"[/?&=@:,;#]+", rest), urlsplit(address).netloc}
    texts = {text for piece in pieces for text in (piece, unquote(piece))}
    secrets = (text for text in texts if len(text) >= _MIN_SECRET_LENGTH)
    return tuple(sorted(secrets, key=len, reverse=True))


def _silence_loggers() -> None:
    for name in _APPRISE_LOGGERS:
        logger = logging.getLogger(name)
        logger.propagate = False
        logger.handlers = [logging.NullHandler()]
