"""Records load reports from the topic in which agents send them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from lb_stream.contracts.arrow_stream import ColumnarError
from lb_stream.contracts.columnar import COLUMNAR_KINDS, ReportReader
from lb_stream.io.kafka.reading import open_topic, read_below, seek_since
from lb_stream.io.local.report_lines import format_line
from lb_stream.io.messages.times import utc
from lb_stream.query import QueryError
from lb_stream.stream.records import RecordRejected, parse_report

MOST_CLUSTERS = 10


def record_topic(
    options: Mapping[str, object],
    topic: str,
    cluster: str,
    since_ms: int,
    default_cluster: str,
    write: Callable[[str], object],
) -> tuple[str, ...]:
    """Give a line for each report of a cluster since a time to `write`; return what was left out.

    `options`: arguments of a kafka-python client. `default_cluster`: that of records whose key
    names none. Raises QueryError (exit code 2) for a topic that doesn't exist, or has no report of
    the cluster; KafkaError, TimeoutError.
    """
    written, others, rejected = 0, Counter[str](), list[str]()
    columnar = ReportReader()
    with open_topic(options, topic) as (consumer, partitions):
        if not partitions:
            raise QueryError(f"there is no topic {topic}: name the reports' with --topic", 2)
        ends = seek_since(consumer, partitions, since_ms)
        for record in read_below(consumer, ends):
            named, _, broker = (record.key or b"").decode(errors="replace").rpartition("/")
            kind = dict(record.headers or ()).get("kind", b"report").decode(errors="replace")
            if kind not in ("report", *COLUMNAR_KINDS):
                continue
            if (named or default_cluster) != cluster:
                others[named or default_cluster] += 1
                continue
            value = record.value or b""
            try:
                if kind != "report":
                    found = columnar.take(record.key or b"", kind, value)
                    if found is None:  # a roster, or nothing known before
                        continue
                    value = found
                report = parse_report(value, broker)
            except (ColumnarError, RecordRejected) as error:
                rejected.append(
                    f"{topic}, partition {record.partition}, offset {record.offset}: {error}"
                )
                continue
            write(format_line(report.broker, value, record.timestamp))
            written += 1
    if not written:
        raise QueryError(_describe_nothing(topic, cluster, since_ms, others, rejected), 2)
    if not rejected:
        return ()
    return (f"left out: {len(rejected)} records that are no load report, such as {rejected[0]}",)


def _describe_nothing(
    topic: str, cluster: str, since_ms: int, others: Counter[str], rejected: list[str]
) -> str:
    since = f" since {utc(since_ms)}" if since_ms else ""
    if rejected:
        return f"the topic {topic} has no report of {cluster}{since} that is right: {rejected[0]}"
    names = ", ".join(sorted(others)[:MOST_CLUSTERS])
    if names:
        what = f"it has those of {names}: give --cluster"
    else:
        what = (
            "it has none of another cluster either: give --from-beginning, or more --minutes"
            if since_ms
            else "it has none of another cluster either: name the reports' topic with --topic"
        )
    return f"the topic {topic} has no report of {cluster}{since}; {what}"
