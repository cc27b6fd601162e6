"""What to do after an assessment, as commands."""

from __future__ import annotations

from dataclasses import dataclass

from lb_stream.io.messages.missing_packages import install_line

ANY_URL = "http://BROKER:8080"


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and what it does."""

    command: str
    description: str


def list_next_steps(url: str | None, is_uneven: bool, is_extensible: bool) -> tuple[Step, ...]:
    """Return three commands that change nothing in the cluster.

    `url`: the one that was asked. `is_extensible`: the cluster has the extensible load manager.
    """
    address = url or ANY_URL
    extras = ("job", "console", *(["pulsar"] if is_extensible else []))
    install = Step(
        install_line(*extras),
        "adds what the balancer itself needs, beside Java 17 or newer",
    )
    run = Step(
        f"lbctl run pulsar {address}",
        "runs it for this cluster in mode observe, with a Kafka of its own or with yours "
        "(--kafka): it logs what it would do, and changes nothing",
    )
    if is_uneven:
        look = Step(
            "lbctl console",
            "shows in a browser what it would move, and why; lbctl run prints how to let it act, "
            "and docs/tutorial.md goes through it, and back",
        )
        return install, run, look
    again = Step(
        f"lbctl assess pulsar {address} --minutes 60",
        "looks again, for an hour; choose the one with the most load",
    )
    return again, install, run
