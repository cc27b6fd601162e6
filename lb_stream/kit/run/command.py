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
from lb_stream.io.messages.times import ago

if TYPE_CHECKING:
    from lb_stream.agent.pulsar.admin import AdminSettings
    from lb_stream.agent.pulsar.recorder import FoundCluster
    from lb_stream.contracts.settings import Settings
    from lb_stream.io.local.signals import StopRequest
    from lb_stream.kit.run.folder import ClusterFolder
    from lb_stream.kit.run.parts import Part
    from lb_stream.query.health import ClusterFacts

PULSAR = "pulsar"
KAFKA_VARIABLE = "LB_KAFKA__BOOTSTRAP_SERVERS"
"""The variable by which the job and the agents find Kafka, too: it overrides their files."""
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
            envvar=KAFKA_VARIABLE,
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
    from lb_stream.kit.run.joined import JoinedBrokers
    from lb_stream.settings.load import load_settings

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
    load_settings(arguments=set_ or ())  # what can't work is said before anything starts
    place = _open_folder(folder or Path(f"lb-{name}"))
    with _only_one(place):
        _require_programs()
        with StopRequest() as stop, ExitStack() as stack:
            begin_ms = time.time_ns() // 1_000_000
            bootstrap = _start_kafka(place, kafka, stack)
            fresh = _prepare(place, name, bootstrap, settings.broker, found, set_)
            parts: tuple[Part, ...] = ()
            if not stop:
                own = (driver_memory, set_ or ())
                parts = _start_parts(place, name, found, access, own, stop, stack)
                if not json:
                    _print_start(place, found, bootstrap, fresh)
                facts = _await_first_round(place, name, len(found.clients), parts, set_, stop)
                if facts is not None:
                    _print_ready(place, source[1], facts, begin_ms, json)
            joined = JoinedBrokers(found.clients, lambda: _list_brokers(settings))
            while not stop:
                for part in parts:
                    part.require_running()
                joined.warn_if_due()
                time.sleep(STEP_S)
            note(
                "stopping: the agents, the job, and Kafka if it was started here; a second Ctrl-C "
                "stops the job at once"
            )


# --- the cluster and its folder ---


def _find_cluster(settings: AdminSettings) -> FoundCluster:
    """Return the cluster, read by GET requests. Raises CommandError."""
    from lb_stream.agent.adapter import BrokerError
    from lb_stream.agent.pulsar.recorder import Pace, ReadOnlyClient, find_cluster

    try:
        return find_cluster(ReadOnlyClient(settings, Pace(REQUESTS_PER_S)))
    except BrokerError as error:
        raise CommandError(str(error)) from None


def _list_brokers(settings: AdminSettings) -> list[str]:
    """Return the cluster's brokers now. Raises BrokerError."""
    from lb_stream.agent.pulsar.recorder import Pace, ReadOnlyClient, find_cluster

    return list(find_cluster(ReadOnlyClient(settings, Pace(REQUESTS_PER_S))).clients)


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


@contextmanager
def _only_one(place: ClusterFolder) -> Iterator[None]:
    """Hold the folder. Raises CommandError when another run does: its end would stop this Kafka."""
    from lb_stream.io.local.processes import locked

    with ExitStack() as stack:
        try:
            stack.enter_context(locked(place.lock, wait=False))
        except BlockingIOError:
            raise CommandError(
                f"another lbctl run has the folder {place.root}: end it first, or look at it with "
                "lbctl status"
            ) from None
        except OSError as error:
            raise CommandError(f"--folder {place.root}: {error.strerror}", 2) from None
        yield


def _prepare(
    place: ClusterFolder,
    name: str,
    bootstrap: str,
    broker: str,
    found: FoundCluster,
    given: list[str] | None,
) -> bool:
    """Write settings where there are none, and the topics; make the folder the context.

    `given`: settings that override those of the folder. Returns whether the latter are new. Raises
    CommandError.
    """
    from lb_stream.cli.shared.options import load_cli_settings, require_kafka
    from lb_stream.io.kafka.topics import create_topics, topic_specs
    from lb_stream.kit.run.folder import require_settings, write_settings

    fresh = not place.config.exists()
    if fresh:
        for line in write_settings(place, name, bootstrap, broker, found.runtime):
            note(f"warning: {line}")
    if (known := require_settings(place, given or ())) != bootstrap:
        raise CommandError(
            f"Kafka is at {bootstrap}, but {place.config} has kafka.bootstrap_servers = {known!r}: "
            "correct the file, or give --folder for a new one",
            2,
        )
    loaded = load_cli_settings(place.config, place.broker_conf, given)
    with require_kafka(bootstrap, loaded):
        specs = topic_specs(loaded.settings.topics)
        create_topics(bootstrap, specs, loaded.settings.kafka.options)
    _use_context(place, name)
    return fresh


def _use_context(place: ClusterFolder, name: str) -> None:
    """Make the folder the context of all commands; warn if that can't be, or ends another's."""
    from lb_stream.cli.shared.contexts import load_contexts, use_context

    try:
        former = load_contexts().known.get(name)
        use_context(name, place.config, place.broker_conf)
    except CommandError as error:  # no reason to run nothing: commands can name the files
        files = shlex.join(["--config", str(place.config), "--broker-conf", str(place.broker_conf)])
        note(f"warning: {error}; commands find {name} only with {files}")
        return
    if former is not None and former.config != str(place.config):
        note(
            f"warning: the context {name} was {former.config}; if a balancer runs there, end it: "
            "two undo each other's moves"
        )


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

    Raises CommandError if none answers; KafkaError.
    """
    from lb_stream.io.kafka.reachable import describe_unreachable
    from lb_stream.kit.embedded_kafka import EmbeddedKafka, KafkaAlreadyRunning, KafkaError
    from lb_stream.kit.run.folder import require_settings

    known = require_settings(place) if place.config.exists() else ""
    port = place.find_kafka_port(known)
    if given is not None or port is None:
        if (reasons := describe_unreachable(given or known)) is not None:
            origin = f"kafka.bootstrap_servers in {place.config}" if given is None else "--kafka"
            raise CommandError(f"no Kafka broker answers ({reasons}): correct {origin}")
        return given or known
    broker = EmbeddedKafka(place.kafka, port=port)
    stack.callback(broker.stop)
    try:
        return broker.start()
    except KafkaAlreadyRunning as present:  # a run that was killed has left it
        return present.bootstrap
    except KafkaError as error:
        hint = f"\nIts address is kafka.bootstrap_servers in {place.config}." if port else ""
        raise CommandError(f"{error}{hint}") from None


def _start_parts(
    place: ClusterFolder,
    name: str,
    found: FoundCluster,
    access: AdminAccess,
    given: tuple[str, Sequence[str]],
    stop: StopRequest,
    stack: ExitStack,
) -> tuple[Part, ...]:
    """Start the job and the agents. `given`: the heap of Spark's JVM, and settings."""
    from lb_stream.kit.run.parts import Part

    driver_memory, settings = given
    shared = ["--config", str(place.config), "--broker-conf", str(place.broker_conf)]
    shared += [part for setting in settings for part in ("--set", setting)]
    # Pulsar's own ids: with TLS their port can be another than that of the address.
    urls = [
        part
        for broker, client in found.clients.items()
        for part in ("--admin-url", client.settings.url, "--broker", broker)
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
        stack.callback(part.stop, hurry=lambda: stop.times > 1)
    for part in parts:  # all at once, before any of them is waited for
        stack.callback(part.request_stop)
    return parts


def _await_first_round(
    place: ClusterFolder,
    name: str,
    brokers: int,
    parts: Sequence[Part],
    given: list[str] | None,
    stop: StopRequest,
) -> ClusterFacts | None:
    """Wait until the job works and knows every broker, or for some time; None: stopped before.

    Raises CommandError if a part ends, or the job knows nothing of the cluster in time.
    """
    from lb_stream.settings.load import load_settings

    settings = load_settings(place.config, place.broker_conf, given or ())
    begin, begin_ms = time.monotonic(), time.time_ns() // 1_000_000
    looked, facts = 0.0, None
    with _status("Spark starts, and the brokers report"):
        while not stop and time.monotonic() - begin < FIRST_ROUND_S:
            for part in parts:
                part.require_running()
            if time.monotonic() - looked >= LOOK_INTERVAL_S:
                facts, looked = _load_facts(settings, name, begin_ms), time.monotonic()
                if facts is not None and facts.brokers_alive >= brokers:
                    return facts
            time.sleep(STEP_S)
    if facts is None and not stop:
        raise CommandError(
            f"no round of {name} in {FIRST_ROUND_S:.0f} s: see {place.log('job')} and "
            f"{place.log('agents')}"
        )
    return facts


def _load_facts(settings: Settings, name: str, since_ms: int) -> ClusterFacts | None:
    """Return what the last round knows of the cluster; None: no batch has begun since then.

    The round may be an older one: while all is quiet, many batches have none.
    """
    from lb_stream.query import QueryError
    from lb_stream.query.lake import open_lake
    from lb_stream.query.status_facts import gather_table_facts
    from lb_stream.store import tables_of

    tables = tables_of(settings.stream)
    try:
        with open_lake(tables) as lake:
            facts = gather_table_facts(lake, tables, settings)
    except QueryError:  # no tables yet
        return None
    if (facts.job.last_batch_ms or 0) < since_ms:
        return None
    return next((row for row in facts.clusters if row.cluster == name), None)


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
    place: ClusterFolder, url: str, facts: ClusterFacts, begin_ms: int, json: bool
) -> None:
    if json:
        emit_json(
            {
                "cluster": facts.cluster,
                "folder": str(place.root),
                "mode": facts.mode,
                "brokers": facts.brokers,
                "brokers_alive": facts.brokers_alive,
                "bundles": facts.bundles,
                "last_round_ms": facts.last_round_ms,
            }
        )
        return
    emit(
        f"\n{_describe_state(facts, begin_ms)}\n{_describe_next(url, facts.mode)}\n"
        "Everything ends with Ctrl-C, and goes on with the next lbctl run.\n"
    )


def _describe_state(facts: ClusterFacts, begin_ms: int) -> str:
    """Describe mode, brokers and bundles; and of when they are, if that is before this run began.

    While all is quiet, the job logs no round.
    """
    brokers = f"{facts.brokers_alive} of {facts.brokers} brokers"
    known = f"{brokers} report, {facts.bundles} bundles"
    if facts.last_round_ms < begin_ms:
        known = f"by the last round, {ago(facts.last_round_ms)}: {brokers}, {facts.bundles} bundles"
    return f"{facts.cluster} runs in mode {facts.mode}: {known}."


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
