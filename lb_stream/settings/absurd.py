"""Settings that are legal but absurd: a command that sets one must be forced.

They are typing errors more often than wishes: a zero too many, seconds for minutes. Of those in the
job's own files, environment and arguments the job warns when it starts, and goes by them: there is
nobody whom it could ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lb_stream.contracts.keys import GivenSettings
from lb_stream.core.config.windows import freeze_of

SECOND_MS, MINUTE_MS, DAY_MS = 1_000, 60_000, 86_400_000
LARGEST = 1e15
"""No figure of a cluster is as large: a petabyte a second."""


@dataclass(frozen=True, slots=True)
class Sensible:
    """The values that a setting has in its right mind, and what those outside would do."""

    least: float = -LARGEST
    most: float = LARGEST
    below: str = ""
    above: str = ""

    def explain(self, value: float) -> str | None:
        """Explain what a value would do; None: nothing absurd."""
        if value < self.least:
            return self.below or "no figure of a cluster is as small"
        if value > self.most:
            return self.above or "no figure of a cluster is as large"
        return None


_DEAD = "brokers count as dead between two of their records, and their bundles move"
SENSIBLE: dict[str, Sensible] = {
    "shedding_interval_ms": Sensible(
        SECOND_MS,
        7 * DAY_MS,
        "each batch with a new report sheds: bundles move faster than their loads are measured",
        "balancing sheds less than once a week",
    ),
    "shedding_grace_period_ms": Sensible(
        most=30 * DAY_MS, above="a bundle that was shed once stays for more than a month"
    ),
    "min_dwell_ms": Sensible(
        most=30 * DAY_MS, above="a bundle is not shed within a month after it came"
    ),
    "heartbeat_timeout_ms": Sensible(
        6 * SECOND_MS, DAY_MS, _DEAD, "bundles of a dead broker have no owner for more than a day"
    ),
    "report_timeout_ms": Sensible(
        MINUTE_MS,
        7 * DAY_MS,
        _DEAD,
        "bundles of a dead broker without heartbeats have no owner for more than a week",
    ),
    "silent_after_ms": Sensible(
        6 * SECOND_MS,
        DAY_MS,
        "brokers get no bundle between two of their heartbeats",
        "bundles are sent to brokers that have been silent for a day",
    ),
    "mass_disappearance_wait_ms": Sensible(
        most=DAY_MS, above="bundles have no owner for more than a day when many brokers die"
    ),
    "unloading_timeout_ms": Sensible(
        SECOND_MS,
        DAY_MS,
        "decisions expire before a broker can carry them out",
        "a lost decision holds up its bundle for more than a day",
    ),
    "proposal_expires_ms": Sensible(
        10 * SECOND_MS,
        30 * DAY_MS,
        "proposals expire before anybody can approve them",
        "proposals wait for more than a month, and loads change meanwhile",
    ),
    "rollout_back_within_ms": Sensible(
        10 * SECOND_MS,
        7 * DAY_MS,
        "rollouts stand still with each restart",
        "a rollout waits for more than a week for a broker that doesn't come back",
    ),
    "overloaded_threshold_percent": Sensible(
        least=10, below="nearly every broker is above it, and gets no new bundle"
    ),
    "broker_max_topics": Sensible(least=1, below="no broker with a topic gets a bundle"),
    "max_assignments_per_minute": Sensible(
        least=10, below="a failover of a thousand bundles takes hours"
    ),
}
"""Setting, under our name → its sensible values. Of others only the size is looked at."""


def explain_absurd(values: GivenSettings) -> list[str]:
    """Explain what absurd values would do: `setting = value: effect`. `values`: under our names."""
    return [f"{name} = {values[name]!r}: {effect}" for name, effect in _find_absurd(values)]


def _find_absurd(values: GivenSettings) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if name.rpartition(".")[2] == "freezes":
            if _has_long_freeze(value):
                yield name, "balancing moves nothing for more than a year"
            continue
        try:
            number = float(str(value))
        except ValueError:
            continue
        effect = None
        if not isinstance(value, bool):
            effect = SENSIBLE.get(name, Sensible()).explain(number)
        if effect is not None:
            yield name, effect


def _has_long_freeze(value: object) -> bool:
    texts = value.split(";") if isinstance(value, str) else value
    assert isinstance(texts, list | tuple)
    freezes = [freeze_of(str(text).strip()) for text in texts if str(text).strip()]
    return any(freeze.to_ms - freeze.from_ms > 366 * DAY_MS for freeze in freezes)
