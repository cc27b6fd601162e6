"""A network card for each broker of a machine: what it counts is what crosses the broker's TCP
connections with its clients.

Pulsar reads bytes from /sys/class/net and leaves the loopback interface out, so brokers of one
machine report no bandwidth at all, or all the same. Here each one is started where /sys/class/net
is a folder of its own, in a mount namespace that ends with it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

EVERY_S = 1.0
CARD = {
    "type": "1",
    "operstate": "up",
    "speed": "1000",
    "statistics/rx_bytes": "0",
    "statistics/tx_bytes": "0",
}
"""What Pulsar reads of one, under its name.

The speed is that of an override in the broker's settings.
"""
JAVA = """#!/bin/sh
for last; do :; done
case $last in
conf/broker-*.conf)
  number=${last#conf/broker-}
  exec unshare --mount sh -c 'mount --bind "$0" /sys/class/net && exec "$@"' "@CARDS@/${number%.conf}" "@JAVA@" "$@";;
*) exec "@JAVA@" "$@";;
esac
"""
COUNTED = re.compile(r"\b(bytes_sent|bytes_received):(\d+)")


def missing() -> str:
    """Why there can be none here; empty when there can."""
    for tool in ("ss", "unshare"):
        if shutil.which(tool) is None:
            return (
                f"{tool}, with which each broker gets a network card of its own, is not installed"
            )
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "--bind", "/sys/class", "/sys/class"],
        capture_output=True,
        check=False,
    )
    return (
        "no mount namespaces, for network cards of brokers' own, can be made here: "
        f"{tried.stderr!r}"
        if tried.returncode
        else ""
    )


@contextmanager
def cards(folder: Path, ports: Mapping[int, int], java_home: Path) -> Iterator[dict[str, str]]:
    """Cards for brokers (number → the port that its clients use) while the block runs: the
    environment to start the brokers with, on this Java."""
    for number in ports:
        for name, content in CARD.items():
            _write(folder / str(number) / "eth0" / name, content)
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(
        JAVA.replace("@CARDS@", str(folder)).replace("@JAVA@", str(java_home / "bin" / "java"))
    )
    java.chmod(0o755)
    stop = threading.Event()
    counter = threading.Thread(target=_count, args=(folder, ports, stop), daemon=True)
    counter.start()
    try:
        yield {"JAVA_HOME": str(folder)}
    finally:
        stop.set()
        counter.join()


def _count(folder: Path, ports: Mapping[int, int], stop: threading.Event) -> None:
    """Add up what the kernel says of each connection.

    What a connection moves in the second in which it ends is not counted.
    """
    seen: dict[tuple[str, str], tuple[int, int]] = {}
    totals = {number: [0, 0] for number in ports}
    number_of = {port: number for number, port in ports.items()}
    question = [
        "ss",
        "-tinHO",
        "state",
        "established",
        " or ".join(f"sport = :{port}" for port in ports.values()),
    ]
    while not stop.wait(EVERY_S):
        now: dict[tuple[str, str], tuple[int, int]] = {}
        for line in subprocess.run(
            question, capture_output=True, text=True, check=True
        ).stdout.splitlines():
            _, _, here, there = line.split()[:4]
            counts = {name: int(count) for name, count in COUNTED.findall(line)}
            now[here, there] = counts.get("bytes_received", 0), counts.get("bytes_sent", 0)
            number = number_of[int(here.rpartition(":")[2])]
            for way, (count, before) in enumerate(
                zip(now[here, there], seen.get((here, there), (0, 0)), strict=True)
            ):
                totals[number][way] += count - before if count >= before else count
        seen = now
        for number, (received, sent) in totals.items():
            _write(folder / str(number) / "eth0/statistics/rx_bytes", str(received))
            _write(folder / str(number) / "eth0/statistics/tx_bytes", str(sent))


def _write(path: Path, content: str) -> None:
    """At once: whoever reads it sees the old or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(content)
    new.replace(path)
