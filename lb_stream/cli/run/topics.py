"""`lbctl topics`: the topics that the balancer reads and writes."""

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
    name="topics",
    help="Create and check the topics that the balancer reads and writes.",
    no_args_is_help=True,
)


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
