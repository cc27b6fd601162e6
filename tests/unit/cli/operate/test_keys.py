"""`lbctl keys`: private keys for their owner alone, and the file of signers."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from lb_stream.access.signing_keys import Keyring, parse_signers
from lb_stream.contracts.settings import SecuritySettings
from lb_stream.settings.signing import load_own_name, load_signer
from tests.support.lbctl_runner import Result, lbctl
from tests.support.wordings import check_wording

DAY_MS = 86_400_000


def keys(folder: Path, *arguments: str) -> Result:
    return lbctl("keys", *arguments, cwd=folder)


def made(folder: Path, *arguments: str) -> dict[str, Any]:
    result = keys(folder, *arguments, "--json")
    assert result.code == 0, result
    found: dict[str, Any] = result.objects[0]
    return found


def test_a_new_key_is_its_owners_alone_and_signs_in_the_given_name(tmp_path: Path) -> None:
    key = made(tmp_path, "new", "eu-1/broker-3.eu:8080", "--for", "1d")
    path = tmp_path / "eu-1-broker-3.eu-8080.pem"
    assert key["private_key"] == path.name
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (line,) = parse_signers((tmp_path / "signers").read_text())
    assert (line.key_id, line.principals) == (key["key"], "eu-1/broker-3.eu:8080")
    security = SecuritySettings(
        private_key=f"file:{path}", signers=str(tmp_path / "signers"), commands="signed"
    )
    signer = load_signer(security)
    assert signer is not None and signer.key_id == key["key"]
    assert load_own_name(security, signer) == "eu-1/broker-3.eu:8080"


def test_a_passphrase_protects_a_key(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("open sesame\n")
    made(tmp_path, "new", "alice", "--passphrase-file", "secret")
    text = (tmp_path / "alice.pem").read_text()
    assert "ENCRYPTED PRIVATE KEY" in text
    assert load_signer(SecuritySettings(private_key=text, passphrase="open sesame")) is not None


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "alice.pem").write_text("mine")
    result = keys(tmp_path, "new", "alice")
    assert result.code == 2 and "alice.pem" in result.err
    assert (tmp_path / "alice.pem").read_text() == "mine"
    assert not (tmp_path / "signers").exists()


def test_a_rotation_leaves_the_old_key_for_a_while(tmp_path: Path) -> None:
    old = made(tmp_path, "new", "alice")["key"]
    new = made(tmp_path, "rotate", "alice", "--overlap", "1d", "--out", "new.pem")["key"]
    rows = {row["key"]: row for row in keys(tmp_path, "list", "--json").objects}
    assert list(rows) == [old, new]
    assert rows[old]["valid_until"] and not rows[new]["valid_until"]
    assert {row["state"] for row in rows.values()} == {"valid"}
    assert keys(tmp_path, "rotate", "bob").code == 2


def test_a_revoked_key_is_listed_as_ended_and_signs_nothing(tmp_path: Path) -> None:
    key = made(tmp_path, "new", "alice")["key"]
    (tmp_path / "signers").open("a").write("# a comment\n")
    revoked = made(tmp_path, "revoke", key)
    text = (tmp_path / "signers").read_text()
    assert text.endswith("# a comment\n")
    (line,) = Keyring(tuple(parse_signers(text))).signers
    assert not line.is_valid_at(revoked["revoked_ms"] + 1_000)
    assert keys(tmp_path, "list", "--json").objects[0]["state"] == "ended"
    assert keys(tmp_path, "list", "-o", "name").out == f"{key}\n"
    assert key in keys(tmp_path, "show", key).out


@pytest.mark.parametrize(
    "arguments",
    [
        ("new", "two words"),
        ("new", "alice", "--for", "soon"),
        ("new", "alice", "--passphrase-file", "missing"),
        ("revoke", "0123456789abcdef"),
        ("show", "nothing"),
    ],
)
def test_wrong_usage_is_named_and_leaves_no_file(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    result = keys(tmp_path, *arguments)
    assert result.code == 2 and not list(tmp_path.glob("*.pem"))
    check_wording(result.err)


def test_a_file_of_signers_that_cannot_be_read_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "signers").write_text("nonsense\n")
    assert keys(tmp_path, "new", "alice").code == 2
    assert (tmp_path / "signers").read_text() == "nonsense\n"
