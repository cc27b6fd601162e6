"""What a lookup asks of the balancer for strangers: bounded in number, checked before it is
remembered. No Kafka needed."""

import json
from typing import Any

import pytest
from kafka.future import Future

from lb_stream.core.ownership.lookup import Route
from lb_stream.io.lookup import Lookup, LookupConfig
from lb_stream.io.lookup.client import ASK_AGAIN_S, LIMITED, REMEMBERED_S, Bucket


class Recorder:
    """Stands for the producer."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, topic: str, key: bytes, value: bytes) -> Future:
        self.sent.append(json.loads(value))
        return Future()


class Asking(Lookup):
    """A lookup that knows one free bundle and is always up to date; its clock stands until it is
    set."""

    def __init__(self, asks_per_s: float = 5.0) -> None:
        self.now_s = 100.0
        super().__init__(LookupConfig("nowhere:1", asks_per_s=asks_per_s), lambda: self.now_s)
        self._producer = self.recorder = Recorder()
        bundle = "shop/orders/0x00000000_0xffffffff"
        self._routes.take("eu", bundle, Route.from_record(bundle, "Free", None, None, 1, 0))

    @property
    def age_ms(self) -> int:
        return 0


def test_no_client_causes_more_commands_a_second_than_allowed_or_keeps_known_bundles_waiting() -> (
    None
):
    lookup = Asking(asks_per_s=5)
    for second in range(3):
        lookup.now_s = 100.0 + second
        found = [lookup.find(f"shop/nowhere-{second}-{number}/x") for number in range(1_000)]
        assert len(lookup.recorder.sent) == 5 * (second + 1)
        assert found[-1].owner_request is not None and (
            found[-1].owner_request.id,
            found[-1].owner_request.text,
        ) == (
            None,
            LIMITED,
        )
        assert found[0].owner_request == lookup.find(f"shop/nowhere-{second}-0/x").owner_request, (
            "an earlier request is answered from memory"
        )
    asked = lookup.find("shop/orders/new").owner_request
    assert (
        asked is not None
        and asked.id is not None
        and lookup.recorder.sent[-1]["bundle"] == "0x00000000_0xffffffff"
    )


@pytest.mark.parametrize(
    "topic", [f"{'t' * 60_000}/orders/x", f"shop/{'n' * 1_000}/x", f"shop/orders/{'x' * 60_000}"]
)
def test_a_name_that_no_command_may_have_is_refused_and_not_remembered(topic: str) -> None:
    lookup = Asking()
    with pytest.raises(ValueError, match="characters: expected"):
        lookup.find(topic)
    assert (lookup.recorder.sent, len(lookup._requests), len(lookup._subjects)) == ([], 0, 0)


def test_what_was_asked_for_is_forgotten_after_a_while() -> None:
    lookup = Asking(asks_per_s=1_000)
    for number in range(500):
        lookup.find(f"shop/nowhere-{number}/x")
    assert len(lookup._requests) == len(lookup._subjects) == 500
    lookup.now_s += ASK_AGAIN_S
    again = lookup.find("shop/nowhere-0/x").owner_request
    assert (
        again is not None
        and again.id == lookup.recorder.sent[-1]["id"]
        and len(lookup.recorder.sent) == 501
    )
    lookup.now_s += REMEMBERED_S - ASK_AGAIN_S
    lookup.find("shop/other/x")
    assert len(lookup._requests) == len(lookup._subjects) == 2


def test_a_bucket_is_full_after_a_rest_and_never_more_than_full() -> None:
    bucket = Bucket(2.0)
    assert [bucket.take(now_s) for now_s in (0.0, 0.0, 0.0, 0.5, 0.5, 100.0, 100.0, 100.0)] == [
        True,
        True,
        False,
        True,
        False,
        True,
        True,
        False,
    ]
