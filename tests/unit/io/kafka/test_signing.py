"""The check of signed records by those who read them, and the producer that signs. Without Kafka."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from kafka import KafkaProducer

from lb_stream.access.signatures import TIME_HEADER
from lb_stream.access.signing_keys import AllowedSigner, Signer
from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import SecuritySettings
from lb_stream.io.kafka.signing import RecordCheck, SigningProducer, check_decisions, job_name

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
JOB = job_name("lb-stream")


@pytest.fixture
def signers(tmp_path: Path) -> Path:
    path = tmp_path / "signers"
    write(path, JOB)
    return path


def write(path: Path, name: str) -> None:
    line = AllowedSigner(name, KEY.public_key().public_bytes_raw()).format_line()
    path.write_text(f"# keys of tests\n{line}\n")


def signed(value: bytes = b"{}") -> Any:
    """A decision as a consumer gets it."""
    headers = Signer(KEY).sign("lb-decisions", b"eu/b", value)
    return SimpleNamespace(
        topic="lb-decisions",
        partition=0,
        offset=7,
        key=b"eu/b",
        value=value,
        headers=headers,
        timestamp=int(dict(headers)[TIME_HEADER]) // 1000,
    )


def check(path: Path, required: str = "signed") -> RecordCheck:
    return RecordCheck(SecuritySettings(signers=str(path)), "security.decisions", required)


def test_a_record_counts_once_in_the_name_of_its_signer(signers: Path) -> None:
    record, checked = signed(), check(signers)
    assert not checked.accepts(record, "job:other")
    assert checked.accepts(record, JOB)
    assert not checked.accepts(record, JOB), "a copy"
    first, second = signed(), signed()
    assert checked.accepts(second, JOB) and not checked.accepts(first, JOB), "an earlier one"


def test_jobs_of_one_name_speak_in_turn_and_only_the_same_record_is_a_copy(signers: Path) -> None:
    security = SecuritySettings(signers=str(signers))
    checked = RecordCheck(security, "security.commands", "signed", by_key=False)
    first, second = signed(), signed()
    answers = [checked.accepts(record, JOB) for record in (second, first, second, first)]
    assert answers == [True, True, False, False]


def test_rejections_are_logged_once_a_minute_however_many_there_are(
    signers: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checked = check(signers)
    record = signed()
    record.headers = []
    for _ in range(100):
        assert not checked.accepts(record, JOB)
    assert len(caplog.messages) == 1


def test_with_warn_a_forged_record_counts_and_is_logged(
    signers: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = signed()
    record.value = b"[]"
    with caplog.at_level(logging.WARNING):
        assert check(signers, "warn").accepts(record, JOB)
        assert not check(signers).accepts(record, JOB)
    first, second = caplog.messages
    assert "security.decisions = warn" in first and "offset 7" in first
    assert "is rejected" in second


def test_the_file_of_signers_is_read_anew_and_a_broken_one_changes_nothing(
    signers: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checked = check(signers)
    signers.write_text("nonsense\n")
    assert checked.accepts(signed(), JOB) and checked.accepts(signed(), JOB)
    assert [("still count" in line) for line in caplog.messages] == [True]
    write(signers, "somebody-else")
    assert not checked.accepts(signed(), JOB)
    signers.unlink()
    assert not checked.accepts(signed(), JOB) and checked.accepts(signed(), "somebody-else")


@pytest.mark.parametrize("content", [None, "nonsense\n", "\ud800"])
def test_a_check_needs_a_file_that_can_be_read(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "signers"
    if content is not None:
        path.write_bytes(content.encode(errors="surrogatepass"))
    with pytest.raises(SettingError) as raised:
        check(path)
    assert raised.value.key == "security.signers"
    with pytest.raises(SettingError):
        check_decisions(SecuritySettings(decisions="warn"))
    assert check_decisions(SecuritySettings()) is None


def test_records_of_several_threads_are_sent_in_the_order_of_their_signatures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[int] = []

    def send(_: object, topic: str, **record: Any) -> None:
        sent.append(int(dict(record["headers"])[TIME_HEADER]))

    monkeypatch.setattr(KafkaProducer, "__init__", lambda *_, **__: None)
    monkeypatch.setattr(KafkaProducer, "__del__", lambda _: None)
    monkeypatch.setattr(KafkaProducer, "send", send)
    producer = SigningProducer(Signer(KEY))
    threads = [
        threading.Thread(
            target=lambda: [producer.send("t", key=b"k", value=b"v") for _ in range(300)]
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sent) == 1200 and sent == sorted(set(sent))
