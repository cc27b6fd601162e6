"""Somebody who gives out bearer tokens: JSON Web Tokens, signed with RS256, and the public key by
which a broker checks them."""

import base64
import json
import subprocess
import time
from pathlib import Path

KEY_ID = "test-key"
VALID_S = 6 * 3600


class TokenIssuer:
    """Signs tokens in a folder. `keys` is the file that a broker reads (a JSON Web Key Set)."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.keys, self._key = folder, folder / "keys.json", folder / "signer.key"
        self._openssl("genrsa", "-out", str(self._key), "2048")
        modulus = (
            self._openssl("rsa", "-in", str(self._key), "-noout", "-modulus")
            .decode()
            .strip()
            .partition("=")[2]
        )
        key = {
            "kty": "RSA",
            "kid": KEY_ID,
            "alg": "RS256",
            "use": "sig",
            "n": _base64(bytes.fromhex(modulus)),
            "e": "AQAB",
        }
        self.keys.write_text(json.dumps({"keys": [key]}))

    def token(self, user: str, name: str | None = None) -> Path:
        """A file with a token of a user."""
        now_s, path = int(time.time()), self.folder / f"{name or user}.token"
        claims = {"sub": user, "iat": now_s, "exp": now_s + VALID_S}
        signed = ".".join(
            _base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": KEY_ID}, claims)
        )
        signature = self._openssl("dgst", "-sha256", "-sign", str(self._key), stdin=signed.encode())
        path.touch(mode=0o600)  # lbctl warns of a token that others can read
        path.write_text(f"{signed}.{_base64(signature)}\n")
        return path

    @staticmethod
    def _openssl(*arguments: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            ["openssl", *arguments], input=stdin, capture_output=True, check=False
        )
        assert done.returncode == 0, f"openssl {arguments[0]}: {done.stderr.decode()}"
        return done.stdout


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
