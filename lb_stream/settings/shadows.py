"""A shadow's settings: its own over its cluster's, except those that only a cluster may have."""

from __future__ import annotations

import re

from lb_stream.contracts.keys import GivenSettings, SettingError
from lb_stream.contracts.reports import ReportConfig
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.followed_profile import UNKNOWN
from lb_stream.core.shadow.evaluate import REAL
from lb_stream.core.splitting import SplittingConfig
from lb_stream.settings.names import normalise_names
from lb_stream.settings.resolve import ResolvedSettings, apply_overrides, resolve

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

FORCED = {"mode": "act", "split_enabled": False, "merge_advice_enabled": False}
"""Settings that each shadow has. It counts its own moves as if they were published.

It splits nothing, because what the halves would carry is unknown.
"""

_ONLY_OF_CLUSTERS = dict.fromkeys(
    ReportConfig.model_fields, "agents report once for all policies"
) | {
    **dict.fromkeys(
        ("short_samples", "long_samples", "sample_mode"), "all policies see the same averages"
    ),
    **dict.fromkeys(
        ("bundle_retention_ms", "broker_retention_ms"),
        "all policies see the same brokers and bundles",
    ),
    **dict.fromkeys(SplittingConfig.model_fields, "a shadow splits nothing"),
    **dict.fromkeys(
        ("mode", "auto_approve", "max_proposals", "proposal_expires_ms"),
        "a shadow publishes nothing",
    ),
    "broker_capacities": "all policies see the same brokers",
    "tombstone_delay_ms": "a shadow has no ownership records",
}
"""Key that a shadow may not set → why."""


def check_shadow(name: str, own: GivenSettings) -> None:
    """Require a shadow's name, and keys that a shadow may set. Raises SettingError.

    `own`: the shadow's settings, under our names or Pulsar's.
    """
    if not NAME.fullmatch(name) or name == REAL:
        raise SettingError(
            name,
            dict(own),
            f"a shadow's name: letters, digits, dashes, underscores, 64 at most, and not {REAL!r}",
        )
    for key, value in normalise_names(own).items():
        if why := _ONLY_OF_CLUSTERS.get(key):
            raise SettingError(key, value, f"this key in the cluster's section only: {why}")


def resolve_shadow(
    cluster: GivenSettings,
    overrides: GivenSettings,
    own: GivenSettings,
    followed: str = UNKNOWN,
) -> ResolvedSettings:
    """Resolve a shadow's own settings, over operators' overrides, over its cluster's settings.

    `followed`: the cluster's profile where no setting names one. Raises SettingError.
    """
    given = apply_overrides(cluster, overrides) | normalise_names(own) | FORCED
    return resolve(given, followed=followed)


def resolve_shadow_config(
    cluster: GivenSettings, overrides: GivenSettings, followed: str, own: GivenSettings
) -> ClusterConfig:
    """Return the config with which a shadow's rounds run; see `resolve_shadow`."""
    return resolve_shadow(cluster, overrides, own, followed).config
