"""Options of `lbctl agent`: addresses of admin APIs, access to them, intervals and time-outs."""

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
        help="A broker's admin API, http(s)://HOST:PORT; given once for each broker.",
    ),
]
BrokerIds = Annotated[
    list[str] | None,
    typer.Option(
        "--broker",
        metavar="HOST:PORT",
        help="The broker's id if it isn't HOST:PORT of its address; given once for each broker.",
    ),
]
ServiceUrl = Annotated[
    str | None,
    typer.Option(
        "--service-url",
        metavar="URL",
        help="pulsar(+ssl)://HOST:PORT, from which an extensible cluster's load data is read. "
        "Default: as a broker's settings say.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="LB_PULSAR_TOKEN",
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
ReportInterval = Annotated[
    float | None,
    typer.Option(
        "--report-interval",
        metavar="S",
        min=0.5,
        rich_help_panel=_TIMES,
        help="Seconds between load reports; one that brings nothing new is left out. Default: "
        "report_min_interval_ms.",
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
