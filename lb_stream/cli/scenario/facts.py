"""Facts about a scenario: its size, its start, its imbalance if nothing moves, and oddities."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lb_stream.core.model.names import namespace_of
from lb_stream.sim.measures import Series, measure_trace
from lb_stream.sim.scenario.scenario import (
    LIMITS,
    Event,
    Fault,
    Floats,
    Scenario,
    ScenarioAntiAffinity,
    ScenarioIsolation,
    ScenarioRollout,
)

Facts = dict[str, Any]
"""A JSON object with facts."""
TOLERANCE_S = 1e-6


@dataclass(frozen=True)
class ScenarioFacts:
    """A scenario, and its series without any policy."""

    scenario: Scenario

    @cached_property
    def series(self) -> Series:
        """Return the series if nothing moves: bundles of dead brokers stay unassigned."""
        return measure_trace(self.scenario, []).series

    def summary(self) -> Facts:
        """Return what `lbctl scenario check` shows, for JSON."""
        given = self.scenario
        return {
            "name": given.name,
            "why": given.why,
            "length_s": given.end_s,
            "ticks": given.ticks,
            "load_steps": given.loads.shape[2],
            "judge_from_s": given.judge_from_s,
            "settled_from_s": given.settled_from_s,
            "brokers": len(given.brokers),
            "brokers_up": int(given.brokers.up.sum()),
            "bundles": len(given.bundles),
            "bundles_unowned": int((given.bundles.start_owner < 0).sum()),
            "namespaces": len(set(given.namespaces)),
            "clients": int((given.bundles.producers + given.bundles.consumers).sum()),
            "events": dict(Counter(event.kind for event in given.events))
            | ({} if given.rollout is None else {"rollout": 1}),
            "faults": dict(Counter(fault.kind for fault in given.faults)),
            "policies": {
                "isolation": len(given.policies.isolation),
                "anti_affinity": len(given.policies.anti_affinity),
                "pinned_namespaces": len(given.policies.pinned_namespaces),
                "budgets": len(given.policies.budgets),
            },
            "unreported": self.unreported(),
            "notes": self.notes(),
        }

    def unreported(self) -> Facts:
        """Return what load reports don't state, or state wrongly; empty: nothing of this kind."""
        given = self.scenario
        pairs = [
            (getattr(given.brokers, LIMITS[limit]), stated)
            for limit, stated in given.brokers.stated.items()
        ]
        unknown = [stated == 0 for _, stated in pairs]
        wrong = [(stated != 0) & (stated != true) for true, stated in pairs]
        found = {
            "brokers_with_unknown_limits": int(np.any(unknown, axis=0).sum()) if pairs else 0,
            "brokers_with_wrong_limits": int(np.any(wrong, axis=0).sum()) if pairs else 0,
            "brokers_with_background": int((self.background().max(axis=1) > 0).sum()),
            "topics": 0 if given.topics is None else len(given.topics),
        }
        return {name: count for name, count in found.items() if count}

    def background(self) -> Floats:
        """Return the cpu that no bundle causes: brokers × load steps, or × 1 if it is constant."""
        base, added = self.scenario.brokers.cpu_base, self.scenario.background
        found = np.zeros((len(self.scenario.brokers), 1))
        if base is not None:
            found += base[:, None]
        return found if added is None else found + added

    def details(self) -> Facts:
        """Return what `lbctl scenario show` shows beside that, for JSON. Usages are ratios."""
        series, last = self.series, len(self.series.t_s) - 1
        return {
            "unmoved": [
                {
                    "t_s": float(series.t_s[tick]),
                    "max_usage": float(series.max_usage[tick]),
                    "mean": float(series.available_mean[tick]),
                    "bound": float(series.bound[tick]),
                    "finest": None if self.finest is None else float(self.finest[tick]),
                    "orphaned": int(series.orphaned[tick]),
                }
                for tick in sorted({0, *self.scenario_ticks(), last})
            ],
            "at_start": self.brokers(),
            "events": [
                {"t_s": t_s, "what": what}
                for t_s, what in sorted(self.events(), key=lambda event: event[0])
            ],
            "faults": [
                {"from_s": fault.from_s, "to_s": fault.to_s, "what": self.fault(fault)}
                for fault in self.scenario.faults
            ],
        }

    @property
    def finest(self) -> Floats | None:
        """Return the bound if bundles were divided into their topics; None: they can't be split."""
        return None if self.scenario.topics is None else self.series.finest

    def scenario_ticks(self) -> list[int]:
        """Return the ticks at which judging begins and the disturbance should be over."""
        return [
            self.scenario.tick_of(t_s)
            for t_s in (self.scenario.judge_from_s, self.scenario.settled_from_s)
        ]

    def brokers(self) -> list[Facts]:
        """Return each broker at the start, the busiest first."""
        given = self.scenario
        count = len(given.brokers)
        place = given.bundles.start_owner + 1
        rate_in, rate_out, bytes_in, bytes_out = (
            np.bincount(place, load, count + 1)[1:] for load in given.loads_at(0)
        )
        cpu = (rate_in + rate_out) / given.brokers.cpu_msgs_per_s + (
            bytes_in + bytes_out
        ) / given.brokers.cpu_bytes_per_s
        background = self.background()[:, 0]
        columns = {
            "usage": np.nan_to_num(self.series.usage[0]),
            "cpu": cpu + background,
            "background": background,
            "bandwidth_in": bytes_in / given.brokers.bandwidth_in_bytes_per_s,
            "bandwidth_out": bytes_out / given.brokers.bandwidth_out_bytes_per_s,
        }
        bundles = np.bincount(place, minlength=count + 1)[1:]
        order = np.argsort(-columns["usage"], kind="stable").tolist()
        return [
            {
                "broker": given.brokers.names[row],
                "up": bool(given.brokers.up[row]),
                "bundles": int(bundles[row]),
                **{name: float(values[row]) for name, values in columns.items()},
            }
            for row in order
        ]

    def events(self) -> list[tuple[float, str]]:
        """Return times (s) and descriptions of events; the rollout comes last."""
        found = [(event.t_s, self.event(event)) for event in self.scenario.events]
        rollout = self.scenario.rollout
        if rollout is not None:
            found.append((rollout.t_s, self.rollout(rollout)))
        return found

    def rollout(self, rollout: ScenarioRollout) -> str:
        """Describe a rollout."""
        names = [self.scenario.brokers.names[row] for row in rollout.brokers]
        order = f"in this order: {', '.join(names)}" if rollout.in_order else "in any order"
        return (
            f"rollout: restart of {len(names)} brokers, {rollout.restart_s:g} s each, at most "
            f"{rollout.at_most} at a time, {order}"
        )

    def event(self, event: Event) -> str:
        """Describe an event."""
        broker = self.scenario.brokers.names[event.broker]
        return f"{event.kind} {broker}" + (
            f" to {event.factor:g} of its cpu" if event.kind == "slow" else ""
        )

    def fault(self, fault: Fault) -> str:
        """Describe a fault."""
        names = ", ".join(self.scenario.brokers.names[row] for row in fault.brokers)
        return f"{fault.kind} at {names}" + (
            f", {fault.delay_s:g} s old" if fault.kind == "stale_reports" else ""
        )

    def notes(self) -> list[str]:
        """Return notes on what is allowed and hardly intended."""
        given, notes = self.scenario, []
        phase = given.brokers.report_phase_s
        ticks = np.arange(given.ticks) * given.tick_s
        silent = [
            name
            for name, phase_s in zip(given.brokers.names, phase.tolist(), strict=True)
            if not (
                np.abs((ticks - phase_s + TOLERANCE_S) % given.report_interval_s) < 2 * TOLERANCE_S
            ).any()
        ]
        if silent:
            when = "no tick is at report_phase_s + n · report_interval_s"
            notes.append(
                f"{len(silent)} brokers never report by their rhythm, {silent[0]} first: {when}"
            )
        known = set(map(namespace_of, given.bundles.names))
        rules = given.policies
        walls: list[ScenarioIsolation | ScenarioAntiAffinity] = [
            *rules.isolation,
            *rules.anti_affinity,
        ]
        named = {name for policy in walls for name in policy.namespaces}
        unknown = sorted((named | {*rules.pinned_namespaces, *rules.budgets}) - known)
        if unknown:
            notes.append(
                f"policies name {len(unknown)} namespaces without a bundle, {unknown[0]} first"
            )
        if self.series.isolation[0]:
            notes.append(
                f"{int(self.series.isolation[0])} bundles start where isolation doesn't allow them"
            )
        if late := [fault for fault in given.faults if fault.to_s > given.end_s + TOLERANCE_S]:
            notes.append(f"{len(late)} faults last beyond the end, at {given.end_s:g} s")
        return notes
