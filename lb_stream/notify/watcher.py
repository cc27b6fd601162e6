"""Goes round: looks at troubles, gives each target what is due to it, keeps in mind what was told.

Messages are sent in a thread for each target: a slow one holds up no other one, and no look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from lb_stream.contracts.settings import NotifySettings
from lb_stream.notify.digest import Message, Told, after_failed, after_told, due
from lb_stream.notify.memory import State
from lb_stream.notify.opened import followed, kept
from lb_stream.notify.targets import Answer, Target
from lb_stream.notify.words import body, title
from lb_stream.query import QueryError
from lb_stream.query.screens.troubles import Look

logger = logging.getLogger(__name__)

Note = Callable[[Target, str, Answer], None]
"""Target, title of the message, its answer."""


@dataclass(frozen=True, slots=True)
class _Sent:
    message: Message
    title: str
    answer: Future[Answer]


class Watcher:
    """`look` finds the troubles, `save` keeps the state, `note` hears of every answer. The caller gives the time, ms since the epoch."""

    def __init__(
        self, pipeline: str, rules: NotifySettings, targets: Sequence[Target], look: Callable[[], Look], save: Callable[[State], None],
        note: Note, state: State,
    ) -> None:  # fmt: skip
        self._pipeline, self._rules, self._look, self._save, self._note = pipeline, rules, look, save, note
        self._targets = {target.name: target for target in targets}
        self.state = State(state.opened, {name: state.told.get(name, Told()) for name in self._targets})
        self._saved = state
        self._looked_ms: int | None = None
        self._warned = ""
        self._sent: dict[str, _Sent] = {}
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(self._targets)), thread_name_prefix="notify")

    def go(self, now_ms: int) -> None:
        """One turn: hear what targets have answered, look if it is time, send what is due."""
        self._hear(now_ms)
        if self._looked_ms is None or now_ms - self._looked_ms >= self._rules.look_every_ms:
            self._looked_ms = now_ms
            now_ms = max(now_ms, self._look_once())
        for name, target in self._targets.items():
            if name in self._sent:
                continue
            message = due(self.state.told[name], self.state.opened, self._rules, target.events, now_ms)
            if message is not None:
                said = title(message, self._pipeline, target.resolves), body(message)
                trouble = bool(message.new or message.lasting)
                answer = self._pool.submit(target.send, *said, trouble, self._rules.timeout_ms / 1000)
                self._sent[name] = _Sent(message, said[0], answer)
        self._keep()

    def settle(self, now_ms: int) -> bool:
        """Wait for answers to what is under way, for as long as targets may take. Returns whether anything was."""
        under_way = [one.answer for one in self._sent.values()]
        wait(under_way, timeout=self._rules.timeout_ms / 1000 + 1)
        self._hear(now_ms)
        self._keep()
        return bool(under_way)

    def close(self) -> None:
        """Begin no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _look_once(self) -> int:
        """Returns when it was; 0: it couldn't."""
        try:
            found = self._look()
        except (QueryError, OSError) as error:  # all stays as it was
            self._warn(f"can't look ({type(error).__name__}: {error}): it is tried again every {self._rules.look_every_ms // 1000} s")
            return 0
        self.state = State(followed(self.state.opened, found, self._rules), self.state.told)
        return found.now_ms

    def _warn(self, said: str) -> None:
        """Once, until something else is to be said."""
        if said != self._warned:
            logger.warning("%s", said)
        self._warned = said

    def _hear(self, now_ms: int) -> None:
        for name, sent in list(self._sent.items()):
            if not sent.answer.done():
                continue
            del self._sent[name]
            answer, told = sent.answer.result(), self.state.told[name]
            after = after_told(told, sent.message, self._rules) if answer.taken else after_failed(told, now_ms)
            self.state = State(self.state.opened, {**self.state.told, name: after})
            self._note(self._targets[name], sent.title, answer)

    def _keep(self) -> None:
        told = frozenset[tuple[str, str, str]]().union(*(one.keys for one in self.state.told.values()))
        under_way = {one.trouble.key for sent in self._sent.values() for one in (*sent.message.new, *sent.message.lasting)}
        state = State(kept(self.state.opened, told | under_way), self.state.told)
        self.state = state
        if state == self._saved:
            return
        try:
            self._save(state)
            self._saved = state
        except OSError as error:  # a full disk is one of the troubles to tell of
            self._warn(f"can't keep what has been told ({error}): after a restart some of it is told again")
