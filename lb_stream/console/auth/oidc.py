"""Logins by an OpenID Connect provider: the authorization code flow with PKCE.

What a login needs until the provider sends its visitor back is in a signed cookie of the browser,
so that nobody can fill the console's memory, and no other browser can end the login.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from requests import RequestException

from lb_stream.contracts.base import ISSUER_PATTERN, USER_PATTERN
from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.servers import OidcSettings
from lb_stream.settings.files import read_secret

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""How the provider may sign: with a key whose public half it publishes, never with a secret."""
TIMEOUT_S = (5.0, 10.0)
"""How long the provider may take to be reached, and to answer."""
MAX_ANSWER_BYTES = 1 << 20
LOGIN_S = 600.0
"""How long a visitor may take at the provider."""
KNOWN_S = 3_600.0
"""How long the provider's description and keys are used before they are read again."""
RETRY_S = 10.0
"""Time between two readings of the keys, however many tokens name an unknown one, and after a
failure."""
LEEWAY_S = 60
"""How far the provider's clock may be from this one's."""
MAX_USED = 10_000
MAX_GROUPS, MAX_GROUP_CHARACTERS = 500, 256
_ERROR_CODE = re.compile(r"[a-z_]{1,64}")


class OidcError(Exception):
    """A login failed. The text is for its visitor; `status` is that of the page."""

    def __init__(self, text: str, status: int = 403) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class OidcUser:
    """Who has logged in. `address`: the page of the console to which the login leads."""

    name: str
    groups: frozenset[str]
    address: str


class OidcLogins:
    """The console's logins at one provider. Any thread may call."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises SettingError."""
        if not settings.client_id:
            raise SettingError("oidc.client_id", "", "the console's name at the provider")
        if settings.ca_file and not Path(settings.ca_file).is_file():
            raise SettingError("oidc.ca_file", settings.ca_file, "a file of certificates in PEM")
        self._settings, self._clock = settings, clock
        self._client_secret = read_secret(("oidc", "client_secret"), settings.client_secret)
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._used: dict[str, None] = {}  # states whose login has ended, in their order
        self._metadata: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._metadata_s = self._keys_s = self._failed_s = -KNOWN_S
        self._failure = ""

    @property
    def provider(self) -> str:
        """The provider's host, for people."""
        return urlsplit(self._settings.issuer).netloc

    @property
    def console_url(self) -> str:
        """The console's address that is set; empty: that of each request."""
        return self._settings.console_url.rstrip("/")

    def begin(self, redirect_uri: str, address: str) -> tuple[str, str]:
        """Return the provider's address that logs a visitor in, and the cookie of the login.

        `address`: the page to which the login leads. Raises OidcError.
        """
        metadata = self._read_metadata()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        with self._session(redirect_uri) as session:
            url, _ = session.create_authorization_url(
                metadata["authorization_endpoint"], state, verifier, nonce=nonce
            )
        login = [state, nonce, verifier, address, redirect_uri, self._clock() + LOGIN_S]
        return str(url), self._seal(login)

    def finish(self, given: Mapping[str, str], cookie: str) -> OidcUser:
        """Return who has logged in. `given`: what the provider's redirection has. Raises OidcError.

        Each login is finished once, whatever comes of it.
        """
        state, nonce, verifier, address, redirect_uri = self._open(cookie)
        if not hmac.compare_digest(state.encode(), given.get("state", "").encode()):
            raise OidcError("This login was begun elsewhere, or another one after it: log in again")
        with self._lock:
            if state in self._used:
                raise OidcError("This login has ended already: log in again")
            self._used[state] = None
            while len(self._used) > MAX_USED:
                self._used.pop(next(iter(self._used)))
        if given.get("iss", self._settings.issuer) != self._settings.issuer:
            raise OidcError("Another provider than the one that was asked has answered")
        if "code" not in given:
            code = given.get("error", "")
            shown = code if _ERROR_CODE.fullmatch(code) else "no code came back"
            raise OidcError(f"The provider has not logged you in: {shown}")
        claims = self._read_claims(self._fetch_token(given["code"], verifier, redirect_uri), nonce)
        return OidcUser(self._read_name(claims), self._read_groups(claims), address)

    def logout_url(self, back: str) -> str | None:
        """Return the provider's address that ends its own session; None: it has none."""
        try:
            end = self._read_metadata().get("end_session_endpoint")
        except OidcError:
            return None
        if not isinstance(end, str) or not re.fullmatch(ISSUER_PATTERN, end) or not end:
            return None
        query = {"client_id": self._settings.client_id, "post_logout_redirect_uri": back}
        return f"{end}?{urlencode(query)}"

    # --- the provider ---

    def _session(self, redirect_uri: str = "") -> OAuth2Session:
        methods = self._metadata.get("token_endpoint_auth_methods_supported", [])
        method = "client_secret_basic"
        if not self._client_secret:
            method = "none"
        elif methods and method not in methods and "client_secret_post" in methods:
            method = "client_secret_post"
        session = OAuth2Session(
            self._settings.client_id,
            self._client_secret or None,
            token_endpoint_auth_method=method,
            scope=self._settings.scopes,
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            default_timeout=TIMEOUT_S,
        )
        if self._settings.ca_file:
            session.verify = self._settings.ca_file
        return session

    def _read_metadata(self) -> dict[str, Any]:
        """Return the provider's description. Raises OidcError."""
        with self._lock:
            now_s = self._clock()
            if self._metadata and now_s - self._metadata_s < KNOWN_S:
                return self._metadata
            if now_s - self._failed_s < RETRY_S:
                raise OidcError(self._failure, 503)
            try:
                found = self._fetch(
                    self._settings.issuer.rstrip("/") + "/.well-known/openid-configuration"
                )
                self._check_metadata(found)
            except OidcError as error:
                self._failure, self._failed_s = str(error), self._clock()
                raise
            self._metadata, self._metadata_s = found, self._clock()
            return found

    def _check_metadata(self, metadata: Mapping[str, Any]) -> None:
        if metadata.get("issuer") != self._settings.issuer:
            raise OidcError("The provider calls itself by another name than oidc.issuer", 503)
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            address = metadata.get(name)
            if not isinstance(address, str) or not re.fullmatch(ISSUER_PATTERN, address):
                raise OidcError(f"The provider's {name} is no https address", 503)

    def _fetch(self, url: str) -> dict[str, Any]:
        """Read an object of JSON. Raises OidcError."""
        try:
            with (
                self._session() as session,
                session.get(url, withhold_token=True, allow_redirects=False, stream=True) as answer,
            ):
                content = answer.raw.read(MAX_ANSWER_BYTES + 1, decode_content=True)
                status = answer.status_code
        except (RequestException, OSError, ValueError) as error:
            raise OidcError(f"The provider does not answer ({type(error).__name__})", 503) from None
        try:
            found = json.loads(content) if len(content) <= MAX_ANSWER_BYTES else None
        except (ValueError, RecursionError):
            found = None
        if status != 200 or not isinstance(found, dict):
            raise OidcError(f"The provider's answer can't be read (status {status})", 503)
        return found

    def _read_keys(self, fresh: bool) -> KeySet:
        """Return the provider's keys. `fresh`: one is missing. Raises OidcError."""
        url = self._read_metadata()["jwks_uri"]
        with self._lock:
            age_s = self._clock() - self._keys_s
            if self._keys is None or age_s >= KNOWN_S or (fresh and age_s >= RETRY_S):
                try:
                    self._keys = KeySet.import_key_set(self._fetch(url))  # type: ignore[arg-type]
                except (JoseError, ValueError, KeyError, TypeError):
                    raise OidcError("The provider's keys can't be read", 503) from None
                self._keys_s = self._clock()
            return self._keys

    def _fetch_token(self, code: str, verifier: str, redirect_uri: str) -> dict[str, Any]:
        """Exchange a code for tokens. Raises OidcError."""
        url = self._read_metadata()["token_endpoint"]
        try:
            with self._session(redirect_uri) as session:
                return dict(
                    session.fetch_token(
                        url,
                        grant_type="authorization_code",
                        code=code,
                        code_verifier=verifier,
                        allow_redirects=False,
                    )
                )
        except AuthlibBaseError as error:
            shown = error.error if _ERROR_CODE.fullmatch(str(error.error)) else "an error"
            raise OidcError(f"The provider does not take the code: {shown}") from None
        except (RequestException, OSError, ValueError, TypeError, KeyError) as error:
            raise OidcError(f"The provider does not answer ({type(error).__name__})", 503) from None

    # --- the ID token ---

    def _read_claims(self, token: Mapping[str, Any], nonce: str) -> CodeIDToken:
        """Check the ID token, and return its claims. Raises OidcError."""
        text = token.get("id_token")
        if not isinstance(text, str):
            raise OidcError("The provider has sent no ID token")
        try:
            decoded = self._decode(text)
            claims = CodeIDToken(
                decoded.claims,
                decoded.header,
                {
                    "iss": {"essential": True, "value": self._settings.issuer},
                    "aud": {"essential": True, "value": self._settings.client_id},
                },
                {
                    "nonce": nonce,
                    "client_id": self._settings.client_id,
                    "access_token": token.get("access_token"),
                },
            )
            claims.validate(leeway=LEEWAY_S)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            reason = getattr(error, "claim", None) or getattr(error, "error", "")
            shown = reason if _ERROR_CODE.fullmatch(str(reason)) else type(error).__name__
            raise OidcError(f"The provider's ID token is not valid: {shown}") from None
        return claims

    def _decode(self, text: str) -> jwt.Token:
        """Check a token's signature; keys are read again for one that is signed by a new key."""
        try:
            return jwt.decode(text, self._read_keys(fresh=False), ALGORITHMS)
        except JoseError:
            return jwt.decode(text, self._read_keys(fresh=True), ALGORITHMS)

    def _read_name(self, claims: Mapping[str, Any]) -> str:
        claim = self._settings.name_claim
        name = claims.get(claim)
        if not isinstance(name, str) or not re.fullmatch(USER_PATTERN, name):
            raise OidcError(
                f"The ID token's {claim} is no name for a user: expected 1 to 128 letters, digits, "
                "dots, dashes, underscores, @ or +; oidc.name_claim names another claim"
            )
        if claim == "email" and claims.get("email_verified") is not True:
            raise OidcError("The provider has not verified your email address")
        return name

    def _read_groups(self, claims: Mapping[str, Any]) -> frozenset[str]:
        groups = claims.get(self._settings.groups_claim, [])
        groups = [groups] if isinstance(groups, str) else groups
        if not isinstance(groups, list) or len(groups) > MAX_GROUPS:
            raise OidcError(f"The ID token's {self._settings.groups_claim} is no list of groups")
        return frozenset(
            group
            for group in groups
            if isinstance(group, str) and 0 < len(group) <= MAX_GROUP_CHARACTERS
        )

    # --- the cookie of a login ---

    def _seal(self, login: list[Any]) -> str:
        content = base64.urlsafe_b64encode(json.dumps(login).encode()).decode()
        return f"{content}.{self._sign(content)}"

    def _open(self, cookie: str) -> tuple[str, str, str, str, str]:
        """Return state, nonce, verifier, address, redirect URI. Raises OidcError."""
        content, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(self._sign(content).encode(), signature.encode()):
            raise OidcError("This login was not begun in this browser: log in again")
        *login, until_s = json.loads(base64.urlsafe_b64decode(content))
        if self._clock() > until_s:
            raise OidcError("This login took too long: log in again")
        state, nonce, verifier, address, redirect_uri = map(str, login)
        return state, nonce, verifier, address, redirect_uri

    def _sign(self, content: str) -> str:
        return hmac.new(self._key, content.encode(), "sha256").hexdigest()
