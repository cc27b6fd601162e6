"""The lookup server's answers to what is no lookup."""

import http.client
from unittest.mock import Mock

import pytest

from lb_stream.io.lookup.server import serve_lookups


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
