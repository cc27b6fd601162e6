"""A shadow's settings: its own over its cluster's, but for those that only the cluster itself can
have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.reports import ReportConfig
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.shadow.evaluate import REAL
from lb_stream.core.splitting import SplittingConfig
from lb_stream.settings.names import normalise_names
from lb_stream.settings.resolve import ResolvedSettings, apply_overrides, resolve

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

FORCED = {"mode": "act", "split_enabled": False, "merge_advice_enabled": False}
"""A shadow counts its own moves, as if they were published.

It splits nothing: nobody knows what the halves would carry.
"""

_OF_THE_CLUSTER = dict.fromkeys(
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
        "a shadow publishes nothing, ever",
    ),
    "tombstone_delay_ms": "a shadow has no ownership records",
}


def check_shadow(name: str, own: Mapping[str, Any]) -> None:
    """Raise SettingError for a name that can't be a shadow's, or a key that is not a shadow's to
    set. `own`: under any names."""
    if not NAME.fullmatch(name) or name == REAL:
        raise SettingError(
            name,
            dict(own),
            f"a shadow's name: letters, digits, dashes, underscores, 64 at most, and not {REAL!r}",
        )
    for key, value in normalise_names(own).items():
        if why := _OF_THE_CLUSTER.get(key):
            raise SettingError(key, value, f"to be set for the cluster, not for a shadow: {why}")


def resolve_shadow(
    given: Mapping[str, Any], commanded: Mapping[str, Any], own: Mapping[str, Any]
) -> ResolvedSettings:
    """Resolve a shadow's own settings, over those that commands have set, over the cluster's.

    Raises SettingError.
    """
    return resolve(apply_overrides(given, commanded) | normalise_names(own) | FORCED)


def shadow_config(
    given: Mapping[str, Any], commanded: Mapping[str, Any], own: Mapping[str, Any]
) -> ClusterConfig:
    """Resolve what a shadow's rounds run with, as `resolve_shadow`."""
    return resolve_shadow(given, commanded, own).config
