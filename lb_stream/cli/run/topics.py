"""`lbctl topics`: the topics in Kafka that the balancer reads and writes."""

from __future__ import annotations

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    ConfigFile,
    Json,
    Set,
    load_cli_settings,
    require_kafka,
)
from lb_stream.cli.shared.output import (
    CommandError,
    emit,
    emit_json,
    emit_rich,
    note,
    styled,
    table,
)
from lb_stream.cli.shared.reading import ReadOptions, with_read_options

app = typer.Typer(
    name="topics",
    help="List, create and check the topics in Kafka that the balancer reads and writes.",
    no_args_is_help=True,
)


@app.command("list", epilog="Example: lbctl topics list")
@with_read_options(cluster=False, watch=False)
def list_(options: ReadOptions) -> None:
    """List the balancer's own topics in Kafka: what each is for, its partitions, whether it is ok.

    Topics of the clusters that it balances are not known one by one: brokers report how many each
    bundle has (lbctl namespaces bundles). lbctl lookup TOPIC shows where one is.
    """
    from lb_stream.contracts.topics import TOPICS
    from lb_stream.io.kafka.preflight import require_rights
    from lb_stream.io.kafka.topics import describe_topics, find_mismatches, topic_specs

    given = options.given
    bootstrap, client = given.bootstrap, given.settings.kafka.options
    specs = topic_specs(given.settings.topics)
    with require_kafka(bootstrap, given):
        rights = given.rights("DescribeConfigs", *(spec.name for spec in specs))
        require_rights(bootstrap, client, rights)
        found = describe_topics(bootstrap, specs, client)
    rows: list[dict[str, object]] = []
    for topic, spec in zip(TOPICS, specs, strict=True):
        state = found.get(spec.name)
        wrong = [] if state is None else find_mismatches(spec, state, bootstrap)
        rows.append(
            {
                "topic": spec.name,
                "setting": f"topics.{topic.setting}",
                "key": topic.key,
                "cleanup_policy": spec.cleanup_policy,
                "partitions": None if state is None else state.partitions,
                "state": "missing" if state is None else "wrong" if wrong else "ok",
                "wrong": [mismatch.setting for mismatch in wrong],
            }
        )
    if options.emit_rows(rows, "topic"):
        return
    emit_rich(table(_COLUMNS, [_build_cells(row) for row in rows], right=("partitions",)))
    states = {row["state"] for row in rows}
    if "missing" in states:
        note("lbctl topics create makes those that are missing")
    if "wrong" in states:
        note("lbctl topics check says how to correct those that are wrong")


_COLUMNS = ("topic", "setting", "key of a record", "partitions", "state")


def _build_cells(row: dict[str, object]) -> tuple[object, ...]:
    state = str(row["state"])
    colour = "green" if state == "ok" else "red"
    partitions = "-" if row["partitions"] is None else row["partitions"]
    return row["topic"], row["setting"], row["key"], partitions, styled((state, colour))


@app.command(epilog="Example: lbctl topics create --set kafka.bootstrap_servers=127.0.0.1:9092")
def create(
    config: ConfigFile = None, broker_conf: BrokerConf = None, set_: Set = None, json: Json = False
) -> None:
    """Create the topics that are missing.

    If a topic exists with wrong settings, the command that corrects them is shown (exit code 2).
    """
    from lb_stream.access.roles import resource_names, rights_of
    from lb_stream.cli.shared.contexts import note_current
    from lb_stream.io.kafka.preflight import require_rights
    from lb_stream.io.kafka.topics import create_topics, topic_specs

    note_current(config, broker_conf)
    given = load_cli_settings(config, broker_conf, set_)
    bootstrap = given.bootstrap
    specs = topic_specs(given.settings.topics)
    with require_kafka(bootstrap, given):
        require_rights(
            bootstrap,
            given.settings.kafka.options,
            rights_of("create", resource_names(given.settings)),
        )
        created = create_topics(bootstrap, specs, given.settings.kafka.options)
    if json:
        emit_json(
            {
                "bootstrap_servers": bootstrap,
                "created": created,
                "existed": [spec.name for spec in specs if spec.name not in created],
            }
        )
        return
    emit(
        "".join(
            f"{spec.name}: {'created' if spec.name in created else 'exists, ok'}\n"
            for spec in specs
        )
    )


@app.command(epilog="Example: lbctl topics check --json")
def check(
    config: ConfigFile = None, broker_conf: BrokerConf = None, set_: Set = None, json: Json = False
) -> None:
    """Check the topics and change nothing.

    The exit code is 1 if a topic is missing, 2 if one has wrong settings.
    """
    from lb_stream.io.kafka.preflight import require_rights
    from lb_stream.io.kafka.topics import TopicMismatch, inspect_topics, topic_specs

    given = load_cli_settings(config, broker_conf, set_)
    bootstrap = given.bootstrap
    specs = topic_specs(given.settings.topics)
    with require_kafka(bootstrap, given):
        require_rights(
            bootstrap,
            given.settings.kafka.options,
            given.rights("DescribeConfigs", *(spec.name for spec in specs)),
        )
        missing, mismatches = inspect_topics(bootstrap, specs, given.settings.kafka.options)
    if json:
        wrong = [
            {
                "topic": mismatch.topic,
                "setting": mismatch.setting,
                "found": mismatch.found,
                "expected": mismatch.expected,
                "fix": mismatch.fix,
            }
            for mismatch in mismatches
        ]
        emit_json({"bootstrap_servers": bootstrap, "missing": missing, "wrong": wrong})
        raise typer.Exit(2 if mismatches else 1 if missing else 0)
    if mismatches:
        raise TopicMismatch(mismatches)
    if missing:
        raise CommandError(
            f"missing at {bootstrap}: {', '.join(missing)}: run `lbctl topics create`"
        )
    emit("".join(f"{spec.name}: ok\n" for spec in specs))
