"""Sends one message by Apprise, in a process of its own: `python -m lb_stream.notify.delivery`, a
job as JSON in, an answer as JSON out.

Apprise waits in threads that nobody can end, few of them for all targets. A service that sends its
answer byte by byte, or without end, would use them up; this process ends with its time and its
memory.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from typing import Any

from apprise import Apprise, AppriseAsset, NotifyFormat, NotifyType

MOST_MEMORY_BYTES = 1 << 30


def find_sender(address: str) -> Apprise | None:
    """What sends to this address; None: it is none of Apprise's."""
    # No picture from elsewhere in the messages, nothing kept on disk. A redirect is no answer: what
    # it leads to was told nothing.
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
    made = Apprise(asset=asset)
    try:
        taken = made.add(address)
    except Exception:  # what a plug-in of Apprise's makes of an address that it can't read
        return None
    return made if taken and len(made) == 1 else None


def main() -> None:
    """Ended by SIGALRM once the target has had its time."""
    job = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    made = find_sender(job["address"])
    assert made is not None, "the address was tried before"
    begin = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, job["timeout_s"])
    taken, said = _deliver(made, job)
    print(
        json.dumps(
            {"taken": taken, "said": said, "took_ms": round((time.monotonic() - begin) * 1000)}
        )
    )


def _deliver(made: Apprise, job: dict[str, Any]) -> tuple[bool, str]:
    service = made[0]
    service.socket_connect_timeout = service.socket_read_timeout = job["timeout_s"]
    kind = NotifyType.WARNING if job["trouble"] else NotifyType.SUCCESS
    try:
        result = made.notify(
            title=job["title"], body=job["body"], notify_type=kind, body_format=NotifyFormat.TEXT
        )
        return bool(result), "; ".join(
            dict.fromkeys(entry.message.strip() for entry in result.logs())
        )
    except Exception as error:  # a plug-in of Apprise's
        return False, f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
