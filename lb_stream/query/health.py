"""Judges from facts about job, clusters, tables and disk whether the balancer is healthy.

Every screen has its verdict from here: `lbctl status`, the warning above the output of other
commands, the job's `/health`. Times are ms since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Literal

from lb_stream.contracts.settings import Event
from lb_stream.io.messages.times import clock
from lb_stream.query.lake import Row
from lb_stream.query.profiles import ProfileFacts, describe_next
from lb_stream.query.references import Reference, Remedy, refer, remedy, remedy_each
from lb_stream.query.rollouts import RolloutFacts

State = Literal["healthy", "ended", "degraded", "down"]
EXIT_CODES: dict[State, int] = {"healthy": 0, "ended": 0, "degraded": 1, "down": 2}

SUSPENDING = frozenset({"mass_disappearance", "everything_silent"})
"""Rules by which brokers that vanish suspend their cluster (core.observing.liveness)."""
LAG_LIMIT = 5_000
"""Most unread records without a finding, if the settings don't limit the records of a batch."""
LATE_MS = 60_000
"""A job is late when its last batch is older than this.

Ticks make a batch every second; the table `batches` has it ten seconds later.
"""
LEAST_DISK_BYTES = 1 << 30
LEAST_DISK_SHARE = 0.05
MOST_NAMED = 3
MODE_STATES = {"observe": "dry run", "approve": "approving", "act": "live"}
"""A cluster's setting `mode` → its state."""
NOT_UP_TO_DATE = "not up to date"


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Facts about the job.

    `epoch` None: no job has ever been started. `running` None: not known. `evidence`: the source of
    `running`, as text.
    """

    pipeline: str
    epoch: int | None = None
    host: str = ""
    pid: int = 0
    since_ms: int | None = None
    running: bool | None = None
    evidence: str = ""
    last_batch_ms: int | None = None
    lag_records: int | None = None
    ticks: bool = True  # whether the job sends ticks


@dataclass(frozen=True, slots=True)
class StandbyFacts:
    """A standby. `instance`: host:pid; `warm`: it could take over at once."""

    instance: str
    warm: bool


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """One cluster after its last logged round.

    `retry_ms`: time of the next round, after too many failed ones; 0: at once.
    """

    cluster: str
    last_round_ms: int
    seq: int = 0
    error: str | None = None
    retry_ms: int = 0
    suspended_by: str | None = None  # the rule
    paused: bool = False
    held: str = ""  # text of the freeze or closed window that forbids moves; empty: none does
    mode: Literal["observe", "approve", "act"] = "act"
    proposals: int = 0  # that wait for approval
    drained: tuple[str, ...] = ()  # draining and drained brokers
    draining: tuple[str, ...] = ()  # those of them that have bundles or are to get some
    restarting: tuple[str, ...] = ()  # brokers that are away for a rollout, and soon back
    limited: tuple[str, ...] = ()  # brokers with the maximum of pending moves
    unlike: tuple[str, ...] = ()  # texts: brokers whose cpu is slow or busy, as LeastMoves sees it
    brokers: int = 0
    silent: tuple[str, ...] = ()  # recently dead, or their silence suspends the cluster
    gone: tuple[str, ...] = ()  # dead for long, or departed
    unmatched: tuple[str, ...] = ()  # expressions of isolation policies that match no live broker
    isolated: tuple[str, ...] = ()  # isolation policies that match no live broker at all
    doubtful: tuple[str, ...] = ()  # texts about limits that brokers' traffic contradicts
    bundles: int = 0
    pending: int = 0
    profile: ProfileFacts = field(default_factory=ProfileFacts)
    rollout: RolloutFacts | None = None  # that is on

    @property
    def dry_run(self) -> bool:
        """Return whether decisions are only logged."""
        return self.mode == "observe"

    @property
    def brokers_alive(self) -> int:
        """Return how many brokers are neither silent nor away."""
        return self.brokers - len(self.silent) - len(self.gone) - len(self.restarting)

    @property
    def suspended(self) -> bool:
        """Return whether decisions are suspended."""
        return self.suspended_by is not None or self.retry_ms > 0

    def state_of(self, broker: str) -> str:
        """Return the gravest state of a broker; empty: it is active and not limited."""
        states = ("silent", "gone", "restarting", "draining", "drained", "limited")
        return next((state for state in states if broker in getattr(self, state)), "")

    @property
    def state(self) -> str:
        """Return the gravest state of the cluster, as of its last round."""
        if self.suspended:
            return "SUSPENDED"
        if self.error:
            return "failing"
        if self.paused:
            return "paused"
        if self.held:
            return "held"
        return MODE_STATES[self.mode]


@dataclass(frozen=True, slots=True)
class DemoEnd:
    """The end of the demo that wrote the tables. `at`: time; `how`: "balanced", or the reason."""

    at: str
    how: str

    @property
    def sentence(self) -> str:
        """Return the end as a sentence without its full stop."""
        return f"the demo ended at {self.at}, {self.how}"


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts at one moment.

    `kafka`: the reason why Kafka doesn't answer; None: it does, or was not tried. `disk_free`:
    bytes; None: not known.
    """

    now_ms: int
    job: JobFacts
    clusters: tuple[ClusterFacts, ...] = ()
    kafka: str | None = None
    disk_free: int | None = None
    disk_size: int | None = None
    lag_limit: int = LAG_LIMIT  # records
    skipped_records: tuple[str, ...] = ()  # poison records: topic, partition, offset
    standbys: tuple[StandbyFacts, ...] | None = None  # None: not known
    demo_end: DemoEnd | None = None  # if a demo wrote the tables and has ended
    searches_poison_record: bool = False  # the job reads a batch that has ended it in pieces
    unsigned: tuple[str, ...] = ()  # kinds of records that other machines may send unsigned

    def state_of(self, cluster: ClusterFacts) -> str:
        """Return the state of a cluster now: none is balanced while its tables are not up to date.

        What kept it from being balanced in its last round still does.
        """
        if cluster.state not in MODE_STATES.values() or explain_staleness(self) is None:
            return cluster.state
        return NOT_UP_TO_DATE if self.demo_end is None else "ended"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact for operators, how grave it is, and what to do about it.

    A finding whose state is not healthy is an event. `subjects`: brokers, each of which is an event
    of its own. `references`: what it is about. `remedies`: commands that end it.
    """

    state: State
    description: str
    advice: str
    cluster: str | None = None
    event: Event | None = None
    subjects: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of the balancer, which is that of its gravest finding.

    `findings`: all of them, the gravest first.
    """

    state: State
    sentence: str
    findings: tuple[Finding, ...]

    def to_dict(self) -> Row:
        """Return the fields as JSON can hold them."""
        return asdict(self)


def judge(facts: Facts) -> Verdict:
    """Return the verdict on the balancer."""
    if facts.demo_end is not None:
        advice = "`lbctl demo --keep` runs a demo until Ctrl-C"
        return Verdict("ended", f"ended: {facts.demo_end.sentence}: {advice}", ())
    found = sorted(_all_findings(facts), key=lambda finding: -EXIT_CODES[finding.state])
    grave = [finding for finding in found if finding.state != "healthy"]
    if not grave:
        count = len(facts.clusters)
        text = f"healthy: the job runs, {count} cluster{'s' if count != 1 else ''} without trouble"
        return Verdict("healthy", text, tuple(found))
    more = f" (and {len(grave) - 1} more)" if len(grave) > 1 else ""
    first = grave[0]
    return Verdict(
        first.state, f"{first.state}: {first.description}: {first.advice}{more}", tuple(found)
    )


def explain_staleness(facts: Facts) -> str | None:
    """Explain why the tables aren't up to date, for the warning on every screen; None: they are."""
    if facts.demo_end is not None:
        return f"{facts.demo_end.sentence}; the figures are of that time"
    found = next(_running_findings(facts), None)
    newest = max(
        [facts.job.last_batch_ms or 0, *(cluster.last_round_ms for cluster in facts.clusters)]
    )
    if found is not None:
        text = found.description
    elif facts.job.ticks and newest and facts.now_ms - newest > LATE_MS:
        text = "the job has just started and has finished no batch yet"
    else:
        return None
    age = "no round has been logged"
    if newest:
        age = f"the figures are {describe_duration(facts.now_ms - newest)} old"
    return f"{text}; {age}: lbctl status says more"


def list_job_findings(facts: Facts) -> Iterator[Finding]:
    """Yield the findings that keep the job from deciding, or from deciding on current figures."""
    if facts.demo_end is not None:
        yield Finding(
            "down", facts.demo_end.sentence, "`lbctl demo --keep` runs a demo until Ctrl-C"
        )
        return
    yield from _kafka_findings(facts)
    yield from _running_findings(facts)
    yield from _poison_findings(facts)
    yield from _unknown_findings(facts)
    yield from _lag_findings(facts)


def _all_findings(facts: Facts) -> Iterator[Finding]:
    """Yield all findings, in no order of gravity."""
    yield from _kafka_findings(facts)
    yield from _running_findings(facts)
    yield from _poison_findings(facts)
    if facts.skipped_records:
        text = f"records that end the job were skipped: {_count_and_name(facts.skipped_records)}"
        yield Finding("healthy", text, "find their sender: rejected_reports has the reasons")
    if facts.unsigned:
        text = f"not signed: {', '.join(facts.unsigned)}; Kafka alone says who may write them"
        yield Finding("healthy", text, "lbctl keys new, and security.* (docs/security.md)")
    yield from _unknown_findings(facts)
    if facts.job.running and not facts.clusters:
        yield Finding(
            "degraded",
            "no broker has reported yet",
            "start the agents: lbctl agent pulsar --help",
            event="no_reports",
        )
    for cluster in facts.clusters:
        yield from _cluster_problems(cluster, facts.now_ms)
        yield from _cluster_notes(cluster)
    yield from _lag_findings(facts)
    least = min(LEAST_DISK_BYTES, LEAST_DISK_SHARE * (facts.disk_size or 0))
    if facts.disk_free is not None and facts.disk_free < least:
        text = f"{facts.disk_free / 2**30:.1f} GiB are free on the disk of the tables"
        yield Finding(
            "degraded",
            text,
            "run `lbctl tables maintain`, or free some space: a full disk ends the job",
            event="disk_low",
        )


def _kafka_findings(facts: Facts) -> Iterator[Finding]:
    if facts.kafka is not None:
        text = f"Kafka doesn't answer ({facts.kafka})"
        advice = "without it nothing is read or published; the job continues once Kafka answers"
        yield Finding("down", text, advice, event="kafka_down")


def _running_findings(facts: Facts) -> Iterator[Finding]:
    """Yield at most one finding: the job doesn't run, or finishes no batch."""
    job, start = facts.job, "start it: lbctl balance, with its settings"
    if job.epoch is None:
        yield Finding(
            "down",
            f"no job of the pipeline {job.pipeline} has been started with these tables",
            start,
            event="job_down",
        )
        return
    if job.running is False:
        why = f"{start}; the end of its log says why it ended"
        yield Finding("down", f"the job is not running ({job.evidence})", why, event="job_down")
        return
    late = job.ticks and facts.now_ms - max(job.last_batch_ms or 0, job.since_ms or 0) > LATE_MS
    if late:
        since = "since its start"
        if job.last_batch_ms:
            since = f"for {describe_duration(facts.now_ms - job.last_batch_ms)}"
        if job.running:
            text = f"the job runs ({job.evidence}), and has finished no batch {since}"
            yield Finding("degraded", text, "see its log", event="job_behind")
        else:
            why = f"see its log on {job.host}, or {start}"
            yield Finding("down", f"the job has finished no batch {since}", why, event="job_down")


def _poison_findings(facts: Facts) -> Iterator[Finding]:
    if facts.searches_poison_record:
        found = "one batch has ended the job repeatedly"
        advice = "wait: the job reads it in pieces until it has found the poison record"
        yield Finding("degraded", found, advice, event="job_behind")


def _unknown_findings(facts: Facts) -> Iterator[Finding]:
    if facts.job.epoch is not None and facts.job.running is None:
        text = f"whether the job runs is not known here ({facts.job.evidence})"
        yield Finding("degraded", text, f"look on {facts.job.host}", event="job_unknown")


def _lag_findings(facts: Facts) -> Iterator[Finding]:
    if (facts.job.lag_records or 0) > facts.lag_limit:
        text = f"{facts.job.lag_records} records wait to be read"
        advice = (
            "decisions are late: if the number grows, look at lb_stream_phase_seconds and give the "
            "job more cores"
        )
        yield Finding("degraded", text, advice, event="job_behind")


def _cluster_problems(cluster: ClusterFacts, now_ms: int) -> Iterator[Finding]:
    """Yield the findings that keep a cluster from being balanced."""
    name, why = cluster.cluster, f"lbctl explain --round {cluster.cluster}:{cluster.seq}"
    last_round = refer("round", name, str(cluster.seq))
    if cluster.suspended_by is not None:
        silent = _count_and_name(cluster.silent)
        which = f": {silent} of {cluster.brokers} brokers went silent together"
        text = f"{name} is SUSPENDED ({cluster.suspended_by}){which if cluster.silent else ''}"
        advice = (
            "nothing is decided until they are back: check brokers, agents and their network to "
            "Kafka"
        )
        about = refer("broker", name, *cluster.silent) if cluster.silent else last_round
        dead = remedy_each("declare-dead", name, "broker", cluster.silent)
        yield Finding(
            "degraded",
            text,
            advice,
            name,
            "cluster_suspended",
            references=about,
            remedies=tuple(dead),
        )
    elif cluster.retry_ms:
        wait = ""
        if cluster.retry_ms > now_ms:
            wait = f", next try in {describe_duration(cluster.retry_ms - now_ms)}"
        text = f"{name} is SUSPENDED (its last rounds failed{wait})"
        advice = f"the error: {why}"
        yield Finding("degraded", text, advice, name, "cluster_suspended", references=last_round)
    elif cluster.error is not None:
        text = f"{name}'s last round failed ({cluster.error.strip().splitlines()[-1]})"
        yield Finding("degraded", text, why, name, "cluster_failing", references=last_round)
    if cluster.silent and cluster.suspended_by is None:
        text = f"{name}: {_count_and_name(cluster.silent)} of {cluster.brokers} brokers silent"
        advice = "check the brokers and their agents"
        yield Finding(
            "degraded",
            text,
            advice,
            name,
            "broker_dead",
            cluster.silent,
            refer("broker", name, *cluster.silent),
            tuple(remedy_each("declare-dead", name, "broker", cluster.silent)),
        )
    if cluster.rollout is not None and cluster.rollout.still_ms is not None:
        rollout = cluster.rollout
        count = f"{rollout.done} of {rollout.brokers} brokers restarted"
        text = f"{name}: the rollout {rollout.state} ({count})"
        first = f"{rollout.advice}; " if rollout.advice else ""
        advice = (
            f"{first}lbctl rollout status --cluster {name} says more; lbctl rollout resume has it "
            "go on without brokers that are missing, lbctl rollout abort ends it"
        )
        ends = remedy("rollout-resume", name), remedy("rollout-abort", name)
        yield Finding(
            "degraded",
            text,
            advice,
            name,
            "rollout_stands_still",
            references=refer("rollout", name),
            remedies=ends,
        )
    if cluster.isolated:
        policies = _count_and_name(cluster.isolated)
        text = f"{name}: isolation policies that match no live broker: {policies}"
        advice = "bundles of their namespaces get no owner: lbctl namespaces set-policies"
        yield Finding(
            "degraded",
            text,
            advice,
            name,
            "isolation_matches_none",
            references=refer("settings", name),
        )


def _cluster_notes(cluster: ClusterFacts) -> Iterator[Finding]:
    """Yield a cluster's findings that are no problem: settings, operators' state, gone brokers."""
    name = cluster.cluster
    if cluster.unmatched:
        text = f"{name}: warning: no live broker matches {_count_and_name(cluster.unmatched)}"
        advice = "correct it: lbctl namespaces set-policies --isolation"
        yield Finding("healthy", text, advice, name, references=refer("settings", name))
    for text in cluster.unlike:
        advice = "look at its host: other processes, limits of its container, disks"
        about = refer("cluster", name)
        yield Finding("healthy", f"{name}: warning: {text}", advice, name, references=about)
    for doubt in cluster.doubtful:
        advice = "say what it can carry: lbctl brokers capacity BROKER --bandwidth-in MBIT/S"
        text, about = f"{name}: warning: {doubt}", refer("settings", name)
        yield Finding("healthy", text, f"{advice} --cluster {name}", name, references=about)
    yield from _profile_notes(cluster)
    if cluster.gone:
        text = f"{name}: {_count_and_name(cluster.gone)} brokers gone"
        advice = "the job forgets them after broker_retention_ms"
        about = refer("broker", name, *cluster.gone)
        yield Finding("healthy", text, advice, name, references=about)
    if cluster.paused:
        yield Finding(
            "healthy",
            f"{name} is paused: nothing is shed or split",
            f"to end the pause: lbctl clusters resume {name}",
            name,
            references=refer("cluster", name),
            remedies=(remedy("resume", name),),
        )
    if cluster.held:
        yield Finding(
            "healthy",
            f"{name}: {cluster.held}",
            "to change this: its settings freeze, freezes, disruption_windows",
            name,
            references=refer("settings", name),
        )
    if cluster.dry_run:
        yield Finding(
            "healthy",
            f"{name} is in dry run: nothing is published",
            f"to end the dry run: lbctl clusters enable {name}",
            name,
            references=refer("cluster", name),
            remedies=(remedy("publish", name), remedy("ask-first", name)),
        )
    if cluster.proposals:
        plural = "s" if cluster.proposals > 1 else ""
        text = f"{name}: {cluster.proposals} proposal{plural} waiting for approval"
        about = refer("proposals", name)
        yield Finding("healthy", text, f"lbctl proposals --cluster {name}", name, references=about)
    if cluster.rollout is not None and cluster.rollout.still_ms is None:
        text = f"{name}: a rollout is on: {cluster.rollout.text}"
        advice, about = f"lbctl rollout status --cluster {name}", refer("rollout", name)
        yield Finding("healthy", text, advice, name, references=about)
    for broker in cluster.drained:
        state = "draining" if broker in cluster.draining else "drained"
        yield Finding(
            "healthy",
            f"{name}: {broker} is {state}",
            f"to end the drain: lbctl brokers undrain {broker} --cluster {name}",
            name,
            references=refer("broker", name, broker),
            remedies=(remedy("undrain", name, broker=broker),),
        )


def _profile_notes(cluster: ClusterFacts) -> Iterator[Finding]:
    """Yield what is to be known of a cluster's profile: a change to come, doubtful versions."""
    name, profile = cluster.cluster, cluster.profile
    if profile.next:
        advice = (
            f"all changes: lbctl config explain --cluster {name}; to stay: lbctl config set "
            f"profile {profile.name} --cluster {name}"
        )
        text = describe_next(name, profile, clock(profile.next_ms))
        about = refer("settings", name)
        yield Finding("healthy", text, advice, name, "profile_change", references=about)
    for doubt in profile.doubts:
        advice = f"to choose the profile: lbctl config set profile NAME --cluster {name}"
        about = refer("settings", name)
        yield Finding("healthy", f"{name}: {doubt}", advice, name, references=about)


def _count_and_name(names: tuple[str, ...]) -> str:
    """Return the number of names and the first ones: 5 (a, b, c and 2 more)."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{len(names)} ({', '.join(names[:MOST_NAMED])}{more})"


def describe_duration(ms: float) -> str:
    """Describe a duration: 3 s, 12 min, 5 h, 2 d."""
    seconds = max(0, int(ms / 1000))
    for unit, unit_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s} {unit}"
    return f"{seconds} s"
