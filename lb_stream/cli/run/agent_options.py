"""Options of `lbctl agent`: addresses of admin APIs, and intervals."""

from __future__ import annotations

from typing import Annotated

import typer

_TIMES = "Intervals and time-outs"

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
        help="The broker's id, given once for each broker. Default: the brokerId in its report "
        "(since Pulsar 5.0), else HOST:PORT of its address.",
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
TopicSharesInterval = Annotated[
    float,
    typer.Option(
        "--topic-shares-interval",
        metavar="S",
        min=0.0,
        help="Seconds between readings of all topics' statistics, for the shares of topics in the "
        "ten heaviest bundles that reports have; 0: none.",
        rich_help_panel=_TIMES,
    ),
]
