"""`lbctl topics`: the five topics between brokers and balancer."""

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
from lb_stream.cli.shared.output import CommandError, emit, emit_json

app = typer.Typer(
    name="topics", help="The topics that the balancer reads and writes.", no_args_is_help=True
)


@app.command(epilog="Example: lbctl topics create --set kafka.bootstrap_servers=127.0.0.1:9092")
def create(
    config: ConfigFile = None, broker_conf: BrokerConf = None, set_: Set = None, json: Json = False
) -> None:
    """Make the topics that are missing; one that exists with unfit settings is named with the
    command that mends it (exit code 2)."""
    from lb_stream.access.roles import resource_names, rights_of
    from lb_stream.io.kafka.preflight import require_rights
    from lb_stream.io.kafka.topics import create_topics, topic_specs

    given = load_cli_settings(config, broker_conf, set_)
    bootstrap = given.bootstrap
    specs = topic_specs(given.settings.topics)
    with require_kafka(bootstrap, given):
        require_rights(
            bootstrap,
            given.settings.kafka.options,
            rights_of("create", resource_names(given.settings)),
        )
        made = create_topics(bootstrap, specs, given.settings.kafka.options)
    if json:
        emit_json(
            {
                "bootstrap_servers": bootstrap,
                "made": made,
                "existed": [spec.name for spec in specs if spec.name not in made],
            }
        )
        return
    emit(
        "".join(
            f"{spec.name}: {'made' if spec.name in made else 'exists, fit'}\n" for spec in specs
        )
    )


@app.command(epilog="Example: lbctl topics check --json")
def check(
    config: ConfigFile = None, broker_conf: BrokerConf = None, set_: Set = None, json: Json = False
) -> None:
    """Check the topics and change nothing: exit code 1 when one is missing, 2 when one is unfit."""
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
        unfit = [
            {
                "topic": mismatch.topic,
                "setting": mismatch.setting,
                "found": mismatch.found,
                "expected": mismatch.expected,
                "fix": mismatch.fix,
            }
            for mismatch in mismatches
        ]
        emit_json({"bootstrap_servers": bootstrap, "missing": missing, "unfit": unfit})
        raise typer.Exit(2 if mismatches else 1 if missing else 0)
    if mismatches:
        raise TopicMismatch(mismatches)
    if missing:
        raise CommandError(
            f"missing at {bootstrap}: {', '.join(missing)}: run `lbctl topics create`"
        )
    emit("".join(f"{spec.name}: fit\n" for spec in specs))
