"""The lookup server's answers to what is no lookup."""

import http.client
import json
from unittest.mock import Mock
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from lb_stream.io.lookup.api import build_document
from lb_stream.io.lookup.client import LookupConfig, LookupResult, OwnerRequest, StaleLookup
from lb_stream.io.lookup.scalable import UnknownScalable
from lb_stream.io.lookup.server import serve_lookups
from tests.support.openapi import check_answer


@pytest.mark.parametrize("target", ["http://[/", "http://[/lookup?topic=a/b/c", "http://a]b/"])
def test_a_request_for_what_is_no_address_is_the_askers_fault(target: str) -> None:
    server = serve_lookups("127.0.0.1:0", Mock())
    try:
        connection = http.client.HTTPConnection(
            "127.0.0.1", int(server.url.rpartition(":")[2]), timeout=10
        )
        connection.putrequest("GET", target, skip_host=True)
        connection.endheaders()
        assert connection.getresponse().status == 400
        connection.close()
    finally:
        server.stop()


OWNED = LookupResult(
    "eu", "persistent://a/b/c", 7, "a/b/0x00000000_0xffffffff", "Owned", "b-1:80", 3, 9, 12
)
ASKED = LookupResult(
    "eu",
    "persistent://a/b/c",
    7,
    "a/b/0x00000000_0xffffffff",
    None,
    None,
    None,
    None,
    12,
    OwnerRequest("id", None, None),
)
UNKNOWN = LookupResult("eu", "persistent://a/b/c", 7, None, None, None, None, None, 12)


def answer_of(lookup: Mock, target: str) -> tuple[int, object]:
    """Ask a lookup server; return status and content."""
    server = serve_lookups("127.0.0.1:0", lookup)
    try:
        with urlopen(server.url + target, timeout=10) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (OWNED, 200),
        (ASKED, 202),
        (UNKNOWN, 404),
        (ValueError("topic = x: expected a topic"), 400),
        (UnknownScalable("there is no such scalable topic"), 404),
        (StaleLookup("the topic was not read for 70 s"), 503),
    ],
)
def test_each_answer_to_a_lookup_is_one_of_the_document(
    result: LookupResult | Exception, status: int
) -> None:
    found, content = answer_of(Mock(find=Mock(side_effect=[result])), "/lookup?topic=a/b/c")
    assert found == status
    check_answer(build_document(), "/lookup", found, content)


@pytest.mark.parametrize(("age_ms", "status"), [(5, 200), (90_000, 503), (None, 503)])
def test_each_answer_about_health_is_one_of_the_document(age_ms: int | None, status: int) -> None:
    lookup = Mock(
        age_ms=age_ms,
        config=LookupConfig("127.0.0.1:9092"),
        known_clusters=Mock(return_value=(["eu"], 2)),
    )
    found, content = answer_of(lookup, "/health")
    assert found == status
    check_answer(build_document(), "/health", found, content)
