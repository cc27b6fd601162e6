"""The options of `lbctl agent`: where a cluster's admin API is, how it is opened, how often and how
long it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_ACCESS, _TIMES = "Access to the admin API", "Intervals and time-outs"

AdminUrls = Annotated[
    list[str],
    typer.Option(
        "--admin-url",
        metavar="URL",
        help="A broker's admin API, http(s)://HOST:PORT; again for each other broker.",
    ),
]
BrokerIds = Annotated[
    list[str] | None,
    typer.Option(
        "--broker",
        metavar="HOST:PORT",
        help="The broker's id where it isn't the address's HOST:PORT; one for each address.",
    ),
]
ServiceUrl = Annotated[
    str | None,
    typer.Option(
        "--service-url",
        metavar="URL",
        help="pulsar(+ssl)://HOST:PORT, for an extensible cluster's load data.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="LB_PULSAR_TOKEN",
        metavar="TEXT",
        rich_help_panel=_ACCESS,
        help="A token. Everybody on the machine can read arguments: better the variable, or "
        "--token-file.",
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
        help="Certificate authorities instead of the system's.",
        rich_help_panel=_ACCESS,
    ),
]
CertFile = Annotated[
    Path | None,
    typer.Option(
        "--cert-file", metavar="FILE", help="The client's certificate.", rich_help_panel=_ACCESS
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", metavar="FILE", help="Its key.", rich_help_panel=_ACCESS),
]
VerifyHostname = Annotated[
    bool,
    typer.Option(
        "--verify-hostname/--no-verify-hostname",
        help="Whether a certificate must be of that host.",
        rich_help_panel=_ACCESS,
    ),
]
ReportInterval = Annotated[
    float | None,
    typer.Option(
        "--report-interval",
        metavar="S",
        min=0.5,
        rich_help_panel=_TIMES,
        help="Seconds between two looks whether a report is needed; else report_min_interval_ms.",
    ),
]
HeartbeatInterval = Annotated[
    float,
    typer.Option(
        "--heartbeat-interval",
        metavar="S",
        min=0.5,
        help="Seconds between heartbeats.",
        rich_help_panel=_TIMES,
    ),
]
ConnectTimeout = Annotated[
    float,
    typer.Option(
        "--connect-timeout",
        metavar="S",
        min=0.1,
        help="Seconds to connect.",
        rich_help_panel=_TIMES,
    ),
]
ReadTimeout = Annotated[
    float,
    typer.Option(
        "--read-timeout",
        metavar="S",
        min=0.1,
        help="Seconds for an answer.",
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
        help="Seconds for an unload or a split; below unloading_timeout_ms, for other decisions "
        "wait meanwhile.",
    ),
]
