"""TLS of the servers: certificates that are read anew when their files change."""

from __future__ import annotations

import logging
import ssl
import threading
from pathlib import Path

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.servers import ServerSettings
from lb_stream.settings.files import read_secret
from lb_stream.settings.signing import is_loopback

logger = logging.getLogger(__name__)

Stamp = tuple[tuple[int, int], ...]
"""Time and size of each file."""


class ServerTls:
    """A server's certificate and key, and the authorities of its clients.

    `section`: that of the settings. After a good reading, files that can't be read or don't belong
    together are logged once, and the certificate that was read last still counts. Any thread may
    call.
    """

    def __init__(self, section: str, settings: ServerSettings, client_ca: str = "") -> None:
        """Read the files. Raises SettingError."""
        self._section, self._settings, self.client_ca = section, settings, client_ca
        self._lock = threading.Lock()
        self._stamp = self._find_stamp()
        self._context = self._build_context()
        self._load_certificate(self._context)

    @classmethod
    def load(cls, section: str, settings: ServerSettings) -> ServerTls | None:
        """Read the files that settings name; None: plain HTTP. Raises SettingError."""
        client_ca = str(getattr(settings, "client_ca", ""))
        if settings.tls_cert:
            return cls(section, settings, client_ca)
        for name in ("tls_key", "tls_passphrase", "client_ca"):
            if getattr(settings, name, ""):
                expected = f"a certificate, as {section}.{name} is set"
                raise SettingError(f"{section}.tls_cert", "", expected)
        return None

    def current_context(self) -> ssl.SSLContext:
        """Return the context, with the certificate that its file has now."""
        with self._lock:
            stamp = self._find_stamp()
            if stamp != self._stamp:
                self._stamp = stamp
                self._read_anew()
            return self._context

    def _read_anew(self) -> None:
        try:
            # A certificate without its key would break the context that connections use.
            self._load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._load_certificate(self._context)
        except SettingError as error:
            logger.error("%s; the certificate that was read last still counts", error)
        else:
            logger.info("%s.tls_cert: the new certificate counts", self._section)

    def _build_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        if self.client_ca:
            try:
                context.load_verify_locations(self.client_ca)
            except OSError as error:
                raise SettingError(
                    f"{self._section}.client_ca",
                    self.client_ca,
                    f"certificates in PEM ({_describe(error)})",
                ) from None
            context.verify_mode = ssl.CERT_OPTIONAL  # a probe of /health has none
        return context

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        settings, section = self._settings, self._section
        passphrase = read_secret((section, "tls_passphrase"), settings.tls_passphrase)
        try:
            # Without a function for the passphrase OpenSSL would ask for it at the terminal.
            context.load_cert_chain(settings.tls_cert, settings.tls_key or None, lambda: passphrase)
        except OSError as error:
            raise SettingError(
                f"{section}.tls_cert",
                settings.tls_cert,
                "a certificate in PEM, with its key there or in tls_key, and the key's "
                f"passphrase in tls_passphrase ({_describe(error)})",
            ) from None

    def _find_stamp(self) -> Stamp:
        names = [self._settings.tls_cert, self._settings.tls_key]
        stamps = []
        for name in filter(None, names):
            try:
                stat = Path(name).stat()
            except OSError:
                stamps.append((0, 0))  # the reading says why
            else:
                stamps.append((stat.st_mtime_ns, stat.st_size))
        return tuple(stamps)


def _describe(error: OSError) -> str:
    """Describe why files can't be read, without paths: the setting's value has them."""
    if isinstance(error, ssl.SSLError):
        if error.reason:
            return error.reason.lower().replace("_", " ")
        return "it is no PEM, or the passphrase doesn't open it"
    return str(error.strerror or type(error).__name__).lower()


def describe_plain(section: str, address: str, tls: ServerTls | None) -> str:
    """Describe that a server sends everything in clear text to other machines; empty: it doesn't.

    `address`: host:port.
    """
    host = address.rpartition(":")[0]
    if tls is not None or is_loopback(host):
        return ""
    return (
        f"{address} is plain HTTP, and other machines can reach it: set {section}.tls_cert, or "
        "let only a proxy with TLS reach it"
    )
