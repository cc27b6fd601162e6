"""Lookups of segments and of scalable topics, without Kafka."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

import pytest

from lb_stream.core.model.topics import Ring, SegmentName
from lb_stream.core.ownership.lookup import Route
from lb_stream.io.lookup import Lookup, LookupConfig, LookupFailed
from lb_stream.io.lookup.scalable import FindSegments, UnknownScalable, find_scalable
from lb_stream.io.lookup.server import serve_lookups
from tests.support.wordings import check_wording

TOPIC = "topic://shop/orders/clicks"
RING = Ring.new("shop/orders", 8)
QUARTERS = [
    SegmentName(TOPIC, number * 0x4000, number * 0x4000 + 0x3FFF, number) for number in range(4)
]


@dataclass(frozen=True)
class Listed:
    """A segment as Pulsar lists it."""

    name: SegmentName
    is_active: bool = True

    @property
    def topic(self) -> str:
        return self.name.full


class Known(Lookup):
    """A lookup that is up to date, and knows a broker for each bundle but those of `free`."""

    def __init__(self, *free: str) -> None:
        super().__init__(LookupConfig("nowhere:1"))
        for number, bundle in enumerate(RING.names):
            owner = None if bundle in free else f"broker-{number}:8080"
            state = "Free" if owner is None else "Owned"
            self._routes.take("eu", bundle, Route.from_record(bundle, state, owner, None, 1, 0))

    @property
    def age_ms(self) -> int:
        return 0


def find_quarters(cluster: str, topic: str) -> list[Listed]:
    assert (cluster, topic) == ("eu", TOPIC)
    return [Listed(name, name.id != 0) for name in QUARTERS]


def get(
    lookup: Lookup, find_segments: FindSegments | None, topic: str
) -> tuple[int, dict[str, Any]]:
    server = serve_lookups("127.0.0.1:0", lookup, find_segments)
    try:
        with urllib.request.urlopen(f"{server.url}/lookup?topic={topic}") as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    finally:
        server.stop()


def test_a_segment_is_looked_up_by_its_full_name() -> None:
    for name in QUARTERS:
        status, found = get(Known(), None, name.full)
        assert (status, found["bundle"]) == (200, RING.bundle_of(name.full))
        upper = name.full.replace("-3fff-", "-3FFF-")
        assert get(Known(), None, upper)[1]["bundle"] == found["bundle"]


def test_a_scalable_topic_has_an_answer_for_each_of_its_segments() -> None:
    status, found = get(Known(), find_quarters, TOPIC)
    assert (status, found["cluster"], found["topic"]) == (200, "eu", TOPIC)
    for segment, name in zip(found["segments"], QUARTERS, strict=True):
        assert (segment["id"], segment["hashes"]) == (name.id, name.range_text)
        assert segment["active"] == (name.id != 0)
        assert segment["lookup"]["bundle"] == RING.bundle_of(name.full)
        assert segment["lookup"]["broker"].startswith("broker-")


@pytest.mark.parametrize(("row", "status"), [(0, 200), (1, 202)])
def test_only_an_active_segment_without_a_broker_keeps_a_scalable_topic_waiting(
    row: int, status: int
) -> None:
    free = RING.bundle_of(QUARTERS[row].full)
    assert get(Known(free), find_quarters, TOPIC)[0] == status


def test_a_scalable_topic_is_refused_where_pulsar_is_not_asked() -> None:
    status, found = get(Known(), None, TOPIC)
    assert status == 400
    check_wording(found["error"])


@pytest.mark.parametrize(
    ("error", "status"),
    [(UnknownScalable("no such topic"), 404), (LookupFailed("no answer in time"), 503)],
)
def test_what_pulsar_does_not_answer_is_passed_on(error: LookupFailed, status: int) -> None:
    def fail(cluster: str, topic: str) -> list[Listed]:
        raise error

    assert get(Known(), fail, TOPIC) == (status, {"error": str(error)})
    with pytest.raises(ValueError, match="expected one of eu"):
        find_scalable(Known(), fail, TOPIC, "us")
