"""What a signature covers, who may sign, and the file of signers."""

from __future__ import annotations

import re
from functools import partial
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.access.signatures import (
    KEY_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    Signature,
    SignatureRejected,
    digest_value,
    encode_signed,
    is_user,
)
from lb_stream.access.signing_keys import (
    AllowedSigner,
    KeyFileError,
    Keyring,
    Signer,
    change_signers,
    parse_line,
    parse_signers,
)
from lb_stream.contracts.patterns import matches_wildcards

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = PRIVATE.public_key().public_bytes_raw()
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
BROKER = "eu-1/broker-1:8080"
RECORD = {"topic": "lb-load-reports", "key": BROKER.encode(), "kind": "goodbye", "value": b"{}"}


def signed(**changed: object) -> tuple[Signature, int]:
    """The signature of RECORD, and when it was made, ms."""
    record = RECORD | changed
    headers = Signer(PRIVATE).sign(
        str(record["topic"]), record["key"], record["value"], str(record["kind"])
    )
    signature = Signature.from_headers(headers)
    assert signature is not None
    return signature, signature.signed_us // 1000


def keyring(line: AllowedSigner | None = None, window_ms: int = 300_000) -> Keyring:
    return Keyring((line or AllowedSigner(BROKER, PUBLIC),), window_ms)


def verify(
    ring: Keyring,
    signature: Signature | None,
    at_ms: int,
    principal: str = BROKER,
    **changed: object,
) -> AllowedSigner:
    """The signer of RECORD, if the ring knows it."""
    record = RECORD | changed
    value = record.pop("value")
    digest = partial(digest_value, value)
    return ring.verify(signature, **record, digest=digest, at_ms=at_ms, principal=principal)


def rejection(
    ring: Keyring,
    signature: Signature | None,
    at_ms: int,
    principal: str = BROKER,
    **changed: object,
) -> SignatureRejected:
    with pytest.raises(SignatureRejected) as raised:
        verify(ring, signature, at_ms, principal, **changed)
    return raised.value


def test_a_signed_record_is_its_signers() -> None:
    signature, at_ms = signed()
    assert verify(keyring(), signature, at_ms).principals == BROKER


@pytest.mark.parametrize(
    "changed",
    [
        {"topic": "lb-commands"},
        {"key": b"eu-2/broker-1:8080"},
        {"kind": "heartbeat"},
        {"value": b"{ }"},
        {"value": b""},
    ],
)
def test_a_signature_covers_topic_key_kind_and_value(changed: dict[str, object]) -> None:
    signature, at_ms = signed()
    assert rejection(keyring(), signature, at_ms, **changed).field == SIGNATURE_HEADER


def test_a_signature_covers_its_own_time() -> None:
    signature, at_ms = signed()
    later = Signature(signature.key_id, signature.signed_us + 1, signature.value)
    assert rejection(keyring(), later, at_ms).field == SIGNATURE_HEADER


def test_a_record_is_rejected_that_stands_in_the_topic_at_another_time() -> None:
    signature, at_ms = signed()
    verify(keyring(window_ms=1_000), signature, at_ms + 1_000)
    for other_ms in (at_ms + 1_001, at_ms - 1_001):
        assert rejection(keyring(window_ms=1_000), signature, other_ms).field == TIME_HEADER


def test_an_agents_key_speaks_for_its_own_broker_alone() -> None:
    signature, at_ms = signed()
    error = rejection(keyring(), signature, at_ms, principal="eu-1/broker-2:8080")
    assert (error.field, error.expected) == (KEY_HEADER, "a key of eu-1/broker-2:8080")


def test_an_unknown_key_and_a_record_without_signature_are_rejected() -> None:
    signature, at_ms = signed()
    assert rejection(Keyring(), signature, at_ms).field == KEY_HEADER
    assert rejection(keyring(), None, at_ms).field == SIGNATURE_HEADER


@pytest.mark.parametrize("value", [b"", b"short", bytes(64), bytes(10_000)])
def test_bytes_that_are_no_signature_are_rejected(value: bytes) -> None:
    signature, at_ms = signed()
    forged = Signature(signature.key_id, signature.signed_us, value)
    assert rejection(keyring(), forged, at_ms).field == SIGNATURE_HEADER


def test_a_key_counts_from_its_first_to_before_its_last_moment() -> None:
    signature, at_ms = signed()
    valid = AllowedSigner(BROKER, PUBLIC, at_ms, at_ms + 1)
    verify(keyring(valid), signature, at_ms)
    for other_ms in (at_ms - 1, at_ms + 1):
        assert rejection(keyring(valid), signature, other_ms).field == KEY_HEADER


@given(st.lists(st.binary(max_size=20), min_size=3, max_size=3), st.integers(0, 10**18))
def test_two_different_records_are_never_encoded_alike(parts: list[bytes], at_us: int) -> None:
    topic, kind = parts[0].hex(), parts[2].hex()
    encoded = encode_signed(topic, parts[1], kind, at_us, b"v")
    assert encoded != encode_signed(topic + " ", parts[1], kind, at_us, b"v")
    assert encoded != encode_signed(topic, parts[1] + b" 1", kind, at_us, b"v")
    assert encode_signed(topic, b"a b", kind, at_us, b"c") != encode_signed(
        topic, b"a", kind, at_us, b"b c"
    )


def test_signed_are_the_lengths_and_bytes_of_each_part_and_of_the_values_digest() -> None:
    digest = sha256(b"value").digest()
    encoded = encode_signed("lb-commands", b"", "", 17, digest)
    assert encoded == b"DSSEv1 11 lb-commands 0  0  2 17 32 " + digest


def test_times_of_one_signer_increase() -> None:
    signer = Signer(PRIVATE)
    times = [int(dict(signer.sign("t", b"k", b"v"))[TIME_HEADER]) for _ in range(2_000)]
    assert times == sorted(set(times))


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(KEY_HEADER, b"x"), (SIGNATURE_HEADER, b"y")],
        [(KEY_HEADER, b"x"), (TIME_HEADER, b"soon"), (SIGNATURE_HEADER, b"y")],
        [(KEY_HEADER, b"x"), (TIME_HEADER, b"9" * 19), (SIGNATURE_HEADER, b"y")],
        [(KEY_HEADER, b"x"), (TIME_HEADER, "٣".encode()), (SIGNATURE_HEADER, b"y")],
        [(KEY_HEADER, None), (TIME_HEADER, b"1"), (SIGNATURE_HEADER, b"y")],
    ],
)
def test_headers_without_one_of_the_three_are_no_signature(
    headers: list[tuple[str, bytes | None]],
) -> None:
    assert Signature.from_headers(headers) is None


def test_of_several_headers_the_last_one_counts() -> None:
    genuine = Signer(PRIVATE).sign("t", b"k", b"v")
    found = Signature.from_headers([(KEY_HEADER, b"other"), *genuine])
    assert found is not None and found.key_id.encode() == dict(genuine)[KEY_HEADER]


@pytest.mark.parametrize(
    ("principals", "name", "speaks"),
    [
        ("alice,bob", "bob", True),
        ("alice", "alic", False),
        ("eu-1/*", "eu-1/broker-7:8080", True),
        ("eu-1/*", "eu-12/broker-7:8080", False),
        ("*,!job:*,!*/*", "job:lb-stream", False),
        ("*,!job:*,!*/*", "carol", True),
        ("broker-?", "broker-12", False),
        ("a.c", "abc", False),
    ],
)
def test_names_may_be_patterns(principals: str, name: str, speaks: bool) -> None:
    assert AllowedSigner(principals, PUBLIC).is_for(name) is speaks


@given(st.text("ab*?", max_size=6), st.text("ab", max_size=6))
def test_a_pattern_matches_as_the_regular_expression_of_its_stars_does(
    pattern: str, name: str
) -> None:
    expression = pattern.replace("*", ".*").replace("?", ".")
    assert matches_wildcards(pattern, name) is (re.fullmatch(expression, name) is not None)


def test_a_pattern_of_many_stars_takes_no_time_for_a_long_name() -> None:
    # By a regular expression this would take years.
    assert not matches_wildcards("*a" * 30 + "b", "a" * 1_000)
    assert matches_wildcards("*a" * 30 + "*", "a" * 1_000)


def test_agents_and_jobs_are_no_users() -> None:
    assert [is_user(name) for name in ("alice", BROKER, "job:lb-stream")] == [True, False, False]


# --- files ---


def test_a_line_is_read_as_it_was_written() -> None:
    for signer in (
        AllowedSigner("alice", PUBLIC),
        AllowedSigner("alice,*", PUBLIC, 1_000, 1_800_000_000_000, "her laptop"),
    ):
        assert parse_line(signer.format_line()) == signer


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("alice", "KEY"),
        ("alice ssh-rsa AAAA", "ssh-rsa"),
        ("alice ssh-ed25519 AAAA", "AAAA"),
        ("alice ssh-ed25519 ****", "****"),
        ('alice valid-before="20260101" ssh-ed25519 AAAA', "UTC"),
        ('alice valid-before="2026-01-01Z" ssh-ed25519 AAAA', "2026-01-01Z"),
        ('alice valid-before="20261301Z" ssh-ed25519 AAAA', ""),
        ('alice namespaces="git" ssh-ed25519 AAAA', "namespaces"),
    ],
)
def test_a_wrong_line_is_named(line: str, named: str) -> None:
    with pytest.raises(KeyFileError, match="signers, line 2") as raised:
        parse_signers(f"# comment\n{line}\n")
    assert named in str(raised.value)


def test_a_change_leaves_comments_and_other_lines_as_they_are() -> None:
    ours = AllowedSigner("alice", PUBLIC)
    other = f"  {AllowedSigner('bob', OTHER.public_key().public_bytes_raw()).format_line()}  "
    text = f"# keys\n\n{other}\n{ours.format_line()}\n"
    changed = change_signers(
        text,
        lambda line: line if line != ours else AllowedSigner("alice", PUBLIC, None, 5_000),
    )
    assert changed.splitlines()[:3] == ["# keys", "", other]
    assert [line.valid_before_ms for line in parse_signers(changed)] == [None, 5_000]


def test_a_private_key_needs_its_passphrase_and_must_be_ed25519() -> None:
    pem = PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert Signer.from_pem(pem).key_id == AllowedSigner("x", PUBLIC).key_id
    for text, passphrase in ((pem, b"unwanted"), (b"no key", None), (b"", None)):
        with pytest.raises(KeyFileError):
            Signer.from_pem(text, passphrase)


def test_a_public_key_is_written_as_openssh_writes_it() -> None:
    openssh = PRIVATE.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    assert AllowedSigner("alice", PUBLIC).format_line() == f"alice {openssh.decode()}"
