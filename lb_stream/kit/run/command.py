"""`lbctl run`: the whole balancer for a Pulsar cluster, from one machine, in one terminal."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.admin_access import AdminAccess, with_admin_access
from lb_stream.cli.shared.options import Json, Set, check_cluster_name
from lb_stream.cli.shared.output import CommandError, emit, emit_json, note

if TYPE_CHECKING:
    from lb_stream.agent.pulsar.admin import AdminSettings
    from lb_stream.agent.pulsar.recorder import FoundCluster
    from lb_stream.io.local.signals import StopRequest
    from lb_stream.kit.run.folder import ClusterFolder
    from lb_stream.kit.run.parts import Part
    from lb_stream.query.health import ClusterFacts
    from lb_stream.store import Store

PULSAR = "pulsar"
REQUESTS_PER_S = 10.0
STEP_S = 0.5
LOOK_INTERVAL_S = 2.0
FIRST_ROUND_S = 240.0
"""How long the first round may take: Spark starts, and every broker reports."""
EPILOG = (
    "Example: lbctl run pulsar http://broker-1:8080 · Exit codes: 0 ended by Ctrl-C, 1 a part "
    "ended or the cluster doesn't answer, 2 wrong usage or settings."
)


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("run", epilog=EPILOG)(run)


@with_admin_access
def run(
    access: AdminAccess,
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="pulsar URL",
            help="The admin API of any broker of a Pulsar cluster, http(s)://HOST:PORT.",
        ),
    ],
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="NAME",
            help="The cluster's name in the balancer. Default: its own.",
            callback=check_cluster_name,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            metavar="FOLDER",
            help="Settings, tables and logs. What is there is used again. Default: lb-NAME.",
        ),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            "--kafka",
            metavar="HOST:PORT",
            help="A Kafka of yours. Default: one on this machine, for a trial.",
        ),
    ] = None,
    driver_memory: Annotated[
        str,
        typer.Option(
            "--driver-memory", metavar="SIZE", help="Heap of Spark's JVM; 1g fits 100,000 bundles."
        ),
    ] = "1g",
    set_: Set = None,
    json: Json = False,
) -> None:
    """Run all of the balancer for a Pulsar cluster until Ctrl-C: Kafka, job, an agent per broker.

    It begins in mode observe: it logs what it would do, and changes nothing in the cluster. The
    brokers' settings are read and kept in a folder, which becomes the context of all commands. A
    second run continues where this one ends.
    """
    from lb_stream.io.local.signals import StopRequest
    from lb_stream.io.messages.missing_packages import require_extras

    require_extras("lbctl run", "job", "cli")
    if len(source) != 2 or source[0] != PULSAR:
        raise CommandError(
            f"{' '.join(source)}: expected {PULSAR} URL, as in lbctl run pulsar http://broker:8080",
            2,
        )
    settings = access.connect(source[1]).settings
    found = _find_cluster(settings)
    if found.is_extensible:
        require_extras("lbctl run of an extensible cluster", "pulsar")
    name = cluster or _require_name(found)
    place = _open_folder(folder or Path(f"lb-{name}"))
    _require_programs()
    with StopRequest() as stop, ExitStack() as stack:
        bootstrap = _start_kafka(place, kafka, stack)
        fresh = _prepare(place, name, bootstrap, settings.broker, found)
        parts = _start_parts(place, name, found, access, (driver_memory, set_ or ()), stack)
        if not json:
            _print_start(place, found, bootstrap, fresh)
        facts = _await_first_round(place, name, len(found.clients), parts, stop)
        if facts is not None:
            _print_ready(place, name, source[1], facts, json)
        while not stop:
            for part in parts:
                part.require_running()
            time.sleep(STEP_S)
        note("stopping: the agents, the job, and Kafka if it was started here")


# --- the cluster and its folder ---


def _find_cluster(settings: AdminSettings) -> FoundCluster:
    """Return the cluster, read by GET requests. Raises CommandError."""
    from lb_stream.agent.adapter import BrokerError
    from lb_stream.agent.pulsar.recorder import Pace, ReadOnlyClient, find_cluster

    try:
        return find_cluster(ReadOnlyClient(settings, Pace(REQUESTS_PER_S)))
    except BrokerError as error:
        raise CommandError(str(error)) from None


def _require_name(found: FoundCluster) -> str:
    try:
        return check_cluster_name(found.name) or ""
    except typer.BadParameter as error:
        raise CommandError(
            f"the cluster's name {found.name!r} can't be used here: {error.message}; give --cluster",
            2,
        ) from None


def _open_folder(path: Path) -> ClusterFolder:
    from lb_stream.kit.run.folder import ClusterFolder

    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"--folder {path}: {error.strerror}", 2) from None
    return ClusterFolder(path.resolve())


def _prepare(
    place: ClusterFolder, name: str, bootstrap: str, broker: str, found: FoundCluster
) -> bool:
    """Write settings where there are none, and the topics; make the folder the context.

    Returns whether the settings are new. Raises CommandError.
    """
    from lb_stream.cli.shared.contexts import use_context
    from lb_stream.cli.shared.options import load_cli_settings, require_kafka
    from lb_stream.io.kafka.topics import create_topics, topic_specs
    from lb_stream.kit.run.folder import require_settings, write_settings

    fresh = not place.config.exists()
    if fresh:
        for line in write_settings(place, name, bootstrap, broker, found.runtime):
            note(f"warning: {line}")
    if (known := require_settings(place)) != bootstrap:
        raise CommandError(
            f"Kafka is at {bootstrap}, but {place.config} has kafka.bootstrap_servers = {known!r}: "
            "correct the file, or give --folder for a new one",
            2,
        )
    given = load_cli_settings(place.config, place.broker_conf, None)
    with require_kafka(bootstrap, given):
        specs = topic_specs(given.settings.topics)
        create_topics(bootstrap, specs, given.settings.kafka.options)
    use_context(name, place.config, place.broker_conf)
    return fresh


# --- the parts ---


def _require_programs() -> None:
    """Require Java, and fetch the jars that are missing. Raises JavaUnfit, JarsError."""
    from lb_stream.io.local.java import find_java
    from lb_stream.io.local.progress import progress
    from lb_stream.kit.fetch_jars import fetch_jars

    find_java()
    with progress("jars of Spark's connectors and of Kafka (70 MB)") as advance:
        fetch_jars(progress=advance)


def _start_kafka(place: ClusterFolder, given: str | None, stack: ExitStack) -> str:
    """Return Kafka's address: the given one, or that of the settings, or of a broker started here.

    Raises CommandError, KafkaError.
    """
    from lb_stream.kit.embedded_kafka import EmbeddedKafka, KafkaAlreadyRunning
    from lb_stream.kit.run.folder import require_settings

    if given is not None:
        return given
    if place.config.exists() and not place.kafka.exists():
        return require_settings(place)
    port = 0  # any at first, then that of the settings
    if place.config.exists():
        port = int(require_settings(place).rpartition(":")[2])
    broker = EmbeddedKafka(place.kafka, port=port)
    stack.callback(broker.stop)
    try:
        return broker.start()
    except KafkaAlreadyRunning as present:  # a run that was killed has left it
        return present.bootstrap


def _start_parts(
    place: ClusterFolder,
    name: str,
    found: FoundCluster,
    access: AdminAccess,
    given: tuple[str, Sequence[str]],
    stack: ExitStack,
) -> tuple[Part, ...]:
    """Start the job and the agents. `given`: the heap of Spark's JVM, and settings."""
    from lb_stream.kit.run.parts import Part

    driver_memory, settings = given
    shared = ["--config", str(place.config), "--broker-conf", str(place.broker_conf)]
    shared += [part for setting in settings for part in ("--set", setting)]
    urls = [
        part for client in found.clients.values() for part in ("--admin-url", client.settings.url)
    ]
    options, environment = access.to_arguments()
    job = ["balance", "--driver-memory", driver_memory, *shared]
    agents = ["agent", PULSAR, "--cluster", name, *urls, *options, *shared]
    parts = (
        Part("job", job, place.log("job"), {}),
        Part("agents", agents, place.log("agents"), environment),
    )
    for part in parts:
        part.start()
        stack.callback(part.stop)
    return parts


def _await_first_round(
    place: ClusterFolder, name: str, brokers: int, parts: Sequence[Part], stop: StopRequest
) -> ClusterFacts | None:
    """Wait for a round that knows every broker, or for some time; None: stopped before.

    Raises CommandError if a part ends, or no round comes.
    """
    from lb_stream.settings.load import load_settings
    from lb_stream.store import tables_of

    tables = tables_of(load_settings(place.config, place.broker_conf).stream)
    begin, begin_ms = time.monotonic(), time.time_ns() // 1_000_000
    looked, facts = 0.0, None
    with _status("Spark starts, and the brokers report"):
        while not stop and time.monotonic() - begin < FIRST_ROUND_S:
            for part in parts:
                part.require_running()
            if time.monotonic() - looked >= LOOK_INTERVAL_S:
                facts, looked = _load_facts(tables, name, begin_ms), time.monotonic()
                if facts is not None and facts.brokers_alive >= brokers:
                    return facts
            time.sleep(STEP_S)
    if facts is None and not stop:
        raise CommandError(
            f"no round of {name} in {FIRST_ROUND_S:.0f} s: see {place.log('job')} and "
            f"{place.log('agents')}"
        )
    return facts


def _load_facts(tables: Store, name: str, since_ms: int) -> ClusterFacts | None:
    """Return what the last round knows of the cluster; None: none since then."""
    from lb_stream.query import QueryError
    from lb_stream.query.lake import open_lake
    from lb_stream.query.status_facts import load_cluster_facts

    try:
        with open_lake(tables) as lake:
            rows = [row for row in load_cluster_facts(lake) if row.last_round_ms >= since_ms]
    except QueryError:  # no tables yet
        return None
    return next((row for row in rows if row.cluster == name), None)


@contextmanager
def _status(text: str) -> Iterator[None]:
    """Show on stderr what is waited for: it turns on a terminal, and is a line elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        note(f"{text} …")
        yield
        return
    with console.status(text):
        yield


# --- what is printed ---


def _print_start(place: ClusterFolder, found: FoundCluster, bootstrap: str, fresh: bool) -> None:
    settings = "settings of the brokers, kept in" if fresh else "settings that were kept in"
    emit(
        f"{len(found.clients)} brokers of Pulsar cluster {found.name}; {settings} {place.root}\n"
        f"Kafka at {bootstrap}; output of the parts: {place.log('job').name} and "
        f"{place.log('agents').name} there\n"
    )


def _print_ready(
    place: ClusterFolder, name: str, url: str, facts: ClusterFacts, json: bool
) -> None:
    if json:
        emit_json(
            {
                "cluster": name,
                "folder": str(place.root),
                "mode": facts.mode,
                "brokers": facts.brokers,
                "brokers_alive": facts.brokers_alive,
                "bundles": facts.bundles,
            }
        )
        return
    emit(
        f"\n{name} runs in mode {facts.mode}: {facts.brokers_alive} of {facts.brokers} brokers "
        f"report, {facts.bundles} bundles.\n{_describe_next(url, facts.mode)}\n"
        "Everything ends with Ctrl-C, and goes on with the next lbctl run.\n"
    )


def _describe_next(url: str, mode: str) -> str:
    """Return what to look at and what to do next, as commands for another terminal."""
    look = (
        "In another terminal:\n"
        "  lbctl brokers     # how even the load is\n"
        "  lbctl decisions   # what would be done, and why\n"
        "  lbctl console     # the same in a browser, http://127.0.0.1:8090\n"
    )
    if mode != "observe":
        return look + "Whether all is well: lbctl status"
    turn_off = f"lbctl agent own-balancing off --admin-url {shlex.quote(url)}"
    return (
        look + "Nothing is changed in the cluster. When you want it to act, first end Pulsar's own "
        f"balancing:\n  {turn_off}"
    )
