"""Sends messages to topics of a Pulsar cluster until told to stop: `python -m tests.pulsar.traffic
URL NAMESPACE BYTES TOPIC=RATE …`."""

from __future__ import annotations

import logging
import signal
import sys
import time

STEP_S = 0.05
OPERATION_S = 300
"""How long a producer may take to be created while brokers share a busy machine; Pulsar's own limit
is 30 s."""


def main(arguments: list[str]) -> None:
    """Rates are messages/s, BYTES what each message holds.

    A message that can't be sent now is lost: brokers are killed on purpose here.
    """
    import pulsar

    url, namespace, size, *given = arguments
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
    debts, last = dict.fromkeys(rates, 0.0), time.monotonic()
    while not stop:
        now = time.monotonic()
        for topic, rate in rates.items():
            debts[topic] += rate * (now - last)
            while debts[topic] >= 1:
                debts[topic] -= 1
                try:
                    producers[topic].send_async(payload, lambda *_: None)
                except Exception:  # (its errors have no common class across versions)
                    break
        last = now
        time.sleep(STEP_S)
    client.close()


if __name__ == "__main__":
    main(sys.argv[1:])
