"""A certificate authority of a test's own, and what it has signed: PEM files with encrypted keys,
and a PKCS#12 store for a broker."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

KEY_PASSWORD = "key-password"
_ADDRESSES = "subjectAltName=IP:127.0.0.1,DNS:localhost"


@dataclass(frozen=True)
class Certificate:
    """A signed certificate with its chain, and its key: PKCS#8, encrypted with KEY_PASSWORD in a
    way that Java opens, too."""

    chain: Path
    key: Path


class Authority:
    """Signs certificates in a folder. Its own is `ca.pem` there."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.certificate = folder, folder / "ca.pem"
        self._key = folder / "ca.key"
        made = ("-keyout", self._key, "-out", self.certificate)
        self._run(
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            *made,
            "-subj",
            "/CN=test-ca",
            "-days",
            "2",
        )

    def sign(self, name: str) -> Certificate:
        """A certificate with the distinguished name `CN=<name>,O=lb-stream`, for servers and
        clients on the loopback."""
        plain, request, extensions = (
            self.folder / f"{name}.{end}" for end in ("plain", "csr", "ext")
        )
        made = Certificate(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        extensions.write_text(_ADDRESSES)
        self._run(
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            plain,
            "-out",
            request,
            "-subj",
            f"/O=lb-stream/CN={name}",
        )
        signing = (
            "-CA",
            self.certificate,
            "-CAkey",
            self._key,
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            extensions,
        )
        self._run("x509", "-req", "-in", request, "-out", made.chain, *signing)
        self._run(
            "pkcs8",
            "-topk8",
            "-v1",
            "PBE-SHA1-3DES",
            "-in",
            plain,
            "-out",
            made.key,
            "-passout",
            f"pass:{KEY_PASSWORD}",
        )
        return made

    def pkcs12(self, name: str) -> Path:
        """The same as a PKCS#12 store, which KEY_PASSWORD opens."""
        made, store = self.sign(name), self.folder / f"{name}.p12"
        passwords = ("-passin", f"pass:{KEY_PASSWORD}", "-passout", f"pass:{KEY_PASSWORD}")
        self._run(
            "pkcs12",
            "-export",
            "-in",
            made.chain,
            "-inkey",
            made.key,
            "-name",
            name,
            "-out",
            store,
            *passwords,
        )
        return store

    @staticmethod
    def _run(*arguments: object) -> None:
        done = subprocess.run(
            ["openssl", *map(str, arguments)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"openssl {arguments[0]}: {done.stderr}"
