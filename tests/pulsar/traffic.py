"""Sends messages to topics of a Pulsar cluster until told to stop: `python -m tests.pulsar.traffic
URL NAMESPACE BYTES STALLS TOPIC=RATE …`."""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

STEP_S = 0.05
OPERATION_S = 300
"""How long a producer may take to be created while brokers share a busy machine; Pulsar's own limit
is 30 s."""

STALL_S = 0.5
"""A topic stalls when none of its messages is acknowledged for longer than this."""


class Stalls:
    """Writes a line of JSON for each stall of a topic, when it ends: `topic`, `at_s` (its end, Unix
    time), and `took_s`."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._last = file, dict[str, float]()

    def callback(self, topic: str) -> Callable[[Any, Any], None]:
        """Return what is to be called with the result of each message of a topic."""
        import pulsar

        def done(result: Any, _: Any) -> None:
            if result == pulsar.Result.Ok:
                self._note(topic)

        return done

    def close(self) -> None:
        """Write the stalls that have not ended."""
        for topic in self._last:
            self._note(topic)

    def _note(self, topic: str) -> None:
        now = time.monotonic()
        took_s = now - self._last.get(topic, now)
        self._last[topic] = now
        if took_s > STALL_S:
            line = {"topic": topic, "at_s": time.time(), "took_s": round(took_s, 3)}
            print(json.dumps(line), file=self._file, flush=True)


def main(arguments: list[str]) -> None:
    """Rates are messages/s, BYTES what each message holds.

    A message that can't be sent now is lost: brokers are killed on purpose here. STALLS is the file
    that stalls of topics are written to.
    """
    import pulsar

    url, namespace, size, path, *given = arguments
    rates = {topic: float(rate) for topic, _, rate in (one.partition("=") for one in given)}
    payload = bytes(int(size))
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    quiet = logging.getLogger("traffic")
    quiet.setLevel(logging.ERROR)
    client = pulsar.Client(url, logger=quiet, operation_timeout_seconds=OPERATION_S)
    producers = {
        topic: client.create_producer(
            f"persistent://{namespace}/{topic}",
            block_if_queue_full=False,
            max_pending_messages=1000,
            batching_enabled=True,
            batching_max_publish_delay_ms=20,
            send_timeout_millis=5000,
        )
        for topic in rates
    }
    with Path(path).open("a") as file:
        stalls = Stalls(file)
        callbacks = {topic: stalls.callback(topic) for topic in rates}
        debts, last = dict.fromkeys(rates, 0.0), time.monotonic()
        while not stop:
            now = time.monotonic()
            for topic, rate in rates.items():
                debts[topic] += rate * (now - last)
                while debts[topic] >= 1:
                    debts[topic] -= 1
                    try:
                        producers[topic].send_async(payload, callbacks[topic])
                    except Exception:  # (its errors have no common class across versions)
                        break
            last = now
            time.sleep(STEP_S)
        stalls.close()
        client.close()


if __name__ == "__main__":
    main(sys.argv[1:])
