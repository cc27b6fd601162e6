"""A decision of the stream's bench."""

from typing import Any

from lb_stream.contracts.decisions import Decision, Explain


def decision(kind: Any, bundle: str, source: str | None, destination: str | None) -> Decision:
    return Decision(
        decision_id="bench-0001:1:1",
        cluster="bench-0001",
        seq=1,
        epoch=1,
        kind=kind,
        bundle=bundle,
        source=source,
        destination=destination,
        expected_owner=source,
        expected_version=1,
        reason="Overloaded",
        rule="above_average",
        strategy="ThresholdShedder",
        issued_ms=1,
        expires_ms=2,
        dry_run=False,
        explain=Explain(unit=""),
    )
