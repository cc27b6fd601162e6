"""Reads events repeatedly, sends each target its due messages, and saves what was sent.

Each target has a thread: a slow one delays neither others nor the next reading.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from lb_stream.contracts.settings import Event, NotifySettings
from lb_stream.notify.messages import build_body, build_title
from lb_stream.notify.open_events import Key, drop_resolved, update_open_events
from lb_stream.notify.schedule import (
    Message,
    TargetState,
    find_next_message,
    record_accepted,
    record_refused,
)
from lb_stream.notify.state_file import WatcherState
from lb_stream.notify.targets import Answer, Target
from lb_stream.query.screens.health_events import HealthEvent, HealthEvents

logger = logging.getLogger(__name__)

AnswerHandler = Callable[[Target, str, Answer], None]
"""Called with the target, the title of a message, and its answer."""


@dataclass(frozen=True, slots=True)
class _SentMessage:
    message: Message
    title: str
    answer: Future[Answer]


class Watcher:
    """Notifies targets of events. Times are given by the caller, in ms since the epoch.

    `read_events` gives the current events, `save` keeps the state, `on_answer` is called for each
    answer of a target.
    """

    def __init__(
        self,
        pipeline: str,
        settings: NotifySettings,
        targets: Sequence[Target],
        read_events: Callable[[], HealthEvents],
        save: Callable[[WatcherState], None],
        on_answer: AnswerHandler,
        state: WatcherState,
    ) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._read_events = read_events
        self._save = save
        self._on_answer = on_answer
        self._targets = {target.name: target for target in targets}
        target_states = {
            name: _keep_events(state.targets.get(name, TargetState()), target.events)
            for name, target in self._targets.items()
        }
        self.state = WatcherState(state.opened, target_states)
        self.last_reading_failed = False
        self._saved = state
        self._read_ms: int | None = None
        self._last_warning = ""
        self._sent: dict[str, _SentMessage] = {}
        self._pool = ThreadPoolExecutor(
            max_workers=max(1, len(self._targets)), thread_name_prefix="notify"
        )

    def run_once(self, now_ms: int) -> None:
        """Take answers, read events if it is time, send what is due, save the state."""
        self._take_answers(now_ms)
        # The interval is over, or the clock has been put back.
        interval_ms = self._settings.poll_interval_ms
        if self._read_ms is None or not 0 <= now_ms - self._read_ms < interval_ms:
            self._read_ms = now_ms
            now_ms = max(now_ms, self._update_events(now_ms))
        for name, target in self._targets.items():
            if name in self._sent:
                continue
            state = self.state.targets[name]
            message = find_next_message(
                state, self.state.opened, self._settings, target.events, now_ms
            )
            if message is not None:
                self._send(target, message)
        self._save_state()

    def wait_for_answers(self, seconds: float) -> None:
        """Wait for `seconds`, or until a target answers: an answer is saved at once."""
        if self._sent:
            answers = [sent.answer for sent in self._sent.values()]
            wait(answers, timeout=seconds, return_when=FIRST_COMPLETED)
        else:
            time.sleep(seconds)

    def finish_sending(self, now_ms: int) -> bool:
        """Wait for all answers that have not come yet; return whether there was any."""
        answers = [sent.answer for sent in self._sent.values()]
        wait(answers)
        self._take_answers(now_ms)
        self._save_state()
        return bool(answers)

    def close(self) -> None:
        """Send no further messages."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _send(self, target: Target, message: Message) -> None:
        """Begin to send a message in a thread."""
        title = build_title(message, self._pipeline, target.needs_same_title)
        is_problem = bool(message.new or message.lasting)
        timeout_s = self._settings.timeout_ms / 1000
        answer = self._pool.submit(target.send, title, build_body(message), is_problem, timeout_s)
        self._sent[target.name] = _SentMessage(message, title, answer)

    def _update_events(self, now_ms: int) -> int:
        """Read the events and update the state with them; return the time of the reading."""
        self.last_reading_failed = False
        try:
            found = self._read_events()
        # Targets are notified of any failure, so it must not end the watcher.
        except Exception as error:
            text = f"the tables can't be read ({type(error).__name__}: {error})"
            interval_s = self._settings.poll_interval_ms / 1000
            self._warn(f"{text}: they are tried again every {interval_s:g} s")
            advice = "lbctl status says more; until they can be read, there are no other events"
            event = HealthEvent("job_unknown", "", "tables", text, advice)
            found = HealthEvents(now_ms, (event,), is_unreadable=True)
            self.last_reading_failed = True
        opened = update_open_events(self.state.opened, found, self._settings)
        self.state = WatcherState(opened, self.state.targets)
        return found.now_ms

    def _warn(self, text: str) -> None:
        """Log a warning, unless the last one was the same."""
        if text != self._last_warning:
            logger.warning("%s", text)
        self._last_warning = text

    def _take_answers(self, now_ms: int) -> None:
        """Record the answers that have arrived."""
        for name, sent in list(self._sent.items()):
            if not sent.answer.done():
                continue
            del self._sent[name]
            answer, before = sent.answer.result(), self.state.targets[name]
            after = record_refused(before, now_ms)
            if answer.is_accepted:
                after = record_accepted(before, sent.message, self._settings)
            self.state = WatcherState(self.state.opened, {**self.state.targets, name: after})
            self._on_answer(self._targets[name], sent.title, answer)

    def _save_state(self) -> None:
        """Drop ended events that no target waits for, and save the state if it has changed."""
        target_states = self.state.targets.values()
        sent_keys = {key for target_state in target_states for key in target_state.keys}
        keys_in_flight: set[Key] = {
            entry.event.key
            for sent in self._sent.values()
            for entry in (*sent.message.new, *sent.message.lasting)
        }
        opened = drop_resolved(self.state.opened, sent_keys | keys_in_flight)
        self.state = WatcherState(opened, self.state.targets)
        if self.state == self._saved:
            return
        try:
            self._save(self.state)
            self._saved = self.state
        except OSError as error:  # a full disk is an event to notify of: the watcher goes on
            self._warn(
                f"can't save what was sent ({error}): after a restart some messages are sent again"
            )


def _keep_events(state: TargetState, names: Sequence[Event]) -> TargetState:
    """Return the state of a target without events whose names it no longer has."""
    return replace(state, sent={name: sent for name, sent in state.sent.items() if name in names})
