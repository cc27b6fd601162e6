"""`lbctl lookup-server`: answers clients' lookups over HTTP, from the ownership topic."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.admin_access import AdminAccess, with_admin_access
from lb_stream.cli.shared.options import (
    BrokerConf,
    ConfigFile,
    Json,
    Set,
    load_cli_settings,
    require_kafka,
)
from lb_stream.cli.shared.output import CommandError, emit, emit_json, note

if TYPE_CHECKING:
    from lb_stream.io.lookup.scalable import FindSegments, TopicSegment

STEP_S = 0.2


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("lookup-server", epilog="Example: lbctl lookup-server --address 127.0.0.1:8095")(
        lookup_server
    )


@with_admin_access
def lookup_server(
    access: AdminAccess,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0: any free port.")
    ] = "127.0.0.1:8095",
    max_age: Annotated[
        float,
        typer.Option(
            metavar="S",
            min=1,
            help="Refuse lookups when Kafka has not answered for this many seconds.",
        ),
    ] = 10.0,
    asks: Annotated[
        float,
        typer.Option(
            "--asks-per-second",
            metavar="N",
            min=0,
            help="How many commands a second --ask may send for known bundles, and as many for "
            "others.",
        ),
    ] = 20.0,
    ask: Annotated[
        bool, typer.Option(help="Have the balancer assign bundles without an owner.")
    ] = True,
    admin_url: Annotated[
        list[str] | None,
        typer.Option(
            "--admin-url",
            metavar="[CLUSTER=]URL",
            help="Any Pulsar broker's admin API, http(s)://HOST:PORT, which names the segments of "
            "scalable topics (topic://…); once for each cluster.",
        ),
    ] = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Answer over HTTP which broker serves a topic, until Ctrl-C.

    GET /lookup?topic=TOPIC&cluster=CLUSTER gives the broker, GET /health the server's state.
    """
    given = load_cli_settings(config, broker_conf, set_)
    from lb_stream.io.kafka.signing import check_decisions, job_name
    from lb_stream.io.local.signals import StopRequest
    from lb_stream.io.local.tls import ServerTls, describe_plain
    from lb_stream.io.lookup.client import Lookup, LookupConfig, LookupFailed
    from lb_stream.io.lookup.server import serve_lookups
    from lb_stream.settings.signing import load_own_name, load_signer

    find_segments = segment_finder(access, admin_url or ())
    bootstrap, topics = given.bootstrap, given.settings.topics
    security = given.settings.security
    signer = load_signer(security)
    settings = LookupConfig(
        bootstrap_servers=bootstrap,
        ownership_topic=topics.ownership,
        commands_topic=topics.commands if ask and asks else None,
        results_topic=topics.results,
        max_age_s=max_age,
        asks_per_s=asks,
        client_options=given.settings.kafka.options,
        signer=signer,
        sender="" if signer is None else load_own_name(security, signer),
        ownership=check_decisions(security),
        job=job_name(given.stream.pipeline_id),
    )
    tls = ServerTls.load("lookup", given.settings.lookup)
    with StopRequest() as stop, require_kafka(bootstrap, given):
        try:
            with Lookup(settings) as lookup:
                try:
                    server = serve_lookups(
                        address, lookup, find_segments, given.settings.lookup, tls
                    )
                except (OSError, ValueError, OverflowError) as error:
                    raise CommandError(
                        f"--address {address}: {error}: give another HOST:PORT", 2
                    ) from None
                if plain := describe_plain("lookup", address, tls):
                    note(f"warning: {plain}")
                clusters, bundles = lookup.known_clusters()
                note(
                    f"bundles known: {bundles}; clusters: {', '.join(clusters) or 'none yet'}; "
                    "Ctrl-C ends it"
                )
                if json:
                    emit_json({"url": server.url})
                else:
                    emit(f"{server.url}/lookup?topic=TOPIC\n")
                while not stop:
                    time.sleep(STEP_S)
                server.stop()
        except LookupFailed as error:
            raise CommandError(str(error), error.code) from None


def segment_finder(access: AdminAccess, urls: Sequence[str]) -> FindSegments | None:
    """Return what asks Pulsar for a scalable topic's segments; None without addresses.

    `urls`: an address of each cluster, as CLUSTER=URL, or a single one without the cluster.
    """
    if not urls:
        return None
    from lb_stream.agent.adapter import BrokerError
    from lb_stream.agent.pulsar.scalable import UnknownTopic, read_segments
    from lb_stream.io.lookup.client import LookupFailed
    from lb_stream.io.lookup.scalable import UnknownScalable

    named = [url.rpartition("=") for url in urls]
    admins = {cluster: access.connect(url) for cluster, _, url in named}
    if len(admins) != len(urls) or ("" in admins and len(admins) > 1):
        raise CommandError("--admin-url: expected CLUSTER=URL once for each cluster", 2)

    def find_segments(cluster: str, topic: str) -> Sequence[TopicSegment]:
        admin = admins.get(cluster) or admins.get("")
        if admin is None:
            raise ValueError(
                f"cluster = {cluster}: no --admin-url of it names the segments of {topic}"
            )
        try:
            return read_segments(admin, topic).segments
        except UnknownTopic as error:
            raise UnknownScalable(str(error)) from None
        except BrokerError as error:
            raise LookupFailed(str(error)) from None

    return find_segments
