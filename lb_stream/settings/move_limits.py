"""The settings that limit a cluster's moves, for readers, who load no strategy."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.contracts.keys import GivenSettings, build_settings
from lb_stream.settings.spelling import lay_over, list_names, to_our_names


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """Those keys of the balancer's that depend on no strategy, load manager or profile."""

    mode: Literal["observe", "approve", "act"]
    disruption_windows: tuple[str, ...]
    freezes: tuple[str, ...]
    freeze: str
    max_moves_in_flight_per_broker: int
    shedding_excluded_namespaces: tuple[str, ...]
    profile_change_delay_ms: int
    rollout_back_within_ms: int


_KEYS = frozenset(field.name for field in fields(MoveLimits))


def resolve_move_limits(own: GivenSettings, overrides: GivenSettings) -> MoveLimits:
    """Resolve a cluster's own settings and operators' overrides, under our names or Pulsar's.

    Raises SettingError for a wrong value of these keys; other keys are not checked.
    """
    layers = _select_limits(own), _select_limits(overrides)
    checked = build_settings(BalancerConfig, lay_over(*layers, overrides))
    return MoveLimits(**{name: getattr(checked, name) for name in _KEYS})


def find_set_profile(own: GivenSettings, overrides: GivenSettings) -> str | None:
    """Return the profile that a setting names; None: it follows the brokers' versions."""
    profile = overrides.get("profile", own.get("profile"))
    return None if profile is None else str(profile)


def _select_limits(values: GivenSettings) -> dict[str, object]:
    """Return the keys of MoveLimits among these settings, under our names."""
    known = {name: ours for name, ours in list_names((BalancerConfig,)).items() if ours[0] in _KEYS}
    return to_our_names({name: value for name, value in values.items() if name in known}, known)
