"""`lbctl notify`, with a real server: tests of targets, one look, and what is kept secret."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lb_stream.io.local.processes import locked
from tests.support.lbctl_runner import Result, lbctl
from tests.support.webhook import Webhook, webhook
from tests.support.wordings import check_wording

NO_KAFKA = ("--set", "kafka.bootstrap_servers=127.0.0.1:1")


@pytest.fixture
def server() -> Iterator[Webhook]:
    with webhook() as made:
        yield made


def test_a_test_tells_what_each_target_answered_and_shows_no_address(
    tmp_path: Path, server: Webhook
) -> None:
    server.reply = lambda call: (403 if call.path.startswith("/bad") else 200, b"")
    (tmp_path / "good.url").write_text(server.apprise("/g00d") + "\n")
    env = {
        "LB_NOTIFY__TARGETS__BAD": server.apprise("/bad/s3cret"),
        "LB_NOTIFY__TIMEOUT_MS": "60000",
    }
    done = lbctl(
        "notify",
        "test",
        "--set",
        "notify.targets.good=file:good.url",
        "--json",
        cwd=tmp_path,
        env=env,
    )
    assert done.code == 1
    assert [(one["target"], one["service"], one["accepted"]) for one in done.objects] == [
        ("bad", "JSON", False),
        ("good", "JSON", True),
    ]
    assert "403" in done.objects[0]["answer"] and "s3cret" not in done.out + done.err
    assert {call.path for call in server.calls} == {"/bad/s3cret", "/g00d"}
    one = lbctl(
        "notify",
        "test",
        "--target",
        "good",
        "--set",
        "notify.targets.good=file:good.url",
        cwd=tmp_path,
        env=env,
    )
    assert (
        one.code == 0
        and one.out.splitlines()[2].split()[:2] == ["good", "JSON"]
        and "bad" not in one.out
    )
    shown = (
        lbctl("config", "show", cwd=tmp_path, env=env).out
        + lbctl("config", "explain", "notify.targets", cwd=tmp_path, env=env).out
    )
    assert "s3cret" not in shown and '"bad" = "***"' in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "there is no target: give one, as --set notify.targets.NAME=ADDRESS"),
        (
            ("--set", "notify.targets.ops=s3cret"),
            "notify.targets.ops = '***': expected an address of Apprise's",
        ),
        (
            ("--set", "notify.targets.ops=file:none"),
            "notify.targets.ops = 'none': expected a file that can be read",
        ),
        (
            ("--set", "notify.targets.ops=json://h", "--target", "opps"),
            "--target opps: expected one of ops",
        ),
        (
            ("--set", "notify.targets.ops=json://h", "--set", "notify.routes.ops=job_dwn"),
            "'job_down', ",
        ),
        (("--set", "notify.target.ops=json://h/s3cret"), "nearest: targets"),
        (
            ("--set", "hooks.before=https://h/s3cret"),
            "hooks.before = '***' (--set): expected one of the known keys; nearest: before_move",
        ),
        (
            ("--set", "notify.group_wait_ms=soon"),
            "notify.group_wait_ms = 'soon' (--set): expected a whole number",
        ),
        (
            ("--set", "notify.targets=json://h/s3cret"),
            "expected letters, digits, dots, dashes and underscores only",
        ),
        (("--set", "notify.quiet_windows=now"), "five fields of cron"),
    ],
)
def test_what_can_not_be_is_said_before_anything_is_sent(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = lbctl("notify", "test", *arguments, cwd=tmp_path)
    assert (done.code, done.out) == (2, "") and words in done.err and "s3cret" not in done.err, (
        done.err
    )


def once(tmp_path: Path, server: Webhook, *more: str) -> Result:
    given = [
        f"notify.targets.ops={server.apprise('/s3cret')}",
        "notify.group_wait_ms=0",
        "notify.timeout_ms=60000",
    ]
    return lbctl(
        "notify",
        "watch",
        "--once",
        *(text for one in given for text in ("--set", one)),
        *NO_KAFKA,
        *more,
        cwd=tmp_path,
    )


def test_one_look_tells_all_that_is_due_and_the_next_one_nothing_again(
    tmp_path: Path, server: Webhook
) -> None:
    done = once(tmp_path, server)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "ops: lb-stream: the job is down: accepted",
        "ops: lb-stream: Kafka doesn't answer: accepted",
    ]
    said = [call.fields for call in server.calls]
    assert [one["type"] for one in said] == ["warning"] * 2
    assert said[0]["message"].endswith(
        "has been started with these tables: start it: lbctl balance, with its settings"
    )
    assert once(tmp_path, server).out == "" and len(server.calls) == 2
    kept = (tmp_path / ".lb" / "notify.json").read_text()
    assert "s3cret" not in kept + done.out + done.err


def test_a_look_whose_messages_are_not_taken_fails(tmp_path: Path, server: Webhook) -> None:
    server.reply = lambda _: (500, b"")
    done = once(tmp_path, server)
    assert done.code == 1 and len(server.calls) == 1, (
        "after the first failure the target is left alone for a while"
    )


def test_two_watchers_of_one_state_would_tell_all_twice(tmp_path: Path, server: Webhook) -> None:
    (tmp_path / ".lb").mkdir()
    with locked(tmp_path / ".lb" / "notify.json.lock"):
        done = once(tmp_path, server)
    assert done.code == 1 and not server.calls
    check_wording(done.err)


def test_now_shows_what_would_be_told_and_tells_nobody(tmp_path: Path) -> None:
    rows = lbctl("notify", "now", "--json", *NO_KAFKA, cwd=tmp_path).objects
    assert [row["name"] for row in rows][:2] == ["kafka_down", "job_down"]
    out = lbctl("notify", "now", *NO_KAFKA, cwd=tmp_path).out
    assert out.startswith(
        "kafka_down: Kafka doesn't answer (127.0.0.1:1: Connection refused): without it nothing"
    )
