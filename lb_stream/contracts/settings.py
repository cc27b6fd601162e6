"""The job's settings: where Kafka, the tables and the checkpoint are, and how the stream runs.

`lb_stream.settings.resolve` checks the balancer's own settings (`[balancer]`, `[cluster.<name>]`);
`lb_stream.settings.load` puts the layers together.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, StringConstraints
from pydantic_core import PydanticCustomError

from lb_stream.contracts.balancer import Texts
from lb_stream.contracts.base import (
    BOOTSTRAP_PATTERN,
    CLUSTER_PATTERN,
    COLLECTOR_PATTERN,
    LISTEN_PATTERN,
)
from lb_stream.contracts.keys import KeyModel, SettingError, key, split_text
from lb_stream.contracts.patterns import find_pattern_error
from lb_stream.contracts.servers import (
    ConsoleSettings,
    LookupSettings,
    MetricsSettings,
    OidcSettings,
)

SHADOW = "shadow"
"""The section of shadows inside of a cluster's section."""

Event = Literal[
    "job_down",
    "kafka_down",
    "job_behind",
    "job_unknown",
    "disk_low",
    "no_reports",
    "cluster_suspended",
    "cluster_failing",
    "broker_dead",
    "isolation_matches_none",
    "moves_failing",
    "budget_exhausted",
    "imbalance",
    "rollout_stands_still",
    "approval_wanted",
    "profile_change",
]
"""Events that `lbctl notify` reports, the gravest first: of `query.health`, then of screens."""

CRASH_POINTS = {
    "after_fence": "the previous job can publish no more; the log is not read yet",
    "in_catch_up": "rounds that an earlier run logged are published, but not projected",
    "on_entry": "Spark has planned the batch; none of its work is done",
    "in_state": "a worker has folded its shards and written the files that their state names; the "
    "state is not committed",
    "in_decide": "a worker has written a round's files; the driver doesn't have the round",
    "before_log": "all rounds are decided; none is logged",
    "after_log": "the rounds are logged; nothing is published",
    "in_transaction": "decisions and watermark are sent; the transaction is open",
    "after_publish": "the transaction is committed; no table is written yet",
    "between_projections": "some tables are written, others are not",
    "before_commit": "everything is done; Spark has not recorded it",
}
"""Moment at which a test may kill the job → the state at that moment. They are in order of time."""


def parse_crash_at(text: str) -> tuple[str, int]:
    """Parse "after_log:3" into a crash point and its occurrence. Raises SettingError."""
    name, _, number = text.partition(":")
    if name not in CRASH_POINTS or not number.isdecimal() or int(number) < 1:
        raise SettingError("stream.crash_at", text, _CRASH_EXPECTED)
    return name, int(number)


_CRASH_EXPECTED = f"POINT:NUMBER, as after_log:3, with a point of {', '.join(CRASH_POINTS)}"


def _check_crash(text: str) -> str:
    try:
        return ":".join(map(str, parse_crash_at(text))) if text else ""
    except SettingError as error:
        raise PydanticCustomError("crash_at", "{expected}", {"expected": error.expected}) from None


def _check_pattern(text: str) -> str:
    """Require a regular expression that RE2 takes, so that it is matched in linear time."""
    if text and (error := find_pattern_error(text)) is not None:
        raise PydanticCustomError("expression", "a regular expression ({error})", {"error": error})
    return text


class KafkaSettings(KeyModel):
    """The Kafka cluster. Every client gets `options`, under kafka-python's names."""

    bootstrap_servers: str = key(
        "127.0.0.1:9092",
        "Addresses of brokers: host:port, or several with commas between.",
        dynamic=False,
        pattern=BOOTSTRAP_PATTERN,
    )
    options: dict[str, object] = key(
        {},
        "TLS and SASL settings under kafka-python's names (security_protocol, sasl_mechanism, …), "
        "and sasl_oauth_token_file. The stream's own client gets them under Kafka's names.",
        dynamic=False,
    )


class TopicSettings(KeyModel):
    """Names of the topics."""

    reports: str = key(
        "lb-load-reports", "Topic of load reports, heartbeats and acknowledgements.", dynamic=False
    )
    commands: str = key(
        "lb-commands", "Topic of commands and ticks; it has one partition.", dynamic=False
    )
    results: str = key("lb-command-results", "Topic of commands' results.", dynamic=False)
    decisions: str = key("lb-decisions", "Topic of decisions.", dynamic=False)
    ownership: str = key(
        "lb-ownership", "Topic of ownership records; it is compacted.", dynamic=False
    )


class StreamSettings(KeyModel):
    """How the stream runs."""

    pipeline_id: str = key(
        "lb-stream",
        "Names the pipeline, its transactions and its log entries.",
        dynamic=False,
        pattern=CLUSTER_PATTERN,
    )
    default_cluster: str = key(
        "default",
        "The cluster of a record whose key names none.",
        dynamic=False,
        pattern=CLUSTER_PATTERN,
    )
    allowed_clusters: Annotated[str, AfterValidator(_check_pattern)] = key(
        "",
        "Regular expression of the clusters that are served. Records of others are rejected. "
        "Empty: every cluster.",
        dynamic=False,
    )
    clusters: Annotated[str, AfterValidator(_check_pattern)] = key(
        "",
        "Regular expression of the clusters that this pipeline balances. Other pipelines "
        "balance the others. Empty: every cluster.",
        dynamic=False,
    )
    excluded_clusters: Annotated[str, AfterValidator(_check_pattern)] = key(
        "",
        "Regular expression of clusters that match `clusters`, but that other pipelines balance. "
        "Empty: none.",
        dynamic=False,
    )
    tables: str = key(
        ".lb/tables",
        "Folder of the Delta tables: a path, or an address such as s3://bucket/folder.",
        dynamic=False,
    )
    checkpoint: str = key(
        ".lb/checkpoint", "Folder of the stream's checkpoint: a path or an address.", dynamic=False
    )
    store_options: dict[str, str] = key(
        {},
        "Options of the object store that holds tables and checkpoint, under object_store's "
        "names (aws_endpoint) or Hadoop's (fs.…).",
        dynamic=False,
    )
    tick_interval_ms: int = key(
        1_000,
        "How often the job's clock sends a tick, so that time passes in a silent cluster. 0: "
        "never.",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    failover_after_ms: int = key(
        3_000,
        "A standby takes over when the leader has sent no tick for this long, and for at "
        "least three ticks.",
        unit="ms",
        dynamic=False,
        ge=1,
    )
    trigger_interval_ms: int = key(
        0,
        "Minimum time between micro-batches. 0: a batch starts as soon as there is input.",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    max_offsets_per_trigger: int = key(
        5_000,
        "Maximum records in a micro-batch, commands included. A backlog is read in pieces of "
        "this size, so that a piece fits memory. 0: no limit.",
        unit="records",
        dynamic=False,
        ge=0,
    )
    decode_tasks: int = key(
        0,
        "Minimum number of tasks that decode a batch's records. 0: one for each Kafka "
        "partition with records.",
        unit="tasks",
        dynamic=False,
        ge=0,
    )
    starting_offsets: Literal["earliest", "latest"] = key(
        "earliest", "Where a new checkpoint begins to read.", dynamic=False
    )
    lost_records: Literal["stop", "skip"] = key(
        "stop",
        "What the job does when Kafka has deleted records before it read them: it stops and "
        "names them, or skips them.",
        dynamic=False,
    )
    shard_bundles: int = key(
        50_000,
        "Bundles in each shard of a large cluster. The number of shards is a power of two and "
        "follows the cluster's size.",
        dynamic=False,
        ge=1,
    )
    keep_views: int = key(
        10,
        "Batches whose views stay on disk for replay. A view takes at most about 220 bytes per "
        "bundle.",
        unit="batches",
        dynamic=False,
        ge=2,
    )
    history_resolution_ms: int = key(
        60_000,
        "How often bundle_history and broker_history get a row of what has changed. 0: never.",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    averages_interval_ms: int = key(
        10_000,
        "Least time between two batches that write bundle_averages, by the records' times. A part "
        "of the table is written whole. 0: every batch writes the parts that it changes.",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    cluster_retention_ms: int = key(
        1_209_600_000,
        "A cluster that is silent for this long is forgotten, operators' state included. 0: never.",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    suspend_after_errors: int = key(
        10,
        "A cluster is suspended after this many failed rounds in a row.",
        unit="rounds",
        dynamic=False,
        ge=1,
    )
    suspension_ms: int = key(
        300_000,
        "How long a cluster with so many failed rounds is suspended.",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    batch_timeout_ms: int = key(
        900_000,
        "The job ends with code 1 when a batch takes longer, or when the stream has restarted "
        "for this long without a finished batch. 0: never.",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    round_timeout_ms: int = key(
        300_000,
        "A cluster's round fails when it takes longer. The other clusters' rounds go on. 0: never.",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    max_first_records: int = key(
        20_000,
        "About how many first ownership records a batch publishes, one for each bundle of new "
        "clusters, since its decisions can be read only after them. A cluster publishes 1 to 1,000 "
        "in a batch; the others follow in the next ones. So do records that a dry run has held "
        "back, and those that are removed. At least 1,000 for each of the `shuffle_partitions`.",
        dynamic=False,
        ge=1,
    )
    shadow_time_percent: int = key(
        100,
        "Time that shadows may take, as a share of the time that their batch's rounds take, "
        "plus 0.2 s. Shadows that need more are skipped. 0: no shadow runs.",
        unit="%",
        dynamic=False,
        ge=0,
        le=1_000,
    )
    shadow_hold_ms: int = key(
        86_400_000,
        "How long a shadow's own moves count as done. Then the shadow sees their bundles "
        "where they really are.",
        unit="ms",
        dynamic=False,
        ge=1,
    )
    shuffle_partitions: int = key(
        2,
        "Partitions of the stream's state. The first checkpoint fixes the number.",
        dynamic=False,
        ge=1,
    )
    metrics_address: str = key(
        "127.0.0.1:9474",
        "host:port where the job serves metrics for Prometheus. Port 0: any free port, which "
        "the job's log names. Empty or 0: no metrics.",
        dynamic=False,
        pattern=LISTEN_PATTERN,
    )
    crash_at: Annotated[str, AfterValidator(_check_crash)] = key(
        "",
        "For tests. POINT:NUMBER, such as after_log:3, kills the job when it reaches that "
        "point for the third time.",
        dynamic=False,
    )


def _keep(days: int, rows: str) -> Any:
    """Declare how long rows of a table are kept. `rows`: their plural."""
    return key(
        24 * days, f"How long {rows} are kept. 0: for ever.", unit="hours", dynamic=False, ge=0
    )


class UpkeepSettings(KeyModel):
    """How long `lbctl tables maintain` keeps rows.

    Tables that hold the present (ownership, merge_advice, bundle_averages) have no setting here.
    """

    keep_rounds_hours: int = _keep(7, "rounds, from which tables are rebuilt and rounds replayed,")
    keep_decisions_hours: int = _keep(90, "decisions")
    keep_outcomes_hours: int = _keep(90, "outcomes of decisions")
    keep_refusals_hours: int = _keep(7, "refusals")
    keep_shadow_rounds_hours: int = _keep(30, "shadows' rounds")
    keep_shadow_decisions_hours: int = _keep(30, "shadows' decisions")
    keep_broker_loads_hours: int = _keep(7, "loads of brokers")
    keep_bundle_history_hours: int = _keep(7, "loads of bundles over time")
    keep_broker_history_hours: int = _keep(7, "loads and limits of brokers over time")
    keep_rejected_reports_hours: int = _keep(30, "rejected records")
    keep_commands_hours: int = _keep(90, "results of commands")
    keep_audit_hours: int = _keep(0, "rows of the audit")
    keep_proposals_hours: int = _keep(90, "states of proposals")
    keep_rollouts_hours: int = _keep(90, "events of rollouts")
    keep_batches_hours: int = _keep(7, "durations of micro-batches")
    keep_replaced_files_hours: float = key(
        0.25,
        "How long files stay that a table no longer names. Queries that are running may still "
        "read them.",
        unit="hours",
        dynamic=False,
        ge=0.01,
        le=876_000,
    )
    target_file_mb: int = key(
        128, "Small files are merged up to this size.", unit="MB", dynamic=False, ge=1
    )


Events = Annotated[tuple[Event, ...], BeforeValidator(split_text)]
TargetName = Annotated[str, StringConstraints(pattern=CLUSTER_PATTERN)]


class NotifySettings(KeyModel):
    """To whom `lbctl notify` sends which events, and how often."""

    targets: dict[TargetName, str] = key(
        {},
        "Name → address of a target: an address of Apprise's (slack://…, mailtos://…, "
        "jsons://…), or file:PATH of a file that holds one.",
        dynamic=False,
    )
    routes: dict[TargetName, Events] = key(
        {},
        "Target → the events that it gets: a list, or text with commas between. A target "
        "without a route gets all events.",
        dynamic=False,
    )
    state_file: str = key(
        ".lb/notify.json",
        "File that remembers what was sent, so that a restart does not send it again.",
        dynamic=False,
        min_length=1,
    )
    poll_interval_ms: int = key(
        15_000,
        "How often lbctl notify reads the tables and Kafka.",
        unit="ms",
        dynamic=False,
        ge=1_000,
    )
    group_wait_ms: int = key(
        30_000,
        "How long an event waits for others of its kind. One message reports them together.",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    min_message_interval_ms: int = key(
        300_000,
        "Minimum time between two messages about one kind of event to one target.",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    repeat_interval_ms: int = key(
        14_400_000,
        "How often an event that lasts is reported again. 0: never.",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    resolve_after_ms: int = key(
        60_000,
        "An event must be over for this long before it is reported as resolved.",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    max_messages_per_hour: int = key(
        30,
        "Maximum messages to one target in any hour. Further messages wait.",
        unit="messages",
        dynamic=False,
        ge=1,
    )
    timeout_ms: int = key(
        10_000, "How long a target may take to answer.", unit="ms", dynamic=False, ge=100
    )
    quiet_windows: Texts = key(
        (),
        "While one of these is open only urgent events are reported: cron, length, time zone, "
        "as '0 22 * * * 8h Europe/Berlin'. A list, or text with semicolons between.",
        dynamic=False,
    )
    urgent: Events = key(
        ("job_down", "kafka_down", "cluster_suspended"),
        "Events that are reported in quiet windows too.",
        dynamic=False,
    )
    imbalance_points: float = key(
        25.0,
        "A cluster is uneven when its hottest broker's usage is this far above the mean of "
        "its brokers.",
        unit="points",
        dynamic=False,
        ge=0,
        le=100,
    )
    imbalance_for_ms: int = key(
        900_000,
        "How long a cluster must be uneven before that is reported.",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    failed_moves: int = key(
        3,
        "Failed moves of one bundle in a row that are reported.",
        unit="moves",
        dynamic=False,
        ge=1,
    )
    failed_moves_window_ms: int = key(
        3_600_000, "The time in which failed moves are counted.", unit="ms", dynamic=False, ge=1_000
    )


class HookSettings(KeyModel):
    """Addresses that agents ask before a move, and inform after it."""

    before_move: str = key(
        "",
        "http(s) address that may veto a move, or file:PATH of a file that holds it. Empty: "
        "no hook is called.",
        dynamic=False,
    )
    after_move: str = key(
        "",
        "http(s) address that gets each confirmed move, or file:PATH. Empty: no hook is called.",
        dynamic=False,
    )
    timeout_ms: int = key(
        2_000, "How long a hook may take to answer.", unit="ms", dynamic=False, ge=10
    )
    unanswered: Literal["allow", "veto"] = key(
        "allow",
        "What counts when before_move does not answer in time, or when its answer can't be read.",
        dynamic=False,
    )
    secret: str = key(
        "",
        "Key that signs requests to hooks (HMAC with SHA-256), or file:PATH. Empty: requests "
        "are not signed.",
        dynamic=False,
    )


class OtelSettings(KeyModel):
    """Traces and metrics for an OpenTelemetry collector. They need `lb_stream[otel]`."""

    enabled: bool = key(
        False,
        "Whether job and agents send traces and metrics. Then the environment variables of "
        "OpenTelemetry (OTEL_…) count, too.",
        dynamic=False,
    )
    endpoint: str = key(
        "",
        "http(s)://HOST[:PORT] of the collector, which speaks OTLP with HTTP; /v1/traces and "
        "/v1/metrics are added. Empty: OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318.",
        dynamic=False,
        pattern=COLLECTOR_PATTERN,
    )
    traces: bool = key(
        True,
        "Whether traces are sent. The job then writes the header traceparent into decisions, "
        "agents into acknowledgements.",
        dynamic=False,
    )
    metrics: bool = key(
        True,
        "Whether the job sends the metrics that it serves for Prometheus, every "
        "OTEL_METRIC_EXPORT_INTERVAL (60 s).",
        dynamic=False,
    )


Signed = Literal["open", "warn", "signed"]


class SecuritySettings(KeyModel):
    """The keys that sign records, and the records that must be signed."""

    signers: str = key(
        "",
        "File of the public keys that may sign, in the format of OpenSSH's allowed_signers; "
        "`lbctl keys` writes it. It is read anew when it changes.",
        dynamic=False,
    )
    private_key: str = key(
        "",
        "Private key with which this program signs what it sends (Ed25519, PKCS#8 in PEM), or "
        "file:PATH of the file that holds it. Empty: nothing is signed.",
        dynamic=False,
    )
    passphrase: str = key(
        "", "The key's passphrase, or file:PATH. Empty: the key has none.", dynamic=False
    )
    rights: str = key(
        "",
        "File of the rights of users, keys and groups (TOML; docs/security.md). Commands that it "
        "does not allow are refused. It is read anew when it changes. Empty: whoever may send "
        "commands may send all.",
        dynamic=False,
    )
    commands: Signed = key(
        "open",
        "Commands and the jobs' own records. open: signatures do not matter. warn: records "
        "without a right signature are taken, and listed in rejected_reports. signed: they are "
        "rejected.",
        dynamic=False,
    )
    reports: Signed = key(
        "open",
        "Load reports, heartbeats, acknowledgements and goodbyes: open, warn or signed, as for "
        "commands.",
        dynamic=False,
    )
    decisions: Signed = key(
        "open",
        "Decisions and ownership records, which agents check. warn: an agent logs those without a "
        "right signature and obeys. signed: it does not obey.",
        dynamic=False,
    )
    window_ms: int = key(
        300_000,
        "How far a signature's time may be from the time at which Kafka stored the record.",
        unit="ms",
        dynamic=False,
        ge=1_000,
    )

    @property
    def checks_records(self) -> bool:
        """Whether the job looks at signatures of records that it reads."""
        return (self.commands, self.reports) != ("open", "open")


class AdmissionSettings(KeyModel):
    """How much one broker or cluster may cause. A limit that is reached is named in rejected_reports.

    Limits of commands are the balancer's: they may differ from cluster to cluster.
    """

    records_per_second: int = key(
        10,
        "Records of one kind that a broker may send within a second, by Kafka's times. Of more, "
        "only the newest counts; of acknowledgements and requests of splits ten times as many "
        "count, and two for each pending decision. 0: no limit.",
        unit="records",
        dynamic=False,
        ge=0,
    )
    report_bundles: int = key(
        100_000,
        "Bundles that a report may name. 0: no limit.",
        unit="bundles",
        dynamic=False,
        ge=0,
    )
    rejected_rows: int = key(
        1_000,
        "Rejected records of one cluster that each task of a batch lists. Further ones are only "
        "counted, in one row. 0: no limit.",
        unit="rows",
        dynamic=False,
        ge=0,
    )
    clusters: int = key(
        2_000,
        "Clusters that the job knows at one time. Reports of further ones are rejected. 0: no "
        "limit.",
        unit="clusters",
        dynamic=False,
        ge=0,
    )
    unconfirmed_clusters: int = key(
        100,
        "New clusters of which one broker alone has been heard, and only once. Reports of further "
        "ones are rejected. 0: no limit.",
        unit="clusters",
        dynamic=False,
        ge=0,
    )
    unconfirmed_cluster_ms: int = key(
        1_800_000,
        "A new cluster is forgotten when nothing more is heard of it for this long. The default "
        "is twice the time in which every agent reports. 0: it stays like any silent cluster.",
        unit="ms",
        dynamic=False,
        ge=0,
    )


class Settings(KeyModel):
    """All settings of the job, of `lbctl tables maintain`, `lbctl notify`, servers, telemetry."""

    kafka: KafkaSettings = KafkaSettings()
    topics: TopicSettings = TopicSettings()
    stream: StreamSettings = StreamSettings()
    upkeep: UpkeepSettings = UpkeepSettings()
    notify: NotifySettings = NotifySettings()
    hooks: HookSettings = HookSettings()
    otel: OtelSettings = OtelSettings()
    security: SecuritySettings = SecuritySettings()
    console: ConsoleSettings = ConsoleSettings()
    oidc: OidcSettings = OidcSettings()
    lookup: LookupSettings = LookupSettings()
    metrics: MetricsSettings = MetricsSettings()
    admission: AdmissionSettings = AdmissionSettings()
    balancer: dict[str, Any] = key(
        {}, "Settings of every cluster's balancer, under our names or Pulsar's."
    )
    cluster: dict[str, dict[str, Any]] = key(
        {},
        "[cluster.<name>]: settings of one cluster, which override the general ones. "
        "[cluster.<name>.shadow.<shadow>]: settings of one of its shadows.",
    )

    def of_cluster(self, name: str) -> dict[str, Any]:
        """Return one cluster's balancer settings as they were given."""
        return self.balancer | {
            key: value for key, value in self.cluster.get(name, {}).items() if key != SHADOW
        }

    def shadows_of(self, name: str) -> dict[str, dict[str, Any]]:
        """Return a cluster's shadows → the settings that each has over the cluster's, as given."""
        return dict(self.cluster.get(name, {}).get(SHADOW, {}))
