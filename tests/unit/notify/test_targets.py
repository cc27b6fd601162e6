"""Addresses and answers, with a real server: what each target said is told, and nothing of its
address is."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import HookSettings, NotifySettings
from lb_stream.notify.targets import ACCEPTED, Answer, build_targets, list_secret_parts
from lb_stream.settings.secrets import PUBLIC_BESIDE_SECRETS, is_secret
from tests.support.webhook import Webhook, webhook
from tests.support.wordings import check_wording


@pytest.fixture
def server() -> Iterator[Webhook]:
    with webhook() as made:
        yield made


def waiting(address: str) -> NotifySettings:
    """One target, with a time-out that a busy machine keeps."""
    return NotifySettings(targets={"ops": address}, timeout_ms=60_000)


def test_a_message_arrives_and_is_accepted(server: Webhook) -> None:
    (target,) = build_targets(waiting(server.apprise("/hook")))
    answer = target.send("title", "line 1\nline 2 <b>", True, 60)
    assert (answer.is_accepted, answer.text) == (True, ACCEPTED)
    (call,) = server.calls
    assert call.path == "/hook" and call.fields | {"version": ""} == {
        "version": "",
        "title": "title",
        "message": "line 1\nline 2 <b>",
        "attachments": [],
        "type": "warning",
    }


def test_a_refusal_is_told_without_any_part_of_the_address(
    server: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    server.reply = lambda call: (500, call.path.encode() + str(call.headers).encode())
    address = f"json://ada:hunter22@127.0.0.1:{server.port}/s3cret/t0ken?+X-Key=qwerty"
    caplog.set_level(logging.DEBUG)
    (target,) = build_targets(waiting(address))
    answer = target.send("t", "b", False, 60)
    assert not answer.is_accepted and "error=500" in answer.text
    told = answer.text + repr(target) + caplog.text
    assert not [
        part
        for part in ("ada", "hunter22", "s3cret", "t0ken", "qwerty", "127.0.0.1")
        if part in told
    ]
    assert server.calls[0].path == "/s3cret/t0ken"


def test_a_target_that_does_not_answer_costs_its_time_out_and_no_more(server: Webhook) -> None:
    server.hold = True
    (target,) = build_targets(NotifySettings(targets={"ops": server.apprise()}, timeout_ms=300))
    answer = target.send("t", "b", True, 0.3)
    assert (answer.is_accepted, answer.text, answer.took_ms) == (
        False,
        "gave no answer within 0.3 s",
        300,
    )


@pytest.mark.parametrize("piece", [b" ", b" " * 1_000_000], ids=["byte by byte", "without end"])
def test_an_answer_that_does_not_end_costs_the_time_out_and_leaves_nothing_behind(
    piece: bytes,
) -> None:
    def drip() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
            while not ended.is_set():
                try:
                    connection.sendall(piece)
                except OSError:
                    ended.set()
                time.sleep(0.01)

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        (target,) = build_targets(
            NotifySettings(targets={"ops": f"json://127.0.0.1:{listening.getsockname()[1]}/"})
        )
        assert target.send("t", "b", True, 1.0) == Answer(False, "gave no answer within 1 s", 1000)
        assert ended.wait(300), "nobody reads any more"
        thread.join()


def test_a_redirect_is_no_answer(server: Webhook) -> None:
    server.reply = lambda call: (302, b"")
    server.headers["Location"] = server.url("/elsewhere")
    (target,) = build_targets(waiting(server.apprise("/hook")))
    answer = target.send("t", "b", True, 60)
    assert (
        not answer.is_accepted
        and "302" in answer.text
        and [call.path for call in server.calls] == ["/hook"]
    )


def test_a_long_answer_is_as_good_as_a_short_one(server: Webhook) -> None:
    server.reply = lambda _: (200, b"x" * 20_000_000)
    (target,) = build_targets(waiting(server.apprise()))
    assert target.send("t", "b", True, 60).is_accepted


def test_nobody_there_is_told_as_such() -> None:
    (target,) = build_targets(NotifySettings(targets={"ops": "json://127.0.0.1:1/x"}))
    answer = target.send("t", "b", True, 60)
    assert not answer.is_accepted and "onnection" in answer.text


def test_an_address_may_stand_in_a_file(tmp_path: Path, server: Webhook) -> None:
    place = tmp_path / "ops.url"
    place.write_text(server.apprise("/of-a-file") + "\n")
    (target,) = build_targets(waiting(f"file:{place}"))
    assert target.send("t", "b", True, 60).is_accepted and server.calls[0].path == "/of-a-file"


@pytest.mark.parametrize("content", [None, "", "json://a\njson://b", "nonsense://s3cret"])
def test_an_address_that_can_not_be_is_refused_without_showing_it(
    tmp_path: Path, content: str | None
) -> None:
    place = tmp_path / "ops.url"
    if content is not None:
        place.write_text(content)
    with pytest.raises(SettingError, match=r"notify\.targets\.ops") as raised:
        build_targets(NotifySettings(targets={"ops": f"file:{place}"}))
    assert (
        "s3cret" not in str(raised.value)
        and "json" not in str(raised.value).partition("expected")[0]
    )


def test_every_key_beside_addresses_may_be_shown_and_no_other_one() -> None:
    fields = {
        "notify": NotifySettings.model_fields.keys(),
        "hooks": HookSettings.model_fields.keys(),
    }
    assert {name: keys - PUBLIC_BESIDE_SECRETS[name] for name, keys in fields.items()} == {
        "notify": {"targets"},
        "hooks": {"before_move", "after_move", "secret"},
    }
    assert all(
        is_secret(("notify", key, "ops")) for key in ("targets", "target")
    ) and not is_secret(("notify", "routes", "ops"))


def test_a_route_names_a_target_and_events_that_there_are() -> None:
    (target,) = build_targets(
        NotifySettings.model_validate(
            {"targets": {"ops": "json://h"}, "routes": {"ops": "job_down, broker_dead"}}
        )
    )
    assert target.events == ("job_down", "broker_dead")
    with pytest.raises(SettingError) as error:
        build_targets(NotifySettings(targets={"ops": "json://h"}, routes={"opps": ("job_down",)}))
    check_wording(error.value)


def test_all_of_an_address_is_secret_as_written_and_as_meant() -> None:
    found = list_secret_parts("mailtos://ada:p%40ss-w@mail.example.org:465/?to=bob@example.org")
    assert {"p@ss-w", "p%40ss-w", "mail.example.org", "ada", "bob"} <= set(
        found
    ) and found == tuple(sorted(found, key=len, reverse=True))


@pytest.mark.parametrize(
    ("address", "resolves"),
    [
        ("pagerduty://intkey@apikey/?action=map", True),
        ("opsgenie://" + "k" * 20, True),
        ("json://127.0.0.1", False),
    ],
)
def test_services_that_resolve_incidents_are_known_by_apprise_s_own_names(
    address: str, resolves: bool
) -> None:
    (target,) = build_targets(waiting(address))
    assert target.needs_same_title is resolves
