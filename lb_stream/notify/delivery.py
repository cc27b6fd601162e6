"""Send one message with Apprise, in a process of its own: `python -m lb_stream.notify.delivery`.

The process reads a `Delivery` as JSON and writes a `DeliveryResult` as JSON. Apprise waits in
threads that nothing can end, and has few of them. A service that answers byte by byte, or without
end, would use them up; this process has a limit of time and of memory instead.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from typing import TypedDict

from apprise import Apprise, AppriseAsset, NotifyFormat, NotifyType

MAX_MEMORY_BYTES = 1 << 30


class Delivery(TypedDict):
    """A message and where it goes. `is_problem`: something is wrong; else it is over, or a test."""

    address: str
    timeout_s: float
    title: str
    body: str
    is_problem: bool


class DeliveryResult(TypedDict):
    """Whether the target accepted the message, its answer, and how long that took."""

    is_accepted: bool
    answer: str
    took_ms: int


def find_sender(address: str) -> Apprise | None:
    """Return an Apprise object that sends to one address; None: Apprise can't read the address."""
    # Messages have no pictures from elsewhere, and nothing is kept on disk. A redirect counts as a
    # refusal: the message has not reached the server that it leads to.
    asset = AppriseAsset(
        app_id="lb_stream",
        app_desc="lb_stream",
        app_url="",
        image_url_mask="",
        image_path_mask="",
        storage_mode="memory",
        async_mode=False,
        http_redirects=False,
        service_timeout=0,
    )
    sender = Apprise(asset=asset)
    try:
        is_added = sender.add(address)
    except Exception:  # Apprise's plug-ins raise anything for an address that they can't read
        return None
    return sender if is_added and len(sender) == 1 else None


def main() -> None:
    """Send the message that standard input has. SIGALRM ends the process after the timeout."""
    delivery: Delivery = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    sender = find_sender(delivery["address"])
    assert sender is not None, "build_targets has read this address before"
    begin_s = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, delivery["timeout_s"])
    is_accepted, answer = _deliver(sender, delivery)
    result: DeliveryResult = {
        "is_accepted": is_accepted,
        "answer": answer,
        "took_ms": round((time.monotonic() - begin_s) * 1000),
    }
    print(json.dumps(result))


def _deliver(sender: Apprise, delivery: Delivery) -> tuple[bool, str]:
    """Send the message; return whether it was accepted, and what the service answered."""
    service = sender[0]
    service.socket_connect_timeout = service.socket_read_timeout = delivery["timeout_s"]
    kind = NotifyType.WARNING if delivery["is_problem"] else NotifyType.SUCCESS
    try:
        result = sender.notify(
            title=delivery["title"],
            body=delivery["body"],
            notify_type=kind,
            body_format=NotifyFormat.TEXT,
        )
        lines = dict.fromkeys(entry.message.strip() for entry in result.logs())
        return bool(result), "; ".join(lines)
    except Exception as error:  # Apprise's plug-ins raise anything
        return False, f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
