"""Whether and when a cluster's settings let bundles move: for readers, who need no strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.contracts.keys import build_settings
from lb_stream.settings.spelling import lay_over, list_names, to_our_names


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """Some of the balancer's keys, those that depend on no strategy, load manager or profile."""

    mode: Literal["observe", "approve", "act"]
    disruption_windows: tuple[str, ...]
    freezes: tuple[str, ...]
    freeze: str
    max_moves_in_flight_per_broker: int


_KEYS = frozenset(field.name for field in fields(MoveLimits))


def resolve_move_limits(given: Mapping[str, Any], commanded: Mapping[str, Any]) -> MoveLimits:
    """What is in force when commands lie over a cluster's own settings.

    Both may be under our names or Pulsar's. Raises SettingError for a wrong value of these keys;
    other keys are not looked at.
    """
    own, over = _limits_in(given), _limits_in(commanded)
    checked = build_settings(BalancerConfig, lay_over(own, over, commanded))
    return MoveLimits(**{name: getattr(checked, name) for name in _KEYS})


def _limits_in(values: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: ours for name, ours in list_names((BalancerConfig,)).items() if ours[0] in _KEYS}
    return to_our_names({name: value for name, value in values.items() if name in known}, known)
