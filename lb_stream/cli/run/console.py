"""`lbctl console`: live pages of all clusters in a browser, and lines for the file of users."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    CliSettings,
    ConfigFile,
    Json,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import CommandError, emit, emit_json, note, warn_if_exposed
from lb_stream.io.messages.missing_packages import require_extras

if TYPE_CHECKING:
    from lb_stream.console.auth.visitor import Access
    from lb_stream.console.sending import SendCommand
    from lb_stream.contracts.commands import Command
    from lb_stream.contracts.servers import OidcSettings
    from lb_stream.settings.rights import RightsFile

STEP_S = 0.2

app = typer.Typer(
    name="console",
    invoke_without_command=True,
    help="Show all clusters in a browser: loads, decisions, refusals and their reasons. With "
    "--users, the users in a file can send commands there. Ctrl-C ends it.",
    epilog="Example: lbctl console --address 127.0.0.1:8090 --users users.toml",
)


@app.callback()
def console(
    context: typer.Context,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0: any free port.")
    ] = "127.0.0.1:8090",
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="HOST",
            help="A host name in the console's URL, beside this machine's own; may be given "
            "several times.",
        ),
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Users who may send commands: names, hashed passwords, roles. Without it the "
            "console only shows pages, to everyone.",
        ),
    ] = None,
    user_header: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The header in which a proxy names its user, e.g. X-Forwarded-User; there is no "
            "login then.",
        ),
    ] = None,
    group_header: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The header in which the proxy names its user's groups, with commas between, for "
            "grants of security.rights.",
        ),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="A proxy's address, from which --user-header and X-Forwarded-For are accepted. "
            "Default: this machine.",
        ),
    ] = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Without a command: serve the pages."""
    require_extras("lbctl console", "console")
    if context.invoked_subcommand is not None:
        return
    from lb_stream.settings.rights import load_rights

    given = load_cli_settings(config, broker_conf, set_)
    rights = load_rights(given.settings.security)
    access = _access(users, user_header, tuple(proxy or ()), group_header, rights)
    access = _with_provider(access, given.settings.oidc)
    _serve(address, tuple(name or ()), given, access, json)


def _serve(
    address: str, names: tuple[str, ...], given: CliSettings, access: Access, json: bool
) -> None:
    import logging

    from lb_stream.console.serve import ConsoleServer, lower_priority
    from lb_stream.console.sources.reader import Reader
    from lb_stream.io.local.signals import StopRequest
    from lb_stream.io.local.tls import ServerTls, describe_plain

    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # the page says whether Kafka answers
    lower_priority()
    bootstrap, topics = given.bootstrap, given.settings.topics
    reader = Reader(given.tables, given.settings, bootstrap)
    server = given.settings.console
    tls = ServerTls.load("console", server)
    with StopRequest() as stop:
        try:
            follow = (given.client_options(bootstrap), topics.decisions, topics.results)
            served = ConsoleServer(
                address, reader, names, follow, access, _sends(given), server, tls
            )
        except (OSError, ValueError, OverflowError) as error:
            raise CommandError(f"--address {address}: {error}: give another HOST:PORT", 2) from None
        if plain := describe_plain("console", address, tls):
            note(f"warning: {plain}")
        note("Ctrl-C ends it")
        if json:
            emit_json({"url": served.url})
        else:
            emit(f"{served.url}/\n")
        reader.current_view()  # the first view is slow, so it is made before a page needs it
        while not stop:
            time.sleep(STEP_S)
        served.stop()


def _access(
    users: Path | None,
    header: str | None,
    proxies: tuple[str, ...],
    group_header: str | None,
    rights: RightsFile | None,
) -> Access:
    """Return who may see and do what. Raises CommandError."""
    from lb_stream.console.auth.users import UsersError
    from lb_stream.console.auth.visitor import Access

    if users is None and rights is None and (header is not None or proxies):
        option = "--proxy" if header is None else "--user-header"
        raise CommandError(
            f"{option}: expected --users FILE or security.rights, too, which say who may do what", 2
        )
    if group_header is not None and (header is None or rights is None):
        raise CommandError("--group-header: expected --user-header and security.rights, too", 2)
    try:
        access = Access.load(users, header, proxies, group_header, rights)
    except UsersError as error:
        raise CommandError(f"--users: {error}", 2) from None
    except ValueError as error:
        raise CommandError(f"--proxy: {error}", 2) from None
    if users is not None:
        warn_if_exposed(users, "users and hashes of their passwords")
    if rights is not None and access.users is not None and access.users.have_roles:
        note(f"warning: the roles in {users} do not count: security.rights says who may do what")
    return access


def _with_provider(access: Access, settings: OidcSettings) -> Access:
    """Return who may see and do what, with the provider that logs users in, if there is one.

    Raises CommandError, SettingError.
    """
    if not settings.issuer:
        return access
    from lb_stream.console.auth.oidc import OidcLogins

    if access.users is None:
        raise CommandError("oidc.issuer: expected --users FILE, too, which has users' roles", 2)
    if access.header is not None:
        raise CommandError("oidc.issuer: expected no --user-header: a proxy logs users in there", 2)
    return replace(access, oidc=OidcLogins(settings))


def _sends(given: CliSettings) -> SendCommand:
    """Return what puts a command on its topic, signed by the console's key if it has one.

    Raises SettingError.
    """
    from lb_stream.settings.signing import load_signer

    bootstrap, topic = given.bootstrap, given.settings.topics.commands
    signer = load_signer(given.settings.security)

    def send(cluster: str, command: Command) -> None:
        from kafka.errors import KafkaError

        from lb_stream.access.refusals import find_refusal
        from lb_stream.io.kafka.commands import send_command

        options = given.client_options(bootstrap)
        try:
            send_command(options, topic, cluster, command, signer)
        except KafkaError as error:
            raise find_refusal(bootstrap, options, error, "Write") or error from None

    return send


@app.command(epilog="Example: lbctl console user alice --role operator >> users.toml")
def user(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The user's name, at the login and in commands."),
    ],
    role: Annotated[
        str,
        typer.Option(metavar="ROLE", help="viewer, operator or admin, in clusters without --in."),
    ] = "operator",
    in_cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--in",
            metavar="CLUSTER=ROLE",
            help="The role in one cluster; may be given several times.",
        ),
    ] = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="For --user-header, where a proxy logs users in.")
    ] = False,
) -> None:
    """Ask for a password and print a user's lines for the file of --users."""
    from lb_stream.console.auth.users import UsersError, user_lines

    clusters = dict(role.partition("=")[::2] for role in in_cluster or ())
    password = (
        None
        if no_password
        else typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    )
    try:
        emit(user_lines(name, password, role, clusters))
    except UsersError as error:
        raise CommandError(str(error), 2) from None
