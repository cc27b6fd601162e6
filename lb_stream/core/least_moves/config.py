"""Settings of LeastMoves."""

from __future__ import annotations

from lb_stream.contracts.keys import KeyModel, key


class LeastMovesConfig(KeyModel):
    """Settings of LeastMoves. Factors are of an even load: what a broker carries when load is spread as well as rules allow."""

    least_moves_trigger: float = key(1.08, "a broker above this is hot: a pass begins", unit="factor", gt=1)
    least_moves_enough: float = key(1.05, "a pass relieves brokers above this until they are below it", unit="factor", ge=1)
    least_moves_aim: float = key(1.02, "they are brought down to this where that takes no more moves", unit="factor", ge=1)
    least_moves_destination: float = key(1.035, "no destination is filled beyond this", unit="factor", ge=1)
    least_moves_certainty: float = key(
        3.0, "a broker must be above the trigger by so many standard errors of what is known of it", unit="standard errors", ge=0
    )
    least_moves_patience_ms: int = key(60_000, "a broker must have been hot for so long, unless it is full", unit="ms", ge=0)
    least_moves_into_broker: int = key(20, "unconfirmed moves into one broker at one time: a new one is filled step by step", ge=1)
    least_moves_dwell_ms: int = key(600_000, "a bundle stays at least so long where it was moved to", unit="ms", ge=0)
