"""`lbctl keys`: keys that sign records, and the file of those that may."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    CliSettings,
    ConfigFile,
    Format,
    Json,
    Output,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import (
    CommandError,
    emit_json,
    emit_line,
    emit_rich,
    emit_rows,
    note,
    table,
)
from lb_stream.cli.shared.spans import parse_duration

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization import KeySerializationEncryption

    from lb_stream.access.signing_keys import AllowedSigner

app = typer.Typer(
    name="keys",
    no_args_is_help=True,
    help="Make and revoke the keys that sign commands, reports and decisions.",
)
DEFAULT_FILE = "signers"

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Who signs: a user's name, CLUSTER/BROKER of a broker's agent, or job:PIPELINE. "
        "Several with commas; * and ? stand for other characters.",
    ),
]
KeyId = Annotated[str, typer.Argument(metavar="KEY", help="The key's id, from lbctl keys list.")]
KeyFile = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="The private key's new file. Default: NAME.pem."),
]
Passphrase = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file", metavar="FILE", help="Encrypt the private key with FILE's one line."
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--for", metavar="TIME", help="How long the key is valid: 12h, 90d. No end."),
]


@app.callback()
def _group() -> None:
    """Make and revoke the keys that sign commands, reports and decisions."""


@app.command(epilog="Example: lbctl keys new eu-1/broker-3.eu:8080 --for 365d")
def new(
    name: Name,
    out: KeyFile = None,
    passphrase_file: Passphrase = None,
    for_: Until = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Make a key: the private one in a file of its own, the public one in the file of signers."""
    signers = _signers_path(load_cli_settings(config, broker_conf, set_))
    until_ms = None if for_ is None else _now_ms() + parse_duration("--for", for_, 1)
    _make_key(signers, name, out, passphrase_file, until_ms, json)


@app.command("list", epilog="Example: lbctl keys list")
def list_(
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
    output: Output = Format.table,
) -> None:
    """Show the keys that may sign, for whom, and until when."""
    signers = _signers_path(load_cli_settings(config, broker_conf, set_))
    rows = [_describe(signer) for signer in _read(signers)]
    if emit_rows(rows, output, json):
        return
    if not rows:
        note(f"no key in {signers}: lbctl keys new makes one")
        return
    titles = ("key", "signs for", "state", "valid from", "valid until", "comment")
    emit_rich(table(titles, [[value or "-" for value in row.values()] for row in rows]))


@app.command(epilog="Example: lbctl keys show 3f1c22a09b7d4e10")
def show(
    key: KeyId,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
    output: Output = Format.table,
) -> None:
    """Show one key, and its lines in the file of signers."""
    signers = _signers_path(load_cli_settings(config, broker_conf, set_))
    found = _require_key(signers, key)
    rows = [_describe(signer) | {"line": signer.format_line()} for signer in found]
    if emit_rows(rows, output, json):
        return
    for row in rows:
        for title, value in row.items():
            emit_line(f"{title.replace('_', ' ')}: {value or '-'}")


@app.command(epilog="Example: lbctl keys revoke 3f1c22a09b7d4e10")
def revoke(
    key: KeyId,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """End a key now: what it signs from now on is rejected wherever the file is read."""
    signers = _signers_path(load_cli_settings(config, broker_conf, set_))
    ended = _require_key(signers, key)
    now_ms = _now_ms()
    _change(signers, lambda signer: _end(signer, now_ms) if signer.key_id == key else signer)
    if json:
        emit_json({"key": key, "revoked_ms": now_ms, "signs_for": ended[0].principals})
    else:
        emit_line(f"{key} of {ended[0].principals} signs nothing any more; copy {signers}")


@app.command(epilog="Example: lbctl keys rotate alice --overlap 7d")
def rotate(
    name: Name,
    overlap: Annotated[
        str,
        typer.Option(
            "--overlap", metavar="TIME", help="How long the old keys stay valid beside the new one."
        ),
    ] = "1d",
    out: KeyFile = None,
    passphrase_file: Passphrase = None,
    for_: Until = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Make a new key for a name; its old ones end after the overlap."""
    signers = _signers_path(load_cli_settings(config, broker_conf, set_))
    now_ms = _now_ms()
    end_ms = now_ms + parse_duration("--overlap", overlap)
    until_ms = None if for_ is None else now_ms + parse_duration("--for", for_, 1)
    old = {
        signer.key_id
        for signer in _read(signers)
        if signer.principals == name and signer.is_valid_at(now_ms)
    }
    if not old:
        raise CommandError(f"no valid key of {name} in {signers}: lbctl keys new {name}", 2)
    if out is None:
        out = Path(f"{_file_stem(name)}-{time.strftime('%Y%m%d', time.gmtime())}.pem")
    _make_key(signers, name, out, passphrase_file, until_ms, json)
    _change(signers, lambda signer: _end(signer, end_ms) if signer.key_id in old else signer)
    if not json:
        emit_line(f"{', '.join(sorted(old))} may sign for {overlap} more")


def _make_key(
    signers: Path,
    name: str,
    out: Path | None,
    passphrase_file: Path | None,
    until_ms: int | None,
    json: bool,
) -> None:
    """Write a new private key, and the line of its public key. Raises CommandError."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat

    from lb_stream.access.signing_keys import AllowedSigner

    if not name or re.search(r"\s", name):
        raise CommandError(f"NAME {name!r}: expected a name without spaces", 2)
    _read(signers)  # a file that can't be read is not written to
    private_key = Ed25519PrivateKey.generate()
    public = private_key.public_key().public_bytes_raw()
    signer = AllowedSigner(name, public, valid_before_ms=until_ms)
    path = out or Path(f"{_file_stem(name)}.pem")
    encryption = _encryption(passphrase_file)
    _write_private(path, private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    known = signers.read_text(encoding="utf-8") if signers.exists() else ""
    with signers.open("a", encoding="utf-8") as file:
        begin = "\n" if known and not known.endswith("\n") else ""
        file.write(f"{begin}{signer.format_line()}\n")
    if json:
        emit_json({"key": signer.key_id, "private_key": str(path), "signers": str(signers)})
        return
    emit_line(f"{signer.key_id} signs for {name}: private key in {path}, public key in {signers}")
    note(f'settings of its owner: security.private_key = "file:{path}"; of all: security.signers')


def _encryption(passphrase_file: Path | None) -> KeySerializationEncryption:
    """Return how a private key is encrypted. Raises CommandError."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, NoEncryption

    if passphrase_file is None:
        return NoEncryption()
    try:
        lines = passphrase_file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--passphrase-file {passphrase_file}: {error}", 2) from None
    if len(lines) != 1 or not lines[0]:
        raise CommandError(f"--passphrase-file {passphrase_file}: expected one line in it", 2)
    return BestAvailableEncryption(lines[0].encode())


def _write_private(path: Path, text: bytes) -> None:
    """Write a new file that only its user can read. Raises CommandError if there is one."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CommandError(f"--out {path}: {error.strerror}: expected a new file", 2) from None
    with os.fdopen(number, "wb") as file:
        file.write(text)


def _file_stem(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "key"


def _signers_path(given: CliSettings) -> Path:
    return Path(given.settings.security.signers or DEFAULT_FILE)


def _read(signers: Path) -> list[AllowedSigner]:
    """Return the lines of a file of signers; none if there is no file. Raises CommandError."""
    from lb_stream.access.signing_keys import KeyFileError, parse_signers

    try:
        return parse_signers(signers.read_text(encoding="utf-8"), str(signers))
    except FileNotFoundError:
        return []
    except (KeyFileError, OSError, UnicodeDecodeError) as error:
        raise CommandError(f"security.signers: {error}", 2) from None


def _require_key(signers: Path, key: str) -> list[AllowedSigner]:
    """Return a key's lines. Raises CommandError."""
    known = _read(signers)
    found = [signer for signer in known if signer.key_id == key]
    if not found:
        names = ", ".join(signer.key_id for signer in known) or "none"
        raise CommandError(f"KEY {key!r}: expected a key of {signers}: {names}", 2)
    return found


def _change(signers: Path, change: Callable[[AllowedSigner], AllowedSigner]) -> None:
    """Replace a file of signers by one with changed lines."""
    from lb_stream.access.signing_keys import change_signers

    text = change_signers(signers.read_text(encoding="utf-8"), change)
    signers = signers.resolve()  # of a link, the file itself is replaced
    draft = signers.with_name(f"{signers.name}.new")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(signers.stat().st_mode)
    draft.replace(signers)


def _end(signer: AllowedSigner, at_ms: int) -> AllowedSigner:
    """Return a line whose key is valid until a time, or until an earlier end that it has."""
    end_ms = at_ms if signer.valid_before_ms is None else min(at_ms, signer.valid_before_ms)
    return replace(signer, valid_before_ms=end_ms)


def _describe(signer: AllowedSigner) -> dict[str, str | None]:
    """Return what the list shows of a key."""
    now_ms = _now_ms()
    state = "valid"
    if not signer.is_valid_at(now_ms):
        before = signer.valid_after_ms is not None and now_ms < signer.valid_after_ms
        state = "not yet valid" if before else "ended"
    return {
        "key": signer.key_id,
        "signs_for": signer.principals,
        "state": state,
        "valid_from": _format(signer.valid_after_ms),
        "valid_until": _format(signer.valid_before_ms),
        "comment": signer.comment or None,
    }


def _format(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
