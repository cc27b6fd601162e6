"""Settings of LeastMoves."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from lb_stream.contracts.keys import KeyModel, SettingError, key

IN_ORDER = (
    ("least_moves_aim", "least_moves_enough"),
    ("least_moves_destination", "least_moves_enough"),
    ("least_moves_enough", "least_moves_trigger"),
)
"""The first of each pair is at most the second: else a pass would leave, or make, brokers that the
next one relieves."""


class LeastMovesConfig(KeyModel):
    """Settings of LeastMoves.

    Factors are of an even load: what a broker carries when load is spread as well as rules allow.
    """

    least_moves_trigger: float = key(
        1.08, "a broker above this is hot: a pass begins", unit="factor", gt=1
    )
    least_moves_enough: float = key(
        1.0475, "a pass relieves brokers above this until they are below it", unit="factor", ge=1
    )
    least_moves_aim: float = key(
        1.01, "they are brought down to this where least_moves_spare allows it", unit="factor", ge=1
    )
    least_moves_spare: float = key(
        0.095,
        "part of its moves that may be made beyond the fewest there can be, to bring all brokers "
        "nearer to the aim: "
        "half of it at once, what is left later, by touching up",
        unit="ratio",
        ge=0,
    )
    least_moves_touch_up_ms: int = key(
        300_000,
        "how long after its last moves it touches up the fullest brokers, by then well known; 0: "
        "never",
        unit="ms",
        ge=0,
    )
    least_moves_destination: float = key(
        1.035, "no destination is filled beyond this", unit="factor", ge=1
    )
    least_moves_certainty: float = key(
        3.0,
        "a broker must be above the trigger by so many standard errors of what is known of it",
        unit="standard errors",
        ge=0,
    )
    least_moves_patience_ms: int = key(
        45_000, "a broker must have been hot for so long, unless it is full", unit="ms", ge=0
    )
    least_moves_into_broker: int = key(
        20, "unconfirmed moves into one broker at one time: a new one is filled step by step", ge=1
    )
    least_moves_reconnect_ms: int = key(
        2_000,
        "what each client of a bundle that moves loses beside the time in which nobody serves it",
        unit="ms",
        ge=0,
    )
    least_moves_payback_ms: int = key(
        600_000,
        "a move must save clients as much time as it costs them within so long",
        unit="ms",
        ge=1,
    )
    least_moves_dwell_ms: int = key(
        600_000, "a bundle stays at least so long where it was moved to", unit="ms", ge=0
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
