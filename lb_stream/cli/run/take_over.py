"""`lbctl tables take-over`: moves a cluster from one pipeline to another."""

from __future__ import annotations

from typing import Annotated

import typer

from lb_stream.cli.shared.options import BrokerConf, ConfigFile, Json, Set, load_cli_settings
from lb_stream.cli.shared.output import CommandError, emit, emit_json


def take_over(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="The cluster.")],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="FOLDER",
            help="The folder of tables of the pipeline that has it (stream.tables there).",
        ),
    ],
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Copy a cluster's memory from another pipeline's log into this pipeline's.

    It holds commands in force, pending decisions, versions and epochs. Stop this pipeline's job
    first, then the other's. Before the other starts again, its settings must leave the cluster out
    (stream.excluded_clusters): docs/deploy.md "Several pipelines".
    """
    from dataclasses import asdict

    from lb_stream.io.leadership.take_over import TakeOverError
    from lb_stream.io.leadership.take_over import take_over as taken_over
    from lb_stream.io.tables.commits import COMMIT_TROUBLES
    from lb_stream.store import Store, tables_of
    from lb_stream.stream.shards.share import Share

    settings = load_cli_settings(config, broker_conf, set_).settings
    stream, topics = settings.stream, (settings.topics.reports, settings.topics.commands)
    if not Share.from_settings(stream).includes(cluster):
        raise CommandError(
            f"the settings of the pipeline {stream.pipeline_id!r} leave {cluster} out: set "
            "stream.clusters first",
            code=2,
        )
    try:
        done = taken_over(
            cluster,
            Store.at(source, stream.store_options, "TABLES"),
            tables_of(stream),
            stream.pipeline_id,
            topics,
        )
    except TakeOverError as error:
        raise CommandError(str(error)) from error
    except COMMIT_TROUBLES as error:
        raise CommandError(
            f"another process writes to the log in {stream.tables} ({error}): stop the job, then "
            "try again"
        ) from error
    if json:
        emit_json(asdict(done))
        return
    emit(
        f"{done.pipeline} has {cluster} as of round {done.seq}, epoch {done.epoch}, with "
        f"{done.pending} pending decisions. Start its job: averages begin anew with the next "
        "reports.\n"
    )
