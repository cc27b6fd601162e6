"""A real broker on the loopback that lets in nobody whom it doesn't know, and lets those do only
what an ACL allows."""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import KafkaError

from lb_stream.access.roles import Right
from lb_stream.io.kafka.preflight import operation_constant
from lb_stream.job.session import TOKENS_ALLOWED
from lb_stream.kit.embedded_kafka import HOST, EmbeddedKafka, free_port, server_properties
from tests.support.certificates import KEY_PASSWORD, Authority
from tests.support.tokens import TokenIssuer

ADMIN = "admin"
LONGEST_S = 60
SECURITY = "org.apache.kafka.common.security"
SCRAM = f"{SECURITY}.scram.ScramLoginModule"
BEARER = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule"


class SecureKafka(EmbeddedKafka):
    """SASL_SSL with SCRAM-SHA-512 and OAUTHBEARER at `bootstrap`, mutual TLS at `mtls`;
    StandardAuthorizer, and no right without an ACL.

    `passwords` are those of the SCRAM users. Only the broker's own certificate and ADMIN's make
    super users.
    """

    def __init__(self, folder: Path, passwords: Mapping[str, str]) -> None:
        super().__init__(folder / "kafka")
        self.authority = Authority(folder / "certificates")
        self.issuer = TokenIssuer(folder / "tokens")
        self._store, self._passwords = self.authority.pkcs12("broker"), passwords
        self._mtls_port = free_port()
        self._admin = self.certified(ADMIN)

    @property
    def mtls(self) -> str:
        """Where clients show certificates."""
        return f"{HOST}:{self._mtls_port}"

    def scram(self, user: str) -> dict[str, Any]:
        """A user's settings, under kafka-python's names."""
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": user,
            "sasl_plain_password": self._passwords[user],
            "ssl_cafile": str(self.authority.certificate),
        }

    def bearer(self, user: str) -> dict[str, Any]:
        """Those of one who shows a signed token, out of a file."""
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_file": str(self.issuer.token(user)),
            "ssl_cafile": str(self.authority.certificate),
        }

    def certified(self, name: str) -> dict[str, Any]:
        """Those of one who shows a certificate of the name `CN=<name>,O=lb-stream`."""
        made = self.authority.sign(name)
        files = {
            "ssl_cafile": str(self.authority.certificate),
            "ssl_certfile": str(made.chain),
            "ssl_keyfile": str(made.key),
        }
        return {"security_protocol": "SSL", "ssl_password": KEY_PASSWORD, **files}

    def admin(self, **more: Any) -> KafkaAdminClient:
        """A client that may do everything."""
        return KafkaAdminClient(bootstrap_servers=self.mtls, **self._admin, **more)

    def properties(self, port: int, controller_port: int) -> dict[str, str | int]:
        """Every listener speaks TLS; the controller and the broker know each other by
        certificate."""
        listeners = {"SASL_SSL": port, "SSL": self._mtls_port}
        return server_properties(self.data_dir, port, controller_port) | {
            "listeners": ",".join(
                f"{name}://{HOST}:{number}"
                for name, number in {**listeners, "CONTROLLER": controller_port}.items()
            ),
            "advertised.listeners": ",".join(
                f"{name}://{HOST}:{number}" for name, number in listeners.items()
            ),
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "SSL",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f"{BEARER} required;",
            "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": (
                f"{SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
            "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self.issuer.keys.as_uri(),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self._store),
            "ssl.keystore.password": KEY_PASSWORD,
            "ssl.key.password": KEY_PASSWORD,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # nobody kills it: on a busy machine it must not be taken for dead
            "broker.session.timeout.ms": 60_000,
            "super.users": ";".join(f"User:CN={name},O=lb-stream" for name in ("broker", ADMIN)),
        }

    def format_options(self) -> list[str]:
        """The SCRAM users are there from the first start on."""
        return [
            part
            for user, word in self._passwords.items()
            for part in ("--add-scram", f"SCRAM-SHA-512=[name={user},password={word}]")
        ]

    def jvm_options(self) -> list[str]:
        """The file with the keys that have signed tokens must be allowed to the JVM."""
        return [f"-D{TOKENS_ALLOWED}={self.issuer.keys.as_uri()}"]

    def is_ready(self, port: int) -> bool:
        """Whether the broker lets the administrator in."""
        try:
            socket.create_connection((HOST, self._mtls_port), timeout=1).close()
            with self.admin(bootstrap_timeout_ms=10_000) as client:
                return bool(client.describe_cluster()["brokers"])
        except (KafkaError, OSError):
            return False

    def start(self, timeout_s: float = 300) -> str:
        """As every broker is started; with TLS on a busy machine that takes its time."""
        return super().start(timeout_s)


class Acls:
    """Gives rights and takes them away; what is changed counts when a call returns."""

    def __init__(self, kafka: SecureKafka) -> None:
        self._client = kafka.admin()

    def allow(self, principal: str, *rights: Right) -> None:
        """Give rights."""
        patterns = [(right, ResourcePattern(_kind(right), right.name)) for right in rights]
        self._client.create_acls(
            [
                ACL(principal, "*", _operation(right), ACLPermissionType.ALLOW, pattern)
                for right, pattern in patterns
            ]
        )
        self._wait(principal, lambda there: set(rights) <= there)

    def take(self, principal: str, *rights: Right) -> None:
        """Take rights away again."""
        literal = ACLResourcePatternType.LITERAL
        patterns = [
            (right, ResourcePatternFilter(_kind(right), right.name, literal)) for right in rights
        ]
        self._client.delete_acls(
            [
                ACLFilter(principal, "*", _operation(right), ACLPermissionType.ALLOW, pattern)
                for right, pattern in patterns
            ]
        )
        self._wait(principal, lambda there: not set(rights) & there)

    @contextmanager
    def without(self, principal: str, *rights: Right) -> Iterator[None]:
        """Take rights away for a while."""
        self.take(principal, *rights)
        try:
            yield
        finally:
            self.allow(principal, *rights)

    def close(self) -> None:
        """Release the connections."""
        self._client.close()

    def _wait(self, principal: str, done: Callable[[set[Right]], bool]) -> None:
        """The broker's own copy follows the controller's a moment later."""
        everything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
        wanted, end = (
            ACLFilter(principal, None, ACLOperation.ANY, ACLPermissionType.ANY, everything),
            time.monotonic() + LONGEST_S,
        )
        while not done({_right(acl) for acl in self._client.describe_acls(wanted)[0]}):
            assert time.monotonic() < end, (
                f"the rights of {principal} have not changed within {LONGEST_S} s"
            )
            time.sleep(0.1)


def _right(acl: ACL) -> Right:
    words = (
        acl.operation.name.title().replace("_", ""),
        acl.resource_pattern.resource_type.name.lower().replace("_", "-"),
    )
    return Right(*words, acl.resource_pattern.resource_name)


def _operation(right: Right) -> ACLOperation:
    return ACLOperation[operation_constant(right.operation)]


def _kind(right: Right) -> ResourceType:
    return ResourceType[right.kind.upper().replace("-", "_")]
