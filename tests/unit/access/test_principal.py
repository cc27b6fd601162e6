"""The principal of a login follows from the settings, without a question to Kafka."""

import base64
import json
from pathlib import Path

import pytest

from lb_stream.access.principal import principal_of
from tests.support.certificates import Authority


def test_a_password_names_its_user_and_nothing_names_nobody() -> None:
    assert (
        principal_of(
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_plain_username": "lb",
            }
        )
        == "User:lb"
    )
    assert principal_of({}) == principal_of({"security_protocol": "SSL"}) == "User:ANONYMOUS"


def test_a_certificate_names_its_subject_as_kafka_does(tmp_path: Path) -> None:
    chain = Authority(tmp_path / "ca").sign("lb-job").chain
    assert (
        principal_of({"security_protocol": "SSL", "ssl_certfile": str(chain)})
        == "User:CN=lb-job,O=lb-stream"
    )
    nowhere = str(tmp_path / "nowhere.pem")
    assert (
        principal_of({"security_protocol": "SSL", "ssl_certfile": nowhere})
        == f"User:the subject of {nowhere}"
    )


def test_a_token_names_its_subject(tmp_path: Path) -> None:
    given = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_file": str(tmp_path / "token"),
    }
    assert principal_of(given) == "this user (OAUTHBEARER)"
    claims = base64.urlsafe_b64encode(json.dumps({"sub": "lb-job"}).encode()).decode().rstrip("=")
    (tmp_path / "token").write_text(f"head.{claims}.signature\n")
    assert principal_of(given) == "User:lb-job"


@pytest.mark.parametrize("text", ["", "no token", "a.b.c", "a.bnVsbA.c"])
def test_what_is_no_token_names_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    given = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_file": str(tmp_path / "token"),
    }
    assert principal_of(given) == "this user (OAUTHBEARER)"
