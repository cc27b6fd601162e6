"""Ownership records: what each decision and each report makes of them. Source: spec/ownership.md §2.

Versions start at 1 and grow by one with each record that a decision leads to; only bundles that have left version 1 are
remembered, the others' version is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from lb_stream.contracts.decisions import Decision, DecisionKind, Ownership, OwnershipState
from lb_stream.core.memory import Pending
from lb_stream.core.view import ClusterView

STATES: dict[DecisionKind, OwnershipState] = {
    "assign": "Assigning",
    "unload": "Releasing",
    "transfer": "Releasing",
    "split": "Splitting",
}
"""The state of a bundle while a decision about it is under way."""


MOST_PUBLISHED = 5_000
"""Ownership records that one round adds on top of what has happened in it: a million at once would hold up every decision."""


@dataclass(slots=True)
class Ledger:
    """The ownership records of one round, in the order in which they come about."""

    cluster: str
    epoch: int
    versions: dict[str, int]
    records: list[Ownership] = field(default_factory=list)

    @staticmethod
    def of(cluster: str, epoch: int, versions: Mapping[str, int]) -> Ledger:
        """Before the round's first record."""
        return Ledger(cluster, epoch, dict(versions))

    def version(self, bundle: str) -> int:
        """The version of a bundle's last record."""
        return self.versions.get(bundle, 1)

    def decided(self, decision: Decision) -> None:
        """A decision's own record: of a bundle on its way, or in the middle of being split."""
        state: OwnershipState = STATES[decision.kind]
        owner = None if state == "Assigning" else decision.source
        self._write(decision.bundle, state, owner, decision.source, decision.destination, decision.issued_ms, decision.decision_id)

    def ended(self, pending: Pending, owner: str | None, at_ms: int, deleted: bool = False) -> None:
        """What a decision has come to: its bundle is somebody's, or free, or deleted: its children have taken its place."""
        state: OwnershipState = "Deleted" if deleted else "Owned" if owner else "Free"
        self._write(pending.bundle, state, owner, pending.source, owner, at_ms, pending.decision_id)

    def learned(self, view: ClusterView, published_to: str | None, decided: set[str]) -> str | None:
        """Bundles whose owner this batch's reports have changed; at the start, after a dry run and when very many have, all owned ones.

        That many records take several rounds, MOST_PUBLISHED in each: `published_to` is the name of the last one so far, and so is what is
        returned. None: all are on the topic.
        """
        owned, gained = view.bundles.owner >= 0, view.bundles.gained
        if published_to is None and np.count_nonzero(owned & gained) <= MOST_PUBLISHED:
            rows = gained
        else:
            begin = view.bundles.first_after(published_to) if published_to else 0
            waiting = begin + np.flatnonzero(owned[begin:] & ~view.bundles.system[begin:])
            now = waiting[:MOST_PUBLISHED]
            published_to = view.bundles.name(int(now[-1])) if len(now) < len(waiting) else None
            rows = gained & ~owned
            rows[:begin] |= gained[:begin]
            rows[now] = True
        for row in np.flatnonzero(rows & ~view.bundles.system).tolist():
            name, owner_row = view.bundles.name(row), int(view.bundles.owner[row])
            if name in decided:
                continue
            owner = view.brokers.names[owner_row] if owner_row >= 0 else None
            known = owner is not None and name not in self.versions
            since_ms = int(view.bundles.owner_since_ms[row])
            self._write(name, "Owned" if owner else "Free", owner, None, owner, since_ms, None, step=0 if known else 1)
        return published_to

    def _write(
        self,
        bundle: str,
        state: OwnershipState,
        owner: str | None,
        source: str | None,
        destination: str | None,
        since_ms: int,
        decision_id: str | None,
        step: int = 1,
    ) -> None:
        version = self.version(bundle) + step
        if version != 1:
            self.versions[bundle] = version
        self.records.append(
            Ownership(
                cluster=self.cluster,
                bundle=bundle,
                state=state,
                owner=owner,
                source=source,
                destination=destination,
                version=version,
                since_ms=since_ms,
                epoch=self.epoch,
                decision_id=decision_id,
            )
        )
