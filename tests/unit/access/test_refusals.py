"""A refusal is told apart from an absence, whichever client meets it, in one line with an exit
code."""

import ssl
from pathlib import Path

import pytest
from kafka.errors import (
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    UnsupportedSaslMechanismError,
)

from lb_stream.access import refusals
from lb_stream.access.refusals import (
    LoginRefused,
    RefusalLog,
    RightsRefused,
    TlsRefused,
    find_refusal,
    find_refusal_in_text,
)
from lb_stream.io.kafka.clients import (
    TOKEN_FILE,
    TokenFile,
    find_login_refusal,
    kafka_python_options,
)
from lb_stream.io.messages.errors import describe_error
from tests.support.wordings import check_wording

OPTIONS = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_plain_username": "lb",
}
WHERE = "kafka-1:9093"
JAVA = "org.apache.spark.SparkException: Job aborted\nCaused by: org.apache.kafka.common.errors."


def test_a_missing_right_to_a_topic_is_named_by_what_was_tried() -> None:
    written = find_refusal(WHERE, OPTIONS, TopicAuthorizationFailedError("lb-reports"), "Write")
    check_wording(str(written))
    read = find_refusal(WHERE, OPTIONS, TopicAuthorizationFailedError({"b", "a"}), "Read")
    check_wording(str(read))
    other = find_refusal(WHERE, OPTIONS, GroupAuthorizationFailedError("lb-watermark"))
    assert isinstance(other, RightsRefused)
    check_wording(str(other))
    assert other is not None and describe_error(other) == (str(other), 1)


@pytest.mark.parametrize(
    "error",
    [
        SaslAuthenticationFailedError("invalid credentials"),
        UnsupportedSaslMechanismError("not enabled"),
    ],
)
def test_a_refused_login_is_a_wrong_setting(error: Exception) -> None:
    found = find_refusal(WHERE, OPTIONS, error)
    assert isinstance(found, LoginRefused) and describe_error(found) == (str(found), 2)
    check_wording(str(found))


def test_a_refused_certificate_names_the_settings_of_certificates() -> None:
    found = find_refusal(
        WHERE,
        OPTIONS,
        TlsRefused("the broker's certificate is not trusted: self-signed certificate"),
    )
    check_wording(str(found))


def test_an_absence_is_no_refusal() -> None:
    for error in (
        KafkaTimeoutError("Unable to bootstrap"),
        KafkaConnectionError("111 ECONNREFUSED"),
        OSError("x"),
    ):
        assert find_refusal(WHERE, OPTIONS, error) is None
        assert find_login_refusal(error) is None
    assert (
        find_refusal_in_text(WHERE, OPTIONS, f"{JAVA}TimeoutException: Timeout of 60000ms expired")
        is None
    )
    assert find_login_refusal(KafkaConnectionError(ssl.SSLEOFError("the broker has gone"))) is None


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        (
            f"{JAVA}TopicAuthorizationException: Not authorized to access topics: [x]\n at y",
            1,
            "(Not authorized to access topics: [x])",
        ),
        (
            f"{JAVA}SaslAuthenticationException: Authentication failed\n at y",
            2,
            "does not let User:lb in: Authentication failed.",
        ),
        (f"{JAVA}SslAuthenticationException: SSL handshake failed", 2, "SSL handshake failed"),
        (
            "KafkaError: [Error 29] TopicAuthorizationFailedError: x",
            1,
            "a right ([Error 29] TopicAuthorizationFailedError: x)",
        ),
        ("KafkaError: [Error 58] SaslAuthenticationFailedError: x", 2, "in: x."),
    ],
)
def test_what_is_told_in_a_text_is_found(text: str, code: int, expected: str) -> None:
    found = find_refusal_in_text(WHERE, OPTIONS, text)
    assert found is not None and (found.code, expected in str(found), "\n" in str(found)) == (
        code,
        True,
        False,
    ), found


def test_a_connection_that_tls_ends_is_told_by_its_reason() -> None:
    untrusted = ssl.SSLCertVerificationError(1, "certificate verify failed")
    untrusted.verify_message = "self-signed certificate in certificate chain"
    wrapped = KafkaConnectionError("Handshake failed")
    wrapped.__context__ = untrusted
    check_wording(str(find_login_refusal(wrapped)))
    assert isinstance(
        find_login_refusal(KafkaConnectionError(ssl.SSLError("tlsv13 alert certificate required"))),
        TlsRefused,
    )
    check_wording(
        str(find_login_refusal(FileNotFoundError(2, "No such file or directory", "nowhere.pem")))
    )


def test_a_token_is_read_anew_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    provider = kafka_python_options(
        {TOKEN_FILE: str(tmp_path / "token"), "sasl_mechanism": "OAUTHBEARER"}
    )["sasl_oauth_token_provider"]
    assert isinstance(provider, TokenFile) and provider.token() == "first"
    (tmp_path / "token").write_text("second\n")
    assert provider.token() == "second"


def test_who_goes_on_says_each_refusal_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RefusalLog(WHERE, OPTIONS)
    assert not log.note(KafkaTimeoutError("away"), "Read") and not log.is_waiting("Read")
    for _ in range(3):
        assert log.note(TopicAuthorizationFailedError({"x"}), "Read")
    assert log.is_waiting("Read") and not log.is_waiting("Write") and len(caplog.messages) == 1
    assert log.note(TopicAuthorizationFailedError({"y"}), "Read") and len(caplog.messages) == 2
    monkeypatch.setattr(refusals, "AGAIN_S", 0.0)
    assert not log.is_waiting("Read")
