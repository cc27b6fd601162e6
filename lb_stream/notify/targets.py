"""Where people are told: webhooks, mail, chat, on-call, each by an address of Apprise's, which is a
secret as a whole.

Nothing of an address is shown: a target is called by its name. Apprise logs nothing by itself; what
it says of a failure is told with every part of the address left out. Each message has a process of
its own (`courier`), which nothing outlasts.
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
from lb_stream.notify.delivery import find_sender
from lb_stream.settings.files import read_secret
from lb_stream.settings.secrets import hide

_PLACE = ("notify", "targets")
_EXPECTED = (
    "an address of Apprise's (slack://…, mailtos://…, jsons://HOST/PATH), or file:PATH of "
    "a file that holds it"
)
_SHORTEST = 3
"""Shorter parts of an address are let stand: they are found everywhere."""
LONGEST_ANSWER = 300
START_S = 120.0
"""How long the process of a message may take on top of the target's time: a busy machine is slow to
start it."""
ACCEPTED = "accepted"
RESOLVING = frozenset({"Pager Duty", "Opsgenie"})
"""Services whose incidents Apprise resolves with a message of success that has the title of the one
that opened them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a message.

    `text`: in the target's words as far as there are any; `took_ms`: how long it was waited for.
    """

    is_accepted: bool
    text: str
    took_ms: int


@dataclass(frozen=True, slots=True)
class Target:
    """One target: its name, the service in Apprise's word, the events that it is told, its address
    and that one's parts."""

    name: str
    service: str
    events: tuple[Event, ...]
    address: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def resolves(self) -> bool:
        """Whether its messages of one event need one title."""
        return self.service in RESOLVING

    def send(self, title: str, body: str, trouble: bool, timeout_s: float) -> Answer:
        """Send a message and wait for the answer, for `timeout_s` at most.

        `trouble`: something is wrong; else it is over, or a test.
        """
        job = {
            "address": self.address,
            "timeout_s": timeout_s,
            "title": title,
            "body": body,
            "trouble": trouble,
        }
        taken, took_ms = False, round(timeout_s * 1000)
        try:
            done = _run_delivery(json.dumps(job).encode(), timeout_s + START_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            text = f"can't be sent: {type(error).__name__}"
        else:
            if done.returncode == 0:
                answer = json.loads(done.stdout.splitlines()[-1])
                taken, text, took_ms = answer["taken"], answer["said"], answer["took_ms"]
            elif done.returncode == -signal.SIGALRM:
                text = f"gave no answer within {timeout_s:g} s"
            else:
                text = (
                    " ".join(done.stderr.decode(errors="replace").splitlines()[-1:])
                    or f"its process ended ({done.returncode})"
                )
        return Answer(
            taken,
            ACCEPTED if taken else self._without_secrets(text) or "refused, without a word",
            took_ms,
        )

    def _without_secrets(self, said: str) -> str:
        text = shown(" ".join(hide(said).split()))
        for secret in self.secrets:
            text = re.sub(re.escape(secret), "***", text, flags=re.IGNORECASE)
        return text if len(text) <= LONGEST_ANSWER else text[: LONGEST_ANSWER - 1] + "…"


def _run_delivery(job: bytes, longest_s: float) -> subprocess.CompletedProcess[bytes]:
    """Ctrl-C is not for it: what is under way is waited for. Raises OSError, TimeoutExpired."""
    command = (sys.executable, "-P", "-m", "lb_stream.notify.delivery")
    return subprocess.run(
        command,
        input=job,
        capture_output=True,
        timeout=longest_s,
        start_new_session=True,
        check=False,
    )


def build_targets(settings: NotifySettings) -> tuple[Target, ...]:
    """All of them, in the order of their names. Raises SettingError, which shows no address."""
    _silence_loggers()
    for name in settings.routes:
        if name not in settings.targets:
            known = ", ".join(sorted(settings.targets)) or "there is none"
            raise SettingError(
                f"notify.routes.{name}",
                ",".join(settings.routes[name]),
                f"the name of a target: {known}",
            )
    return tuple(_target(name, settings) for name in sorted(settings.targets))


def _target(name: str, settings: NotifySettings) -> Target:
    address = read_secret((*_PLACE, name), settings.targets[name])
    found = find_sender(address)
    if found is None:
        raise SettingError(".".join((*_PLACE, name)), "***", _EXPECTED)
    return Target(
        name,
        str(found[0].service_name),
        settings.routes.get(name) or get_args(Event),
        address,
        secret_parts(address),
    )


def secret_parts(address: str) -> tuple[str, ...]:
    """The texts of an address that may be secret, longest first: any of its parts but the scheme,
    as written and decoded."""
    rest = address.partition("://")[2]
    pieces = {rest, *re.split(r"[/?&=@:,;#]+", rest), urlsplit(address).netloc}
    found = {text for piece in pieces for text in (piece, unquote(piece)) if len(text) >= _SHORTEST}
    return tuple(sorted(found, key=len, reverse=True))


def _silence_loggers() -> None:
    """Apprise and the HTTP library below it log addresses with their paths."""
    for name in (
        "apprise",
        "urllib3",
        "requests",
        "requests_oauthlib",
        "oauthlib",
        "gntp",
        "slixmpp",
    ):
        logger = logging.getLogger(name)
        logger.propagate = False
        logger.handlers = [logging.NullHandler()]
