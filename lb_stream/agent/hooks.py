"""Hooks: one URL is called before a move begins and may veto it, another after it is confirmed.

The agent that carries out a move calls them, so that decisions depend on reports only. A veto is a
refusal for the balancer, which tries again after a back-off that doubles. Other threads wait for
answers: a slow hook delays only the moves that it is asked about.

Uses the standard library only. Addresses may hold secrets: only their host and port are logged.
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
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from lb_stream.agent.adapter import Refused
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.decisions import MOVES, Decision, Ownership

log = logging.getLogger(__name__)

SIGNATURE = "Lb-Signature"
"""A header: `sha256=` and the hexadecimal HMAC of the body, if there is a secret."""
LONGEST_REASON = 300
LARGEST_ANSWER_BYTES = 64 * 1024
MAX_ASKED = 16
"""How many moves a hook is asked about at once. Others wait until they expire."""
MAX_WAITING = 1_000
"""How many moves may wait for confirmation, and how many confirmed ones for their call."""
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
"""Where one answer arrives: its status and body, or the error."""


class HookError(Exception):
    """A hook gave no usable answer. The text names its host, without secrets, and the reason."""


@dataclass(frozen=True, slots=True)
class HookConfig:
    """The URLs that are called before and after moves; empty: none.

    `unanswered` counts where no usable answer comes within `timeout_s`. Raises ValueError for a
    malformed address, without showing it.
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
    """The hooks of one agent. The agent's thread calls the methods, other threads the URLs."""

    def __init__(self, config: HookConfig) -> None:
        self.config = config
        # Decision id → the decision, and the hook's answer to come.
        self._asked: dict[str, tuple[Decision, Future[None]]] = {}
        self._askers: ThreadPoolExecutor | None = None
        # Bundle → a move that waits for its confirmation, and when it was carried out.
        self._moving: dict[str, tuple[Decision, float]] = {}
        # Bodies of calls after moves; None ends their thread.
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING)
        self._notifier: threading.Thread | None = None

    def allow(self, decision: Decision, left_s: float) -> bool:
        """Return whether a move, which expires in `left_s`, may begin. Raises Refused for a veto.

        False: the hook has not answered yet. Call this again once `list_answered` has the decision.
        """
        if not self.config.before_move or decision.kind not in MOVES:
            return True
        if decision.decision_id not in self._asked:
            if self._askers is None:
                self._askers = ThreadPoolExecutor(MAX_ASKED, thread_name_prefix="lb-hook-ask")
            answer = self._askers.submit(self._ask, decision, time.monotonic() + left_s)
            self._asked[decision.decision_id] = decision, answer
        _, answer = self._asked[decision.decision_id]
        if not answer.done():
            return False
        self.forget(decision)
        answer.result()
        return True

    def list_answered(self) -> list[Decision]:
        """Return the moves whose answers have come, or failed to come."""
        return [decision for decision, answer in self._asked.values() if answer.done()]

    def forget(self, decision: Decision) -> None:
        """Drop the hook's answer to a decision."""
        self._asked.pop(decision.decision_id, None)

    def _ask(self, decision: Decision, until: float) -> None:
        """Ask the hook about a move, until this time.monotonic(). Raises Refused for a veto."""
        try:
            left_s = min(self.config.timeout_s, until - time.monotonic())
            if left_s <= 0:
                raise HookError("the decision expired before the hook could be asked")
            body = self._build_body("before_move", decision)
            answer = call_hook(self.config.before_move, body, self.config, left_s)
            allowed, reason = _parse_answer(answer)
        except HookError as error:
            if self.config.unanswered == "veto":
                raise Refused(f"no move without the hook's answer: {error}") from None
            log.warning("%s moves without the hook's answer: %s", decision.bundle, error)
            return
        if not allowed:
            raise Refused(f"vetoed by the hook: {reason or 'it gave no reason'}")

    def note_move(self, decision: Decision) -> None:
        """Note a move that this agent has carried out, for the call once it is confirmed."""
        if self.config.after_move and decision.kind in MOVES:
            self._moving.pop(decision.bundle, None)
            self._moving[decision.bundle] = decision, time.monotonic()
            while len(self._moving) > MAX_WAITING:
                del self._moving[next(iter(self._moving))]

    def follow(self, bundle: str, record: Ownership | None) -> None:
        """Call the hook after a move if this ownership record shows the moved bundle's owner.

        None, or a deleted bundle, ends the wait without a call.
        """
        if bundle not in self._moving:
            return
        decision, since = self._moving[bundle]
        if record is None or record.state == "Deleted":
            del self._moving[bundle]
        elif record.state == "Owned" and record.version > decision.expected_version:
            del self._moving[bundle]
            outcome = {
                "owner": record.owner,
                "moved": record.owner != decision.source,
                "took_ms": round((time.monotonic() - since) * 1000),
            }
            self._notify(self._build_body("after_move", decision, outcome))

    def close(self, timeout_s: float) -> None:
        """Ask about no more moves, and make the waiting calls, for `timeout_s` at most."""
        if self._askers is not None:
            self._askers.shutdown(wait=False, cancel_futures=True)
        if self._notifier is not None:
            try:
                self._waiting.put_nowait(None)
            except queue.Full:
                return
            self._notifier.join(timeout_s)

    def _build_body(
        self, event: str, decision: Decision, more: Mapping[str, object] | None = None
    ) -> bytes:
        fields = {name: getattr(decision, name) for name in _FIELDS}
        body = {"event": event, "sent_ms": time.time_ns() // 1_000_000, **fields, **(more or {})}
        return canonical_json(body).encode()

    def _notify(self, body: bytes) -> None:
        if self._notifier is None:
            self._notifier = threading.Thread(target=self._run, name="lb-hooks", daemon=True)
            self._notifier.start()
        try:
            self._waiting.put_nowait(body)
        except queue.Full:
            log.warning("the hook after moves is too slow: it is not called for a move")

    def _run(self) -> None:
        while (body := self._waiting.get()) is not None:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    call_hook(self.config.after_move, body, self.config, self.config.timeout_s)
                    break
                except HookError as error:
                    if attempt == ATTEMPTS:
                        log.warning("a call after a move failed: %s", error)
                    else:
                        time.sleep(PAUSE_S)


def _parse_answer(content: bytes) -> tuple[bool, str]:
    """Return whether a move may begin, and the hook's reason. An empty answer allows it."""
    if not content.strip():
        return True, ""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("allow"), bool):
        raise HookError('its answer is no JSON object with "allow": true or false')
    return answer["allow"], _clean_reason(answer.get("reason"))


def _clean_reason(given: object) -> str:
    """Return a hook's reason as one short line; empty if it is no text.

    Half a letter (an escape such as \\ud800 in JSON) can't be written into an acknowledgement.
    """
    if not isinstance(given, str):
        return ""
    line = " ".join(given.split())
    reason = "".join(letter if letter.isprintable() else "?" for letter in line)
    return reason if len(reason) <= LONGEST_REASON else reason[: LONGEST_REASON - 1] + "…"


def call_hook(address: str, body: bytes, config: HookConfig, timeout_s: float) -> bytes:
    """Post a body to a hook and return the body of its answer.

    Raises HookError after `timeout_s` in all, and for any status but 2xx.
    """
    parts = urlsplit(address)
    default_port = 443 if parts.scheme == "https" else 80
    where = f"the hook at {parts.hostname}:{parts.port or default_port}"
    connection = _connection(parts, timeout_s)
    done: _Answers = queue.SimpleQueue()
    answer: tuple[int, bytes] | Exception
    # Another thread calls, and this one waits: a socket's own time-out begins anew with each byte
    # that a slow server sends.
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
            with suppress(OSError):  # the call has ended meanwhile
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
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", target, body, headers)
        answer = connection.getresponse()
        done.put((answer.status, answer.read(LARGEST_ANSWER_BYTES)))
    except Exception as error:  # `call_hook` raises it
        done.put(error)
    finally:
        connection.close()


def _basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
