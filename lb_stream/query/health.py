"""Whether the balancer is well: facts about job, clusters, tables and disk in; a verdict, and what
to do about it, out.

Every screen takes its verdict from here: `lbctl status`, the banner above what other commands show,
the job's own `/health`. Times are ms since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from lb_stream.contracts.settings import Event
from lb_stream.query.lake import Row

State = Literal["healthy", "ended", "degraded", "down"]
EXIT_CODES: dict[State, int] = {"healthy": 0, "ended": 0, "degraded": 1, "down": 2}

SUSPENDING = frozenset({"mass_disappearance", "everything_silent"})
"""Rules by which brokers that vanish suspend their cluster (core.observing.liveness)."""
LAG_LIMIT = 5_000
"""Records: more are more than the job reads at a time, where its settings don't say how many that
are."""
LATE_MS = 60_000
"""A batch older than this is late: the clock's ticks make one every second, the table `batches` has
it ten seconds later."""
LEAST_DISK_BYTES = 1 << 30
LEAST_DISK_SHARE = 0.05
MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The job.

    `epoch` None: none has ever been started. `running` None: there is no sign of it, and none of
    its end.

    `seen`: what `running` was told by.
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
    ticks: bool = True  # whether time passes without reports


@dataclass(frozen=True, slots=True)
class StandbyFacts:
    """A job that stands by. `instance`: host:pid; `warm`: it could take over at once."""

    instance: str
    warm: bool


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """One cluster as its last logged round left it.

    `retry_ms`: after too many failed rounds, when the next one is tried; 0: at once.
    """

    cluster: str
    last_round_ms: int
    seq: int = 0
    error: str | None = None
    retry_ms: int = 0
    suspended_by: str | None = None  # the rule
    paused: bool = False
    held: str = ""  # why balancing may move nothing now: a freeze, or no open window; empty: it may
    mode: Literal["observe", "approve", "act"] = "act"
    proposals: int = 0  # that wait for approval
    drained: tuple[str, ...] = ()
    draining: tuple[str, ...] = ()  # of these: who has bundles yet, or is about to get some
    limited: tuple[str, ...] = ()  # brokers out of which as many moves are under way as are allowed
    brokers: int = 0
    silent: tuple[
        str, ...
    ] = ()  # since lately: dead ones, and those whose silence suspends the cluster
    gone: tuple[str, ...] = ()  # dead for long, or on purpose
    unmatched: tuple[str, ...] = ()  # expressions of isolation policies that match no live broker
    isolated: tuple[str, ...] = ()  # isolation policies that match no live broker at all
    bundles: int = 0
    pending: int = 0

    @property
    def dry_run(self) -> bool:
        """Whether decisions are only logged."""
        return self.mode == "observe"

    @property
    def suspended(self) -> bool:
        """Whether decisions are suspended."""
        return self.suspended_by is not None or self.retry_ms > 0

    def state_of(self, broker: str) -> str:
        """What is to be said of one broker, the gravest first; nothing: it is as the others."""
        words = ("silent", "gone", "draining", "drained", "limited")
        return next((word for word in words if broker in getattr(self, word)), "")

    @property
    def state(self) -> str:
        """One word, the gravest."""
        if self.suspended:
            return "SUSPENDED"
        if self.error or self.paused or self.held:
            return "failing" if self.error else "paused" if self.paused else "held"
        return {"observe": "dry run", "approve": "approving", "act": "live"}[self.mode]


@dataclass(frozen=True, slots=True)
class DemoEnd:
    """How the demo that wrote the tables ended. `at`: when; `how`: balanced, or why not."""

    at: str
    how: str

    @property
    def sentence(self) -> str:
        """The end in words."""
        return f"the demo ended at {self.at}, {self.how}"


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it at one moment.

    `kafka`: why Kafka doesn't answer, None: it does, or wasn't asked. `disk_free` in bytes; None:
    not known.
    """

    now_ms: int
    job: JobFacts
    clusters: tuple[ClusterFacts, ...] = ()
    kafka: str | None = None
    disk_free: int | None = None
    disk_size: int | None = None
    lag_limit: int = LAG_LIMIT  # records
    skipped_records: tuple[
        str, ...
    ] = ()  # records that were stepped over because they end the job: topic, partition, offset
    standbys: tuple[StandbyFacts, ...] | None = None  # None: not known
    demo_end: DemoEnd | None = None  # the tables are a demo's, which has ended: nothing is to run
    searches_poison_record: bool = (
        False  # a batch has ended the job again and again, and the record to blame is looked for
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is so, how grave it is, and what to do about it.

    A healthy one is only worth knowing, the others are events.

    `subjects`: brokers, each of which is an event of its own.
    """

    state: State
    description: str
    advice: str
    cluster: str | None = None
    event: Event | None = None
    subjects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gravest finding counts; the others follow, the gravest first."""

    state: State
    sentence: str
    findings: tuple[Finding, ...]

    def to_dict(self) -> Row:
        """As JSON-able fields."""
        return asdict(self)


def judge(facts: Facts) -> Verdict:
    """How the balancer is."""
    if facts.demo_end is not None:
        advice = "`lbctl demo --keep` runs one that goes on until Ctrl-C"
        return Verdict("ended", f"ended: {facts.demo_end.sentence}: {advice}", ())
    found = sorted(_findings(facts), key=lambda finding: -EXIT_CODES[finding.state])
    grave = [one for one in found if one.state != "healthy"]
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
    """Why what the tables show isn't how things are now, if so: the banner above every screen that
    shows them."""
    if facts.demo_end is not None:
        return f"{facts.demo_end.sentence}; what is shown is how it was then"
    found = next(_of_job(facts), None)
    if found is None:
        return None
    newest = max(
        [facts.job.last_batch_ms or 0, *(cluster.last_round_ms for cluster in facts.clusters)]
    )
    age = (
        f"what is shown is {describe_duration(facts.now_ms - newest)} old"
        if newest
        else "no round has been logged"
    )
    return f"{found.description}; {age}: lbctl status says more"


def job_findings(facts: Facts) -> Iterator[Finding]:
    """What is wrong with the job itself, and with what it needs to decide at all."""
    if facts.demo_end is not None:
        yield Finding("down", facts.demo_end.sentence, "`lbctl demo --keep` runs one that goes on")
        return
    if facts.kafka is not None:
        text = f"Kafka doesn't answer ({facts.kafka})"
        yield Finding("down", text, "nothing is read or published without it", event="kafka_down")
    yield from _of_job(facts)
    yield from _of_pieces(facts)
    yield from _of_sight(facts)
    yield from _of_lag(facts)


def _findings(facts: Facts) -> Iterator[Finding]:
    if facts.kafka is not None:
        text, advice = (
            f"Kafka doesn't answer ({facts.kafka})",
            "nothing is read or published without it; the job goes on by itself",
        )
        yield Finding("down", text, advice, event="kafka_down")
    yield from _of_job(facts)
    yield from _of_pieces(facts)
    if facts.skipped_records:
        what = f"records that end the job were stepped over: {_named(facts.skipped_records)}"
        yield Finding("healthy", what, "see who sent them: rejected_reports has the reasons")
    yield from _of_sight(facts)
    if facts.job.running and not facts.clusters:
        yield Finding(
            "degraded",
            "no broker has reported yet",
            "start the agents: lbctl agent pulsar --help",
            event="no_reports",
        )
    for cluster in facts.clusters:
        yield from _of_cluster(cluster, facts.now_ms)
    yield from _of_lag(facts)
    least = min(LEAST_DISK_BYTES, LEAST_DISK_SHARE * (facts.disk_size or 0))
    if facts.disk_free is not None and facts.disk_free < least:
        text = f"{facts.disk_free / 2**30:.1f} GiB are free where the tables are"
        yield Finding(
            "degraded",
            text,
            "run `lbctl tables maintain`, or make room: a full disk ends the job",
            event="disk_low",
        )


def _of_job(facts: Facts) -> Iterator[Finding]:
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
        since = (
            f"for {describe_duration(facts.now_ms - job.last_batch_ms)}"
            if job.last_batch_ms
            else "since its start"
        )
        if job.running:
            text = f"the job runs ({job.evidence}), and has finished no batch {since}"
            yield Finding("degraded", text, "see its log", event="job_behind")
        else:
            why = f"see its log on {job.host}, or {start}"
            yield Finding("down", f"the job has finished no batch {since}", why, event="job_down")


def _of_pieces(facts: Facts) -> Iterator[Finding]:
    if facts.searches_poison_record:
        found = "a batch has ended the job again and again"
        advice = "wait: it is read in pieces until the record to blame is found"
        yield Finding("degraded", found, advice, event="job_behind")


def _of_sight(facts: Facts) -> Iterator[Finding]:
    if facts.job.epoch is not None and facts.job.running is None:
        text = f"whether the job runs can't be told from here ({facts.job.evidence})"
        yield Finding("degraded", text, f"see on {facts.job.host}", event="job_unknown")


def _of_lag(facts: Facts) -> Iterator[Finding]:
    if (facts.job.lag_records or 0) > facts.lag_limit:
        text = f"{facts.job.lag_records} records wait to be read"
        grows = "if it grows, see lb_stream_phase_seconds, give the job more cores"
        advice = f"decisions are late: {grows}"
        yield Finding("degraded", text, advice, event="job_behind")


def _of_cluster(cluster: ClusterFacts, now_ms: int) -> Iterator[Finding]:
    yield from _troubles_of_cluster(cluster, now_ms)
    yield from _notes_of_cluster(cluster)


def _troubles_of_cluster(cluster: ClusterFacts, now_ms: int) -> Iterator[Finding]:
    """Yield what keeps a cluster from being balanced."""
    name, why = cluster.cluster, f"lbctl explain --round {cluster.cluster}:{cluster.seq}"
    if cluster.suspended_by is not None:
        who = (
            f": {_named(cluster.silent)} of {cluster.brokers} brokers went silent together"
            if cluster.silent
            else ""
        )
        text = f"{name} is SUSPENDED ({cluster.suspended_by}){who}"
        advice = (
            "nothing is decided until they are back: see to brokers, agents, and their way to Kafka"
        )
        yield Finding("degraded", text, advice, name, "cluster_suspended")
    elif cluster.retry_ms:
        wait = (
            f", next try in {describe_duration(cluster.retry_ms - now_ms)}"
            if cluster.retry_ms > now_ms
            else ""
        )
        text = f"{name} is SUSPENDED (round after round failed{wait})"
        yield Finding("degraded", text, f"the error: {why}", name, "cluster_suspended")
    elif cluster.error is not None:
        text = f"{name}'s last round failed ({cluster.error.strip().splitlines()[-1]})"
        yield Finding("degraded", text, why, name, "cluster_failing")
    if cluster.silent and cluster.suspended_by is None:
        text = f"{name}: {_named(cluster.silent)} of {cluster.brokers} brokers silent"
        yield Finding(
            "degraded",
            text,
            "see to the brokers and their agents",
            name,
            "broker_dead",
            cluster.silent,
        )
    if cluster.isolated:
        text = f"{name}: isolation policies that match no live broker: {_named(cluster.isolated)}"
        advice = "bundles of their namespaces get no owner: lbctl namespaces set-policies"
        yield Finding("degraded", text, advice, name, "isolation_matches_none")


def _notes_of_cluster(cluster: ClusterFacts) -> Iterator[Finding]:
    """Yield what is worth knowing of a cluster that is as it was set."""
    name = cluster.cluster
    if cluster.unmatched:
        what = f"{name}: warning: no live broker matches {_named(cluster.unmatched)}"
        yield Finding("healthy", what, "mend it: lbctl namespaces set-policies --isolation", name)
    if cluster.gone:
        yield Finding(
            "healthy", f"{name}: {_named(cluster.gone)} brokers gone", "forgotten in time", name
        )
    if cluster.paused:
        yield Finding(
            "healthy",
            f"{name} is paused: nothing is shed or split",
            f"to end that: lbctl clusters resume {name}",
            name,
        )
    if cluster.held:
        yield Finding(
            "healthy",
            f"{name}: {cluster.held}",
            "to end that: its settings freeze, freezes, disruption_windows",
            name,
        )
    if cluster.dry_run:
        yield Finding(
            "healthy",
            f"{name} is in dry run: nothing is published",
            f"to end that: lbctl clusters enable {name}",
            name,
        )
    if cluster.proposals:
        what = f"{cluster.proposals} proposal{'s' if cluster.proposals > 1 else ''}"
        yield Finding(
            "healthy",
            f"{name}: {what} waiting for approval",
            f"lbctl proposals --cluster {name}",
            name,
        )
    for broker in cluster.drained:
        word = "draining" if broker in cluster.draining else "drained"
        yield Finding(
            "healthy",
            f"{name}: {broker} is {word}",
            f"to end that: lbctl brokers undrain {broker} --cluster {name}",
            name,
        )


def _named(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{len(names)} ({', '.join(names[:MOST_NAMED])}{more})"


def describe_duration(ms: float) -> str:
    """A length of time: 3 s, 12 min, 5 h, 2 d."""
    seconds = max(0, int(ms / 1000))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
