"""`lbctl kafka`: the embedded broker."""

from __future__ import annotations

from typing import Annotated

import typer

from lb_stream.cli.shared.options import KAFKA_FOLDER, DataFolder, Format, Json, Output
from lb_stream.cli.shared.output import emit, emit_json, emit_rows, note

app = typer.Typer(
    name="kafka",
    help="Run a real Kafka broker on this machine, to try things out.",
    no_args_is_help=True,
)

USUAL_PORT = 9092
"""Kafka's own default port, which examples use."""
Port = Annotated[
    int,
    typer.Option(
        help="Port for clients. 0: that of the last start, else 9092 if it is free, else any.",
        min=0,
        max=65535,
    ),
]
ControllerPort = Annotated[
    int,
    typer.Option(
        help="Port of its controller. 0: that of the last start, else any free one.",
        min=0,
        max=65535,
    ),
]


@app.command(epilog="Example: lbctl kafka start --port 9092")
def start(
    data: DataFolder = KAFKA_FOLDER,
    port: Port = 0,
    controller_port: ControllerPort = 0,
    heap: Annotated[str, typer.Option(help="Its heap, as a value of Java's -Xmx.")] = "512m",
    json: Json = False,
) -> None:
    """Start the broker in the background and print its bootstrap servers.

    Its topics are kept from one start to the next.
    """
    from lb_stream.kit.embedded_kafka import EmbeddedKafka, KafkaAlreadyRunning

    broker = EmbeddedKafka(
        data, port=port, controller_port=controller_port, heap=heap, usual_port=USUAL_PORT
    )
    fresh = True
    try:
        bootstrap = broker.start()
    except KafkaAlreadyRunning as present:
        bootstrap, fresh = present.bootstrap, False
    if json:
        emit_json(
            {"bootstrap_servers": bootstrap, "pid": broker.pid, "data": str(data), "started": fresh}
        )
        return
    state = "started" if fresh else "it runs already"
    note(f"{state}; for the job: export LB_KAFKA__BOOTSTRAP_SERVERS={bootstrap}")
    emit(bootstrap + "\n")


@app.command(epilog="Example: lbctl kafka stop")
def stop(data: DataFolder = KAFKA_FOLDER, json: Json = False) -> None:
    """Stop the broker on a data folder; the exit code is 0 also if none runs."""
    from lb_stream.kit.embedded_kafka import EmbeddedKafka

    stopped = EmbeddedKafka(data).stop()
    if json:
        emit_json({"stopped": stopped, "data": str(data)})
    else:
        note(f"stopped the broker on {data}" if stopped else f"no broker runs on {data}")


@app.command(epilog="Example: lbctl kafka status --json")
def status(
    data: DataFolder = KAFKA_FOLDER, json: Json = False, output: Output = Format.table
) -> None:
    """Print the running broker's bootstrap servers; the exit code is 1 if none runs."""
    from lb_stream.kit.embedded_kafka import EmbeddedKafka

    running = EmbeddedKafka.find_running(data)
    row = {
        "bootstrap_servers": running and running.bootstrap,
        "pid": running and running.pid,
        "data": str(data),
    }
    if not emit_rows([row], output, json):
        if running:
            note(f"runs on {data}, pid {running.pid}")
            emit(running.bootstrap + "\n")
        else:
            note(f"no broker runs on {data}: `lbctl kafka start`")
    raise typer.Exit(0 if running else 1)
