"""Viewers of a console: each keeps the stream of a page open and asks for the page every few
seconds, as the page's own script does."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from html import unescape
from urllib.parse import urlsplit

from lb_stream.console.address import link
from tests.bench.console.written import CLUSTER, Cluster

EVERY_S = 5.0
_CHART = re.compile(rb'data-chart="([^"]*)"')
OTHERS = 5
"""Of so many viewers one looks at another page than the cluster's."""


@dataclass
class Seen:
    """What all viewers together have seen.

    `told`: of each, how many entries came over its stream.
    """

    times_ms: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    told: list[int] = field(default_factory=list)
    delays_ms: list[float] = field(default_factory=list)
    broken: Counter[str] = field(default_factory=Counter)


def pages(cluster: Cluster) -> tuple[str, ...]:
    """Addresses: the cluster's page, then some others."""
    broker, bundle = cluster.broker_names[0], cluster.bundle_names[0]
    namespace = bundle.rpartition("/")[0]
    return (
        link("cluster", name=CLUSTER),
        "/",
        link("broker", cluster=CLUSTER, name=broker),
        link("bundles", cluster=CLUSTER),
        link("history", cluster=CLUSTER),
        link("bundle", cluster=CLUSTER, name=bundle),
        link("cluster", name=CLUSTER, sort="traffic"),
        link("namespace", cluster=CLUSTER, name=namespace),
        link("groups", cluster=CLUSTER),
    )


def page_of(number: int, addresses: Sequence[str]) -> str:
    """Which page a viewer looks at."""
    return (
        addresses[1 + number // OTHERS % (len(addresses) - 1)]
        if number % OTHERS == OTHERS - 1
        else addresses[0]
    )


class Line:
    """One connection that stays open for one request after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    @asynccontextmanager
    async def to(cls, url: str) -> AsyncIterator[Line]:
        """Raises OSError."""
        place = urlsplit(url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    async def ask(self, address: str, tag: str = "") -> tuple[int, Mapping[str, str]]:
        """Status and headers (names in small letters); the body is still to be read."""
        known = f"If-None-Match: {tag}\r\n" if tag else ""
        self._writer.write(f"GET {address} HTTP/1.1\r\nHost: localhost\r\n{known}\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = (one.partition(":") for one in head[1:] if one)
        return int(head[0].split()[1]), {name.lower(): value.strip() for name, _, value in fields}

    async def get(self, address: str, tag: str = "") -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers, body."""
        status, headers = await self.ask(address, tag)
        return (
            status,
            headers,
            await self._reader.readexactly(int(headers.get("content-length", 0))),
        )

    async def entries(self) -> AsyncIterator[str]:
        """Ids of the entries that a stream tells."""
        while line := await self._reader.readline():
            if line.startswith(b"data: "):
                yield str(json.loads(line[6:])["id"])


async def view(
    url: str, number: int, addresses: Sequence[str], seen: Seen, told_s: Mapping[str, float]
) -> None:
    """One viewer, until cancelled.

    `told_s`: when each decision was given to the console (time.monotonic).
    """
    seen.told.append(0)
    listening = asyncio.create_task(_listen(url, len(seen.told) - 1, seen, told_s))
    try:
        await asyncio.sleep(EVERY_S * (number * 0.618 % 1))
        async with Line.to(url) as line:
            await _look(line, page_of(number, addresses), seen)
    except (OSError, asyncio.IncompleteReadError) as error:
        seen.broken[type(error).__name__] += 1
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening


async def _look(line: Line, address: str, seen: Seen) -> None:
    tag = ""
    while True:
        begun_s = time.monotonic()
        status, headers, body = await line.get(address, tag)
        _note(seen, status, begun_s)
        tag = headers.get("etag", "")
        for chart in _CHART.findall(body):
            begun_s = time.monotonic()
            _note(seen, (await line.get(unescape(chart.decode())))[0], begun_s)
        await asyncio.sleep(max(0.0, EVERY_S - (time.monotonic() - begun_s)))


def _note(seen: Seen, status: int, begun_s: float) -> None:
    seen.times_ms.append(1000 * (time.monotonic() - begun_s))
    seen.statuses[status] += 1


async def _listen(url: str, place: int, seen: Seen, told_s: Mapping[str, float]) -> None:
    try:
        async with Line.to(url) as line:
            await line.ask(link("events", cluster=CLUSTER, kinds="all"))
            async for name in line.entries():
                seen.told[place] += 1
                if name in told_s:
                    seen.delays_ms.append(1000 * (time.monotonic() - told_s[name]))
    except (OSError, asyncio.IncompleteReadError) as error:
        seen.broken[f"stream: {type(error).__name__}"] += 1
