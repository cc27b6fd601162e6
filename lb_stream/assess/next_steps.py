"""What to do after an assessment, as commands."""

from __future__ import annotations

from dataclasses import dataclass

ANY_URL = "http://BROKER:8080"


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and what it does."""

    command: str
    description: str


def list_next_steps(cluster: str, url: str | None, is_uneven: bool) -> tuple[Step, ...]:
    """Return three commands: two that change nothing, and one that begins to observe."""
    address = url or ANY_URL
    check = Step(
        f"lbctl agent pulsar --check --cluster {cluster} --admin-url {address}",
        "says what must be changed before this balancer may act, and changes nothing; give "
        "--admin-url once for each broker",
    )
    balance = Step(
        f"lbctl balance --set kafka.bootstrap_servers=KAFKA:9092 "
        f"--set cluster.{cluster}.assign_unowned=on_lookup",
        "starts the balancer in mode observe: it logs what it would do, and publishes nothing. It "
        "needs Kafka, Java and pip install 'lb_stream[all]'",
    )
    agent = Step(
        f"lbctl agent pulsar --cluster {cluster} --admin-url {address} --kafka KAFKA:9092",
        "brings the brokers' reports to it. Then lbctl decisions shows moves, lbctl explain why; "
        "docs/pulsar.md tells how to switch over, and back",
    )
    if is_uneven:
        return check, balance, agent
    again = Step(
        f"lbctl assess pulsar {address} --minutes 60",
        "looks again, at the hour with the most load: the cluster is not uneven now",
    )
    return again, check, balance
