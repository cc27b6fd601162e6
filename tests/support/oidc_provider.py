"""A small OpenID Connect provider on loopback, which logs everybody in and can lie."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

CLIENT_ID, CLIENT_SECRET = "lb-console", "provider-secret"
Claims = dict[str, Any]


def make_key(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig", "alg": "RS256"})


@cache
def _first_key() -> RSAKey:
    """The key of each provider at first; to make one takes longer than a login."""
    return make_key("first")


@dataclass
class Provider:
    """What the provider says. `user`: the claims of who logs in. `change`: a lie about a token's
    claims. `sign`: another way to sign. `answers`: path → (status, content) instead of its own.
    `asked`: the paths that were requested."""

    url: str
    key: RSAKey
    user: Claims = field(default_factory=lambda: {"preferred_username": "alice"})
    change: Callable[[Claims], Claims] = lambda claims: claims
    sign: Callable[[Claims], str] | None = None
    metadata: Claims = field(default_factory=dict)
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def describe(self) -> Claims:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "end_session_endpoint": f"{self.url}/end",
        } | self.metadata

    def authorize(self, given: Mapping[str, str]) -> str:
        """Return where the visitor is sent back."""
        assert given["client_id"] == CLIENT_ID and given["response_type"] == "code"
        assert given["code_challenge_method"] == "S256" and "openid" in given["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = dict(given)
        query = {"code": code, "state": given["state"], "iss": self.url}
        return f"{given['redirect_uri']}?{urlencode(query)}"

    def exchange(self, given: Mapping[str, str], authorization: str) -> tuple[int, Claims]:
        """Return status and tokens for a code."""
        basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if authorization != f"Basic {basic}":
            return 401, {"error": "invalid_client"}
        asked = self._codes.pop(given["code"], None)
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if (
            asked is None
            or given["redirect_uri"] != asked["redirect_uri"]
            or challenge != asked["code_challenge"]
        ):
            return 400, {"error": "invalid_grant", "error_description": "<script>"}
        now = int(time.time())
        claims = self.change(
            {
                "iss": self.url,
                "sub": "1",
                "aud": CLIENT_ID,
                "iat": now,
                "exp": now + 60,
                "nonce": asked["nonce"],
            }
            | self.user
        )
        header = {"alg": "RS256", "kid": self.key.kid}
        signed = self.sign(claims) if self.sign else jwt.encode(header, claims, self.key)
        tokens = {"access_token": "access", "token_type": "Bearer", "id_token": signed}
        return 200, tokens


@contextmanager
def oidc_provider() -> Iterator[Provider]:
    """A provider that serves until the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            provider.asked.append(path)
            if path in provider.answers:
                self._answer(*provider.answers[path])
            elif path == "/.well-known/openid-configuration":
                self._answer(200, json.dumps(provider.describe()).encode())
            elif path == "/keys":
                keys = KeySet([provider.key]).as_dict(private=False)
                self._answer(200, json.dumps(keys).encode())
            elif path == "/authorize":
                self.send_response(302)
                given = dict(parse_qsl(urlsplit(self.path).query))
                self.send_header("Location", provider.authorize(given))
                self.end_headers()
            else:
                self._answer(200, b"<h1>the provider</h1>", "text/html")

        def do_POST(self) -> None:
            provider.asked.append(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.path in provider.answers:
                self._answer(*provider.answers[self.path])
                return
            authorization = self.headers.get("Authorization", "")
            status, tokens = provider.exchange(dict(parse_qsl(body)), authorization)
            self._answer(status, json.dumps(tokens).encode())

        def _answer(self, status: int, content: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = Provider(f"http://127.0.0.1:{server.server_address[1]}", _first_key())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield provider
    server.shutdown()
    server.server_close()
    thread.join()
