"""Access to a Pulsar cluster's admin API: options of commands, and the clients that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lb_stream.cli.shared.grouped_options import CliCommand, group_options, read_parameters
from lb_stream.cli.shared.output import CommandError, warn_if_exposed

if TYPE_CHECKING:
    from lb_stream.agent.pulsar.admin import AdminClient, AdminSettings

_ACCESS, _TIMES = "Access to the admin API", "Intervals and time-outs"

TOKEN_VARIABLE = "LB_PULSAR_TOKEN"
AnyAdminUrl = Annotated[
    str,
    typer.Option("--admin-url", metavar="URL", help="Any broker's admin API, http(s)://HOST:PORT."),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar=TOKEN_VARIABLE,
        metavar="TEXT",
        rich_help_panel=_ACCESS,
        help="A token. Other users of the machine can read arguments: the variable and "
        "--token-file are safer.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file with the token, read again for every call.",
        rich_help_panel=_ACCESS,
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        help="Certificate authorities (PEM) instead of the system's.",
        rich_help_panel=_ACCESS,
    ),
]
CertFile = Annotated[
    Path | None,
    typer.Option(
        "--cert-file",
        metavar="FILE",
        help="The client's certificate (PEM).",
        rich_help_panel=_ACCESS,
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        help="The key of the client's certificate (PEM).",
        rich_help_panel=_ACCESS,
    ),
]
VerifyHostname = Annotated[
    bool,
    typer.Option(
        "--verify-hostname/--no-verify-hostname",
        help="Whether a broker's certificate must name its host.",
        rich_help_panel=_ACCESS,
    ),
]
ConnectTimeout = Annotated[
    float,
    typer.Option(
        "--connect-timeout",
        metavar="S",
        min=0.1,
        help="Seconds to connect to an admin API.",
        rich_help_panel=_TIMES,
    ),
]
ReadTimeout = Annotated[
    float,
    typer.Option(
        "--read-timeout",
        metavar="S",
        min=0.1,
        help="Seconds to wait for an answer to a read.",
        rich_help_panel=_TIMES,
    ),
]
ActTimeout = Annotated[
    float,
    typer.Option(
        "--act-timeout",
        metavar="S",
        min=0.1,
        rich_help_panel=_TIMES,
        help="Seconds to wait for an unload or a split. Keep it below unloading_timeout_ms: other "
        "decisions wait meanwhile.",
    ),
]


@dataclass(frozen=True, slots=True)
class AdminAccess:
    """How admin APIs are called, whatever their address."""

    fields: dict[str, Any]

    def connect(self, url: str) -> AdminClient:
        """Return a client for an address. Raises CommandError for settings that can't work."""
        return build_admin_clients([build_admin_settings(url=url, **self.fields)])[0]

    def to_arguments(self) -> tuple[list[str], dict[str, str]]:
        """Return the options that give another lbctl this access, and variables with secrets."""
        given = dict(self.fields)
        token = given.pop("token")
        options = [] if given.pop("verify_hostname") else ["--no-verify-hostname"]
        for name, value in given.items():
            if value is not None:
                option = name.removesuffix("_s").replace("_", "-")
                options += [f"--{option}", str(value)]
        return options, {} if token is None else {TOKEN_VARIABLE: token}


def with_admin_access(command: CliCommand) -> CliCommand:
    """Replace a command's parameter `access` by the options of the admin API that make it."""
    return group_options(command, "access", _read_access, read_parameters(_read_access))


def _read_access(
    token: Token = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    verify_hostname: VerifyHostname = True,
    connect_timeout: ConnectTimeout = 3.0,
    read_timeout: ReadTimeout = 5.0,
) -> AdminAccess:
    return AdminAccess(
        {
            "token": token or None,
            "token_file": token_file,
            "ca_file": ca_file,
            "cert_file": cert_file,
            "key_file": key_file,
            "verify_hostname": verify_hostname,
            "connect_timeout_s": connect_timeout,
            "read_timeout_s": read_timeout,
        }
    )


def build_admin_settings(**fields: Any) -> AdminSettings:
    """Return settings with these fields. Raises CommandError for those that can't work."""
    from lb_stream.agent.pulsar.admin import AdminSettings

    try:
        return AdminSettings(**fields)
    except ValueError as error:
        raise CommandError(str(error), 2) from None


def build_admin_clients(settings: Sequence[AdminSettings]) -> list[AdminClient]:
    """Return clients; warn of secrets that others can read. Raises CommandError."""
    from lb_stream.agent.pulsar.admin import AdminClient
    from lb_stream.settings.files import has_private_key

    files: dict[Path, str] = {}
    for access in settings:
        if access.token_file is not None:
            files[access.token_file] = "a token"
        key_file = access.key_file or access.cert_file
        if key_file is not None and has_private_key(key_file):
            files[key_file] = "a private key"
    for path, holds in files.items():
        warn_if_exposed(path, holds)
    try:
        return [AdminClient(setting) for setting in settings]
    except ValueError as error:
        raise CommandError(str(error), 2) from None
