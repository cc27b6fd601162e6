"""Hooks of moves: an HTTP endpoint is asked before a move begins and may veto it, another one is
told once it is confirmed.

Only the agent that carries a move out asks: what is decided stays a pure function of what was
reported. A veto goes back as a refusal, so the balancer tries again after a back-off that doubles,
as it does whenever a broker refuses. Threads of their own wait for answers: a slow hook holds up
the moves that it is asked about, and nothing else.

Standard library only, as for the admin API. Addresses may hold secrets: nothing of them is logged
but host and port.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import logging
import queue
import socket
import ssl
import threading
import time
from base64 import b64encode
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from lb_stream.agent.adapter import Refused
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.decisions import MOVES, Decision, Ownership

log = logging.getLogger(__name__)

SIGNATURE = "Lb-Signature"
"""Header: `sha256=` and the hexadecimal HMAC of the body, if there is a secret."""
LONGEST_REASON = 300
LARGEST_ANSWER_BYTES = 64 * 1024
MOST_ASKED = 16
"""Moves that are asked for at the same time; the others wait for their turn, until they expire."""
MOST_WAITING = 1_000
"""Confirmed moves that may wait to be told, and moves that may wait to be confirmed; older ones are
left out."""
ATTEMPTS = 3
PAUSE_S = 1.0
_FIELDS = (
    "decision_id",
    "cluster",
    "kind",
    "bundle",
    "source",
    "destination",
    "reason",
    "rule",
    "strategy",
    "issued_ms",
    "expires_ms",
)

_Answers = queue.SimpleQueue[tuple[int, bytes] | Exception]
"""Where one answer comes: its status and body, or why there is none."""


class HookError(Exception):
    """A hook gave no answer that can be used; the text says whom was asked, without secrets, and
    what came."""


@dataclass(frozen=True, slots=True)
class HookConfig:
    """Whom to ask and to tell; empty: nobody.

    Raises ValueError for an address that can't be one, without showing it.

    `unanswered`: what counts when nobody answers within `timeout_s`, or nothing that can be read.
    """

    before_move: str = field(default="", repr=False)
    after_move: str = field(default="", repr=False)
    timeout_s: float = 2.0
    unanswered: Literal["allow", "veto"] = "allow"
    secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name in ("before_move", "after_move"):
            if getattr(self, name) and not _is_address(getattr(self, name)):
                raise ValueError(
                    f"hooks.{name} = '***': expected http(s)://HOST[:PORT]/PATH, or file:PATH of a "
                    "file that holds it"
                )


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and text.isprintable()
            and " " not in text
        )
    except ValueError:
        return False


class MoveHooks:
    """The hooks of one agent, whose thread calls all of this; other threads ask and tell."""

    def __init__(self, config: HookConfig) -> None:
        self.config = config
        self._asked: dict[str, tuple[Decision, Future[None]]] = {}  # by the decisions' ids
        self._askers: ThreadPoolExecutor | None = None
        self._moving: dict[
            str, tuple[Decision, float]
        ] = {}  # bundle → a move that was carried out and isn't confirmed, since when
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._teller: threading.Thread | None = None

    def allow(self, decision: Decision, left_s: float) -> bool:
        """Whether a move may begin, which expires in `left_s`. Raises Refused for a veto.

        False: the hook has been asked and has not answered yet. Ask again once `answered` names the
        decision.
        """
        if not self.config.before_move or decision.kind not in MOVES:
            return True
        if decision.decision_id not in self._asked:
            if self._askers is None:
                self._askers = ThreadPoolExecutor(MOST_ASKED, thread_name_prefix="lb-hook-ask")
            self._asked[decision.decision_id] = (
                decision,
                self._askers.submit(self._ask, decision, time.monotonic() + left_s),
            )
        _, answer = self._asked[decision.decision_id]
        if not answer.done():
            return False
        self.forget(decision)
        answer.result()
        return True

    def answered(self) -> list[Decision]:
        """The moves that were asked for and whose answers have come, or will not come any more."""
        return [decision for decision, answer in self._asked.values() if answer.done()]

    def forget(self, decision: Decision) -> None:
        """The hook's word about a decision doesn't matter any more."""
        self._asked.pop(decision.decision_id, None)

    def _ask(self, decision: Decision, until: float) -> None:
        """Raises Refused for a veto."""
        try:
            left_s = min(self.config.timeout_s, until - time.monotonic())
            if left_s <= 0:
                raise HookError("it could not be asked before the decision expired")
            allowed, reason = _verdict(
                call_hook(
                    self.config.before_move,
                    self._body("before_move", decision),
                    self.config,
                    left_s,
                )
            )
        except HookError as error:
            if self.config.unanswered == "veto":
                raise Refused(f"no move without the hook's word: {error}") from None
            log.warning("%s begins to move without the hook's word: %s", decision.bundle, error)
            return
        if not allowed:
            raise Refused(f"vetoed by the hook: {reason or 'it gave no reason'}")

    def carried_out(self, decision: Decision) -> None:
        """Note a move that this agent has begun: it is told once an ownership record confirms
        it."""
        if self.config.after_move and decision.kind in MOVES:
            self._moving.pop(decision.bundle, None)
            self._moving[decision.bundle] = decision, time.monotonic()
            while len(self._moving) > MOST_WAITING:
                del self._moving[next(iter(self._moving))]

    def follow(self, bundle: str, record: Ownership | None) -> None:
        """Look at an ownership record: one that says who owns a moved bundle now confirms the move,
        or says that it came back."""
        if bundle not in self._moving:
            return
        decision, since = self._moving[bundle]
        if record is None or record.state == "Deleted":
            del self._moving[bundle]
        elif record.state == "Owned" and record.version > decision.expected_version:
            del self._moving[bundle]
            took_ms = round((time.monotonic() - since) * 1000)
            self._tell(
                self._body(
                    "after_move",
                    decision,
                    owner=record.owner,
                    moved=record.owner != decision.source,
                    took_ms=took_ms,
                )
            )

    def close(self, timeout_s: float) -> None:
        """Ask no more, and tell what waits, for so long at most."""
        if self._askers is not None:
            self._askers.shutdown(wait=False, cancel_futures=True)
        if self._teller is not None:
            try:
                self._waiting.put_nowait(None)
            except queue.Full:
                return
            self._teller.join(timeout_s)

    def _body(self, event: str, decision: Decision, **more: Any) -> bytes:
        fields = {name: getattr(decision, name) for name in _FIELDS}
        return canonical_json(
            {"event": event, "sent_ms": time.time_ns() // 1_000_000, **fields, **more}
        ).encode()

    def _tell(self, body: bytes) -> None:
        if self._teller is None:
            self._teller = threading.Thread(target=self._run, name="lb-hooks", daemon=True)
            self._teller.start()
        try:
            self._waiting.put_nowait(body)
        except queue.Full:
            log.warning("the hook after moves is too slow: a move is not told")

    def _run(self) -> None:
        while (body := self._waiting.get()) is not None:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    call_hook(self.config.after_move, body, self.config, self.config.timeout_s)
                    break
                except HookError as error:
                    if attempt == ATTEMPTS:
                        log.warning("a move is not told: %s", error)
                    else:
                        time.sleep(PAUSE_S)


def _verdict(answer: bytes) -> tuple[bool, str]:
    """Whether a move may begin, and why not. An empty answer allows it."""
    if not answer.strip():
        return True, ""
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not isinstance(said.get("allow"), bool):
        raise HookError('its answer is no JSON object with "allow": true or false')
    given = said.get("reason")
    # Half a letter (an escape such as \ud800 in JSON) can't be written into an acknowledgement.
    reason = (
        "".join(letter if letter.isprintable() else "?" for letter in " ".join(given.split()))
        if isinstance(given, str)
        else ""
    )
    return said["allow"], reason if len(reason) <= LONGEST_REASON else reason[
        : LONGEST_REASON - 1
    ] + "…"


def call_hook(address: str, body: bytes, config: HookConfig, timeout_s: float) -> bytes:
    """Send a body and return the answer's.

    Raises HookError after `timeout_s` in all, and for any status but 2xx.
    """
    parts = urlsplit(address)
    where = f"the hook at {parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
    connection = _connection(parts, timeout_s)
    done: _Answers = queue.SimpleQueue()
    answer: tuple[int, bytes] | Exception
    # A server that sends a byte now and then keeps a socket's own time-out from ending: so the wait
    # is here.
    threading.Thread(
        target=_post,
        args=(connection, parts, body, config.secret, done),
        name="lb-hook-call",
        daemon=True,
    ).start()
    try:
        answer = done.get(timeout=timeout_s)
    except queue.Empty:
        answer = TimeoutError()
        if connection.sock is not None:
            with suppress(OSError):  # it has ended meanwhile
                connection.sock.shutdown(socket.SHUT_RDWR)
    if isinstance(answer, TimeoutError):
        raise HookError(f"{where} gave no answer within {timeout_s:.1f} s")
    if isinstance(answer, Exception):
        raise HookError(f"{where}: {getattr(answer, 'strerror', None) or type(answer).__name__}")
    status, content = answer
    if not 200 <= status < 300:
        raise HookError(f"{where} answers {status}")
    return content


def _connection(parts: SplitResult, timeout_s: float) -> http.client.HTTPConnection:
    if parts.scheme == "https":
        return http.client.HTTPSConnection(
            parts.hostname or "",
            parts.port,
            timeout=timeout_s,
            context=ssl.create_default_context(),
        )
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)


def _post(
    connection: http.client.HTTPConnection,
    parts: SplitResult,
    body: bytes,
    secret: str,
    done: _Answers,
) -> None:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Connection": "close",
    }
    if secret:
        headers[SIGNATURE] = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
    if parts.username is not None:
        headers["Authorization"] = _basic(parts.username, parts.password or "")
    try:
        connection.request(
            "POST", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), body, headers
        )
        answer = connection.getresponse()
        done.put((answer.status, answer.read(LARGEST_ANSWER_BYTES)))
    except Exception as error:  # told by whoever waits
        done.put(error)
    finally:
        connection.close()


def _basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
