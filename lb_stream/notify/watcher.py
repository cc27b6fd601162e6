"""Goes round: looks at troubles, gives each target what is due to it, keeps in mind what was told.

Messages are sent in a thread for each target: a slow one holds up no other one, and no look.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from lb_stream.contracts.settings import Event, NotifySettings
from lb_stream.notify.messages import body, title
from lb_stream.notify.open_events import drop_resolved, update_open_events
from lb_stream.notify.schedule import (
    Message,
    TargetState,
    after_accepted,
    after_refused,
    next_message,
)
from lb_stream.notify.state_file import WatcherState
from lb_stream.notify.targets import Answer, Target
from lb_stream.query.screens.health_events import HealthEvent, HealthEvents

logger = logging.getLogger(__name__)

Note = Callable[[Target, str, Answer], None]
"""Target, title of the message, its answer."""


@dataclass(frozen=True, slots=True)
class _Sent:
    message: Message
    title: str
    answer: Future[Answer]


class Watcher:
    """`look` finds the troubles, `save` keeps the state, `note` hears of every answer.

    The caller gives the time, ms since the epoch.
    """

    def __init__(
        self,
        pipeline: str,
        rules: NotifySettings,
        targets: Sequence[Target],
        look: Callable[[], HealthEvents],
        save: Callable[[WatcherState], None],
        note: Note,
        state: WatcherState,
    ) -> None:
        self._pipeline, self._rules, self._look, self._save, self._note = (
            pipeline,
            rules,
            look,
            save,
            note,
        )
        self._targets = {target.name: target for target in targets}
        fields = {
            name: _of_events(state.told.get(name, TargetState()), target.events)
            for name, target in self._targets.items()
        }
        self.state = WatcherState(state.opened, fields)
        self.blind = False  # whether the last look failed
        self._saved = state
        self._looked_ms: int | None = None
        self._warned = ""
        self._sent: dict[str, _Sent] = {}
        self._pool = ThreadPoolExecutor(
            max_workers=max(1, len(self._targets)), thread_name_prefix="notify"
        )

    def go(self, now_ms: int) -> None:
        """One turn: hear what targets have answered, look if it is time, send what is due."""
        self._hear(now_ms)
        if (
            self._looked_ms is None
            or not 0 <= now_ms - self._looked_ms < self._rules.poll_interval_ms
        ):  # a clock may be put back
            self._looked_ms = now_ms
            now_ms = max(now_ms, self._look_once(now_ms))
        for name, target in self._targets.items():
            if name in self._sent:
                continue
            message = next_message(
                self.state.told[name], self.state.opened, self._rules, target.events, now_ms
            )
            if message is not None:
                said = title(message, self._pipeline, target.resolves), body(message)
                trouble = bool(message.new or message.lasting)
                answer = self._pool.submit(
                    target.send, *said, trouble, self._rules.timeout_ms / 1000
                )
                self._sent[name] = _Sent(message, said[0], answer)
        self._keep()

    def rest(self, seconds: float) -> None:
        """Do nothing for so long, or until a target answers: that is to be kept in mind at once."""
        if self._sent:
            wait(
                [sent.answer for sent in self._sent.values()],
                timeout=seconds,
                return_when=FIRST_COMPLETED,
            )
        else:
            time.sleep(seconds)

    def settle(self, now_ms: int) -> bool:
        """Wait for answers to what is under way, for as long as targets may take.

        Returns whether anything was.
        """
        under_way = [sent.answer for sent in self._sent.values()]
        wait(under_way)
        self._hear(now_ms)
        self._keep()
        return bool(under_way)

    def close(self) -> None:
        """Begin no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _look_once(self, now_ms: int) -> int:
        """Returns when it was."""
        try:
            found, self.blind = self._look(), False
        except Exception as error:
            # whatever it is: it is one of the troubles to tell of, and who is to tell must not end
            # by it
            text = f"tables can't be looked at ({type(error).__name__}: {error})"
            self._warn(f"{text}: it is tried again every {self._rules.poll_interval_ms / 1000:g} s")
            trouble = HealthEvent(
                "job_unknown",
                "",
                "tables",
                text,
                "lbctl status says more; until they can be, nothing else is told",
            )
            found, self.blind = HealthEvents(now_ms, (trouble,), blind=True), True
        self.state = WatcherState(
            update_open_events(self.state.opened, found, self._rules), self.state.told
        )
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
            after = (
                after_accepted(told, sent.message, self._rules)
                if answer.is_accepted
                else after_refused(told, now_ms)
            )
            self.state = WatcherState(self.state.opened, {**self.state.told, name: after})
            self._note(self._targets[name], sent.title, answer)

    def _keep(self) -> None:
        told = frozenset[tuple[str, str, str]]().union(
            *(target_state.keys for target_state in self.state.told.values())
        )
        under_way = {
            entry.trouble.key
            for sent in self._sent.values()
            for entry in (*sent.message.new, *sent.message.lasting)
        }
        state = WatcherState(drop_resolved(self.state.opened, told | under_way), self.state.told)
        self.state = state
        if state == self._saved:
            return
        try:
            self._save(state)
            self._saved = state
        except OSError as error:  # a full disk is one of the troubles to tell of
            self._warn(
                f"can't keep what has been told ({error}): after a restart some of it is told again"
            )


def _of_events(told: TargetState, events: Sequence[Event]) -> TargetState:
    """Without what the target doesn't hear of any more."""
    return replace(
        told, groups={event: group for event, group in told.groups.items() if event in events}
    )
