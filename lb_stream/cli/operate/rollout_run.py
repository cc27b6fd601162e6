"""`lbctl rollout run`: has a hook restart each broker of a rollout, one after the other.

It only reads the tables and gives `rollout-next`: it may be killed at any time and run again.
"""

from __future__ import annotations

import shlex
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from lb_stream.cli.shared.output import CommandError, emit_line, note
from lb_stream.cli.shared.rollout_watch import describe_progress
from lb_stream.cli.shared.sending import SendOptions, request_results
from lb_stream.core.commands.rollouts import RolloutState
from lb_stream.core.model.policies import host_of
from lb_stream.core.model.rollout import BrokerProgress
from lb_stream.core.rollout.progress import count_begun
from lb_stream.query import QueryError
from lb_stream.query.cluster_state import ClusterState, read_cluster_states
from lb_stream.query.lake import open_lake
from lb_stream.query.rollouts import build_rollout_facts, load_rollout_events

NONE_ON = 3
"""Exit code: no rollout is on."""
POLL_S = 1.0
STOPS_WITHIN_S = 60.0
"""A broker that hasn't stopped this long after its hook has ended is named."""
RETRY_S = 5.0
MOST_DOUBLED = 4
"""A command that begins no broker is given again after twice as long, so often at most."""
JOB_BACK_WITHIN_S = 600.0
"""So long commands are given again while no job answers."""
LONGEST_LINE = 500


class HookFailed(Exception):
    """A hook has failed. The text says how."""


@dataclass(frozen=True, slots=True)
class RestartHook:
    """What restarts a broker: the words of a command, or a URL that gets a POST.

    {broker}, {host}, {cluster} and {rollout} in a word are replaced.
    """

    words: tuple[str, ...] = ()
    url: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    timeout_s: float = 600.0

    @staticmethod
    def parse(given: str, secret: str, timeout_s: float) -> RestartHook:
        """Return the hook of an option. Raises CommandError (2)."""
        from lb_stream.settings.files import read_secret

        given, secret = (
            read_secret((option,), value) for option, value in (("hook", given), ("secret", secret))
        )
        if given.startswith(("http://", "https://")):
            from lb_stream.agent.hooks import HookConfig

            try:
                HookConfig(before_move=given, secret=secret)
            except ValueError:
                text = "--hook '***': expected http(s)://HOST[:PORT]/PATH"
                raise CommandError(text, 2) from None
            return RestartHook((), given, secret, timeout_s)
        try:
            words = tuple(shlex.split(given))
        except ValueError as error:
            raise CommandError(f"--hook {given!r}: {error}", 2) from None
        if not words:
            raise CommandError("--hook: expected a command, or a URL", 2)
        if not any("{broker}" in word or "{host}" in word for word in words):
            raise CommandError(
                f"--hook {given!r}: expected {{broker}} or {{host}} in it: else it does not say "
                "which broker is to be restarted",
                2,
            )
        return RestartHook(words, "", "", timeout_s)

    def restart(self, cluster: str, rollout: str, broker: str) -> None:
        """Have a broker restarted. Raises HookFailed."""
        if self.url:
            self._post(cluster, rollout, broker)
            return
        values = {"broker": broker, "host": host_of(broker), "cluster": cluster, "rollout": rollout}
        words = list(self.words)
        for name, value in values.items():
            words = [word.replace(f"{{{name}}}", value) for word in words]
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C ends lbctl, not a restart that has begun
            )
        except OSError as error:
            raise HookFailed(f"{words[0]}: {error.strerror or error}") from None
        printer = threading.Thread(target=_print_lines, args=(process, broker), daemon=True)
        printer.start()
        try:
            code = process.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise HookFailed(f"{words[0]} has not ended after {self.timeout_s:g} s") from None
        printer.join(1.0)
        if code:
            raise HookFailed(f"{words[0]} has ended with code {code}")

    def _post(self, cluster: str, rollout: str, broker: str) -> None:
        from lb_stream.agent.hooks import HookConfig, HookError, call_hook
        from lb_stream.contracts.base import canonical_json

        body = {
            "event": "restart_broker",
            "broker": broker,
            "cluster": cluster,
            "rollout": rollout,
            "sent_ms": time.time_ns() // 1_000_000,
        }
        config = HookConfig(before_move=self.url, secret=self.secret)
        try:
            call_hook(self.url, canonical_json(body).encode(), config, self.timeout_s)
        except HookError as error:
            raise HookFailed(str(error)) from None


def _print_lines(process: subprocess.Popen[str], broker: str) -> None:
    """Note what a hook prints."""
    assert process.stdout is not None
    for line in process.stdout:
        note(f"{broker}: {line.rstrip()[:LONGEST_LINE]}")


@dataclass(slots=True)
class _Call:
    """A call of the hook for one broker, in a thread of its own."""

    hook: RestartHook
    cluster: str
    rollout: str
    broker: str
    began_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None
    error: str = ""
    is_named: bool = False  # that it has not stopped

    def start(self) -> None:
        """Begin the call."""
        threading.Thread(target=self._run, name=f"hook-{self.broker}", daemon=True).start()

    def _run(self) -> None:
        try:
            self.hook.restart(self.cluster, self.rollout, self.broker)
        except HookFailed as error:
            self.error = str(error)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
        self.ended_s = time.monotonic()


@dataclass(slots=True)
class RolloutRunner:
    """Runs the rollout of one cluster to its end.

    `restarted`: the brokers that have come back while it ran.
    """

    options: SendOptions
    cluster: str
    hook: RestartHook
    rollout: str = ""
    restarted: list[str] = field(default_factory=list)
    _calls: dict[str, _Call] = field(default_factory=dict)
    _phases: dict[str, BrokerProgress] = field(default_factory=dict)
    _told: str = ""
    _next_s: float = 0.0  # when the next command may be given
    _in_vain: int = 0  # commands since a broker has last changed its phase
    _no_job_s: float | None = None  # since when no job answers

    def run(self) -> str:
        """Run until the rollout has ended; return how, as a text.

        Raises CommandError: code 3 without a rollout; 1 if a hook fails, if the rollout stands
        still, or if somebody aborts it.
        """
        while (end := self._step()) is None:
            time.sleep(POLL_S)
        return end

    def _step(self) -> str | None:
        """Look once, and do what is due. Return how the rollout has ended; None: it goes on."""
        self._check_calls()
        with suppress(QueryError, OSError), open_lake(self.options.given.tables) as lake:
            states = read_cluster_states(lake, self.cluster)
            order = states[0].operator_state.rollout if states else None
            if order is not None and self.rollout not in ("", order.id):
                raise CommandError(f"the rollout {self.rollout} is over: {order.id} is on")
            if order is not None and not order.aborted:
                self.rollout = order.id
                line = describe_progress(lake, states[0])
                self._follow(states[0])
                self._tell(line)
                self._begin_next(states[0])
                return None
            if not self.rollout:
                text = f"no rollout of {self.cluster} is on: lbctl rollout start begins one"
                raise CommandError(text, NONE_ON)
            events = load_rollout_events(lake, self.cluster, self.rollout)
            last = [event for event in events if event["phase"] in ("ended", "aborted")]
            phases = {event["broker"]: event["phase"] for event in events if event["broker"]}
            is_left_out = any(phase != "done" for phase in phases.values())
            if last and (last[-1]["phase"] == "aborted" or is_left_out):
                raise CommandError(str(last[-1]["text"]))
            if last:
                return str(last[-1]["text"])
        return None

    def _follow(self, state: ClusterState) -> None:
        """Print what is new of each broker, and call the hook for those that are empty."""
        progress = state.memory.rollout
        brokers = {} if progress is None or progress.id != self.rollout else progress.brokers
        for name, broker in brokers.items():
            was = self._phases.get(name)
            if broker.phase == "empty" and name not in self._calls:
                self._print(f"{name} is empty: the hook restarts it")
                call = _Call(self.hook, self.cluster, self.rollout, name)
                self._calls[name] = call
                call.start()
            if broker.phase in ("down", "done") and name in self._calls:
                del self._calls[name]
            if was is not None and broker.phase == "done" and was.phase != "done":
                self.restarted.append(name)
                self._print(f"{name} is back")
        phases = {name: broker.phase for name, broker in brokers.items()}
        if phases != {name: broker.phase for name, broker in self._phases.items()}:
            self._next_s, self._in_vain = 0.0, 0
        self._phases = dict(brokers)
        facts = build_rollout_facts(state.memory)
        if facts is not None and facts.still_ms is not None and not self._is_restarting():
            raise CommandError(
                f"{facts.text}. Repair it, then run this again; lbctl rollout resume has it go on "
                "without brokers that are missing"
            )

    def _is_restarting(self) -> bool:
        """Return whether a hook restarts a broker now: it stops soon, and then it is awaited anew.

        So the command also takes up a rollout that stands still as nobody has restarted a broker.
        """
        now_s = time.monotonic()
        return any(
            call.ended_s is None or now_s - call.ended_s <= STOPS_WITHIN_S
            for call in self._calls.values()
        )

    def _check_calls(self) -> None:
        """Raise CommandError if a hook has failed; name brokers that don't stop."""
        for broker, call in self._calls.items():
            if call.error:
                raise CommandError(
                    f"the hook has failed for {broker}: {call.error}. {broker} stays empty; run "
                    "this again, or restart it by hand"
                )
            if call.ended_s is None or call.is_named:
                continue
            if time.monotonic() - call.ended_s > STOPS_WITHIN_S:
                call.is_named = True
                note(f"{broker}: its hook has ended, and it has not stopped yet")

    def _begin_next(self, state: ClusterState) -> None:
        """Give `rollout-next` where another broker may be begun and none has been asked for."""
        order = state.operator_state.rollout
        assert order is not None
        now = RolloutState(order, state.memory.rollout)
        is_full = count_begun(order, now.known) >= order.at_most
        if order.paused or is_full or not now.waiting or now.left_to_begin:
            return
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + RETRY_S * 2 ** min(self._in_vain, MOST_DOUBLED)
        self._in_vain += 1
        try:
            for answers in request_results(self.options, [("rollout-next", {})], until_done=False):
                for answer in answers.values():
                    if answer.outcome in ("refused", "failed"):
                        note(f"{answer.outcome} ({answer.rule}): {answer.text}")
            self._no_job_s = None
        except CommandError as error:
            self._tell(str(error))
            self._no_job_s = self._no_job_s or time.monotonic()
            if time.monotonic() - self._no_job_s > JOB_BACK_WITHIN_S:
                raise

    def _print(self, text: str) -> None:
        if self.options.json:
            note(text)
        else:
            emit_line(text)

    def _tell(self, line: str) -> None:
        if line and line != self._told:
            note(line)
        self._told = line
