"""Settings of the servers: the console, the lookup server, the job's metrics."""

from __future__ import annotations

from typing import Any

from lb_stream.contracts.base import ISSUER_PATTERN, SCOPES_PATTERN
from lb_stream.contracts.keys import KeyModel, key


def _limit(default: int) -> Any:
    return key(
        default,
        "Maximum open connections. A further one takes the place of the one that has waited "
        "longest for a request. If all have requests, it is answered with status 503.",
        unit="connections",
        dynamic=False,
        ge=4,
        le=100_000,
    )


def _idle(default: int) -> Any:
    return key(
        default,
        "How long a connection may stay open between two requests.",
        unit="ms",
        dynamic=False,
        ge=100,
    )


class ServerSettings(KeyModel):
    """What all servers have: TLS, and limits on connections."""

    tls_cert: str = key(
        "",
        "PEM file with the server's certificate and those that lead to its authority. It is read "
        "anew when it changes. Empty: plain HTTP.",
        dynamic=False,
    )
    tls_key: str = key(
        "",
        "PEM file with the certificate's private key. Empty: tls_cert has the key, too.",
        dynamic=False,
    )
    tls_passphrase: str = key(
        "", "The key's passphrase, or file:PATH. Empty: the key has none.", dynamic=False
    )
    head_timeout_ms: int = key(
        10_000,
        "How long a client may take for the TLS handshake, and for a request up to its headers' "
        "end; in the console also for a request's body. Then the connection is closed.",
        unit="ms",
        dynamic=False,
        ge=100,
    )
    max_connections: int = _limit(500)
    idle_timeout_ms: int = _idle(10_000)


class _ReadingServerSettings(ServerSettings):
    """What the servers for programs have."""

    client_ca: str = key(
        "",
        "PEM file with the authorities whose client certificates may read. `/health` and `/ready` "
        "need none. It needs tls_cert. Empty: no client needs a certificate.",
        dynamic=False,
    )


class LookupSettings(_ReadingServerSettings):
    """`lbctl lookup-server`."""


class MetricsSettings(_ReadingServerSettings):
    """The metrics and the health of the job, at `stream.metrics_address`."""

    max_connections: int = _limit(64)


class ConsoleSettings(ServerSettings):
    """`lbctl console`."""

    max_connections: int = _limit(2_000)
    idle_timeout_ms: int = _idle(20_000)


class OidcSettings(KeyModel):
    """Logins of the console by an OpenID Connect provider."""

    issuer: str = key(
        "",
        "The provider's address, https://…, exactly as its tokens name it. Empty: no provider.",
        dynamic=False,
        pattern=ISSUER_PATTERN,
    )
    client_id: str = key("", "The console's name at the provider.", dynamic=False)
    client_secret: str = key(
        "",
        "The console's secret at the provider, or file:PATH. Empty: the provider asks for none.",
        dynamic=False,
    )
    scopes: str = key(
        "openid profile",
        "What the provider is asked for, with spaces between; openid is among them.",
        dynamic=False,
        pattern=SCOPES_PATTERN,
    )
    name_claim: str = key(
        "preferred_username",
        "The claim of the ID token that is the user's name. It must be one that users can't "
        "change at the provider.",
        dynamic=False,
        min_length=1,
    )
    groups_claim: str = key(
        "groups", "The claim of the ID token that lists the user's groups.", dynamic=False
    )
    console_url: str = key(
        "",
        "The address under which browsers reach the console. Empty: that of each request; behind "
        "a proxy with TLS it must be given.",
        dynamic=False,
        pattern=ISSUER_PATTERN,
    )
    ca_file: str = key(
        "",
        "PEM file with the authorities of the provider's certificate. Empty: those that browsers "
        "trust.",
        dynamic=False,
    )
