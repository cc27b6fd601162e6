"""The misspelt bandwidth weights of old broker.conf files."""

from typing import Any

import pytest

from lb_stream.contracts.keys import SettingError
from lb_stream.settings.resolve import cluster_config

NEW, OLD = "loadBalancerBandwidthInResourceWeight", "loadBalancerBandwithInResourceWeight"


@pytest.mark.parametrize(
    ("given", "weight"),
    [
        ({}, 1.0),
        ({OLD: 0.5}, 0.5),
        ({OLD: "0.5"}, 0.5),
        ({OLD: 0.5, NEW: 0.25}, 0.25),
        ({NEW: 0.25, OLD: 0.5}, 0.25),
        ({OLD: 0.5, NEW: 1.0}, 0.5),
        ({OLD: 0.5, "bandwidth_in_weight": "1.0"}, 0.5),
        ({OLD: 1, NEW: 0.25}, 0.25),
    ],
)
def test_the_old_spelling_counts_while_the_new_one_is_1(
    given: dict[str, Any], weight: float
) -> None:
    assert cluster_config(given).balancer.bandwidth_in_weight == weight
    assert cluster_config(given).balancer.bandwidth_out_weight == 1.0


def test_a_wrong_value_under_the_old_spelling_is_refused() -> None:
    with pytest.raises(SettingError, match="bandwidth_in_weight"):
        cluster_config({OLD: "much"})
