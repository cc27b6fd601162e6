"""Settings of LeastMoves."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from lb_stream.contracts.keys import KeyModel, SettingError, key

IN_ORDER = (
    ("least_moves_target_ratio", "least_moves_acceptable_ratio"),
    ("least_moves_max_destination_ratio", "least_moves_acceptable_ratio"),
    ("least_moves_acceptable_ratio", "least_moves_trigger_ratio"),
)
"""The first setting of each pair is at most the second. Otherwise one pass would leave or make
brokers that the next pass relieves."""


class LeastMovesConfig(KeyModel):
    """Settings of LeastMoves. Factors are multiples of a broker's even load."""

    least_moves_trigger_ratio: float = key(
        1.08,
        "A pass begins when a broker's load is above this multiple of its target.",
        unit="factor",
        gt=1,
    )
    least_moves_acceptable_ratio: float = key(
        1.0475,
        "A pass relieves brokers whose load is above this multiple of their target.",
        unit="factor",
        ge=1,
    )
    least_moves_target_ratio: float = key(
        1.01,
        "A pass brings these brokers down to this, as far as least_moves_extra_moves_ratio allows.",
        unit="factor",
        ge=1,
    )
    least_moves_extra_moves_ratio: float = key(
        0.095,
        "Extra moves beyond the fewest possible, as a part of those, with which a pass comes "
        "nearer to the target. Half are made at once, the others by fine-tuning.",
        unit="ratio",
        ge=0,
    )
    least_moves_fine_tune_after_ms: int = key(
        300_000,
        "Time between the last moves and fine-tuning of the fullest brokers. By then their loads "
        "are well known. 0: no fine-tuning.",
        unit="ms",
        ge=0,
    )
    least_moves_max_destination_ratio: float = key(
        1.035,
        "No move brings its destination above this multiple of its target.",
        unit="factor",
        ge=1,
    )
    least_moves_min_gain_ratio: float = key(
        0.001,
        "A move takes at least this part of its source's target: bundles with less load stay.",
        unit="ratio",
        ge=0,
        lt=1,
    )
    least_moves_min_target_ratio: float = key(
        0.01,
        "No broker's target is a lower usage than this: it is worth no move to make brokers even "
        "that are nearly idle.",
        unit="ratio",
        ge=0,
        lt=1,
    )
    least_moves_min_standard_errors: float = key(
        3.0,
        "A broker must be above the trigger by this many standard errors of its estimated load.",
        unit="standard errors",
        ge=0,
    )
    least_moves_hot_for_ms: int = key(
        45_000,
        "How long a broker must be hot before a pass begins. A full broker is relieved at once.",
        unit="ms",
        ge=0,
    )
    least_moves_max_moves_into_broker: int = key(
        20, "Maximum pending moves into one broker: a new broker is filled in steps.", ge=1
    )
    least_moves_reconnect_ms: int = key(
        2_000,
        "Time that each client of a moved bundle loses to reconnect, after a broker serves the "
        "bundle again.",
        unit="ms",
        ge=0,
    )
    least_moves_payback_ms: int = key(
        600_000,
        "Within this time a move must save clients as much time as it takes from them.",
        unit="ms",
        ge=1,
    )
    least_moves_min_dwell_ms: int = key(
        600_000, "A bundle that has moved stays for at least this time.", unit="ms", ge=0
    )

    least_moves_splits: bool = key(
        True,
        "Whether a plan splits bundles that are larger than an even load. Limits such as "
        "bundle_max_topics then split none, unless split_by_limits is always.",
    )
    least_moves_min_split_gain_ratio: float = key(
        0.02,
        "The price of a split, which is for ever: for each bundle that it adds, the max usage "
        "after the plan's moves must be lower by this part than without the split.",
        unit="ratio",
        ge=0,
    )
    least_moves_split_grown_ms: int = key(
        600_000,
        "How long a bundle must be larger than an even load before a plan splits it, if its "
        "long-term average is not: it may be a passing peak. Else least_moves_hot_for_ms counts.",
        unit="ms",
        ge=0,
    )
    least_moves_max_splits_per_hour: int = key(
        4, "Maximum splits of one namespace that plans make within an hour.", unit="splits", ge=0
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for low, high in IN_ORDER:
            least, most = getattr(self, low), getattr(self, high)
            if least > most and (low in self.model_fields_set or high not in self.model_fields_set):
                raise SettingError(low, least, f"{most:g} or less: {high}")
            if least > most:
                raise SettingError(high, most, f"{least:g} or more: {low}")
        return self
