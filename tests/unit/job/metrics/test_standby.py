"""What a job that stands by tells over HTTP."""

import json
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import urlopen

from lb_stream.contracts.commands import Tick
from lb_stream.contracts.settings import StreamSettings
from lb_stream.io.leadership.succession import ReceivedRecord, Standing
from lb_stream.job.metrics.api import build_document
from lb_stream.job.metrics.standby import StandbyPage
from tests.support.openapi import check_answer


def asked(page: StandbyPage, path: str) -> tuple[int, str]:
    """Status and text."""
    assert page.url is not None
    try:
        with urlopen(page.url + path) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_it_is_ready_when_it_is_warm_and_hears_the_others_and_says_who_leads() -> None:
    tick = Tick(id="tick:4:1", pipeline="p", epoch=4, host="lb-1", pid=7)
    member = SimpleNamespace(
        standing=Standing(ReceivedRecord(tick, 1_000)),
        warm=False,
        connection_error=None,
        instance="lb-2:9",
    )
    page = StandbyPage(StreamSettings(metrics_address="127.0.0.1:0"), member)
    try:
        assert (asked(page, "/health")[0], asked(page, "/ready")[0]) == (200, 503)
        member.warm = True
        status, text = asked(page, "/ready")
        check_answer(build_document(), "/ready", status, json.loads(text))
        assert (status, json.loads(text)["leader"]) == (200, {"instance": "lb-1:7", "epoch": 4})
        metrics = asked(page, "/metrics")[1].splitlines()
        assert {"lb_stream_leader 0.0", "lb_stream_standby_warm 1.0"} <= set(metrics)
        member.connection_error = "KafkaTimeoutError: nobody"
        assert asked(page, "/ready")[0] == 503
        assert "lb_stream_leader_silent_seconds -1.0" in asked(page, "/metrics")[1].splitlines()
    finally:
        page.stop()
