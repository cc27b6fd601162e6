"""Calls of a Pulsar broker's admin REST API: time-outs, redirects, repeated reads, TLS, tokens.

Every call has one deadline, over all its redirects and repetitions: after a crash, brokers were
seen to accept connections without an answer for a minute. HTTP is by the standard library alone.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec

from lb_stream.agent.adapter import BrokerError

MAX_HOPS = 5
"""How many redirects are followed. An unload needs two: to the leader, then to the owner."""
LONGEST_REASON = 300
"""How many characters of a broker's own explanation are kept."""
LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
REDIRECTS = {307, 308}
"""Redirects that keep method and body. Pulsar sends 307."""
_TRANSIENT = {429, 502, 503, 504}
"""Status codes after which a read is repeated. Pulsar also sends 500 for permanent errors."""
_STACK = "\nStacktrace:"
_PORTS = {"http": 80, "https": 443}

Shape = TypeVar("Shape")
"""A type that an answer's JSON value must have."""


class AdminError(BrokerError):
    """A call without a usable answer: the text names call, address and reason.

    `status` is 0 when there was no answer at all.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class AdminTimeout(AdminError):
    """A call without an answer in time. The broker may still work on it."""


class UnusableAnswer(AdminError):
    """A call whose answer is none of Pulsar's: no JSON, JSON of another kind, or far too large."""


class AdminRefused(AdminError):
    """A call to an address at which no process listens."""


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """One broker's admin API and how to call it. Raises ValueError for settings that can't work.

    - `url`: its scheme, host and port.
    - `token`, `token_file`: the token, as text or in a file that is read again for every call.
    - `ca_file`: certificate authorities instead of the system's.
    - `cert_file`, `key_file`: the client's certificate and its key.
    - `act_timeout_s`: for an unload or a split. It must be shorter than the time in which decisions
      expire, because the agent's other decisions wait meanwhile.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    verify_hostname: bool = True
    connect_timeout_s: float = 3.0
    read_timeout_s: float = 5.0
    act_timeout_s: float = 20.0
    attempts: int = 3
    back_off_s: float = 0.2

    def __post_init__(self) -> None:
        expected = (
            f"admin url = {self.url!r}: expected http://HOST:PORT or https://HOST:PORT, "
            "nothing after it"
        )
        try:
            parts = urlsplit(self.url)
            _ = parts.port
        except ValueError:
            raise ValueError(expected) from None
        has_more = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
        if parts.scheme not in _PORTS or not parts.hostname or has_more:
            raise ValueError(expected)
        if self.token is not None and self.token_file is not None:
            raise ValueError("token and token file: expected one of them, both are given")
        if self.key_file is not None and self.cert_file is None:
            raise ValueError(
                f"client key = {self.key_file}: expected a client certificate beside it"
            )
        if (
            min(self.connect_timeout_s, self.read_timeout_s, self.act_timeout_s) <= 0
            or self.attempts < 1
        ):
            raise ValueError("time-outs and attempts: expected more than 0")

    @property
    def broker(self) -> str:
        """host:port of the address: the broker's id, unless Pulsar advertises another name."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        return f"{f'[{host}]' if ':' in host else host}:{parts.port or _PORTS[parts.scheme]}"


@dataclass(frozen=True, slots=True)
class AdminResponse:
    """An answer. `hops` are the addresses that were called; the last one answered."""

    status: int
    body: bytes
    hops: tuple[str, ...]

    @property
    def reason(self) -> str:
        """The broker's explanation in one line: Pulsar's `reason`, or the begin of the body."""
        text = self.body[: 10 * LONGEST_REASON].decode("utf-8", "replace")
        try:
            fields = json.loads(self.body)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict) and fields.get("reason"):
            text = str(fields["reason"])
        if _STACK in text:  # an unexpected error: its message is enough
            text = text.partition(_STACK)[0].rpartition("Message: ")[2]
        text = " ".join(text.split())
        return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"


class AdminClient:
    """One broker's admin API. It keeps no state between calls, so any thread may call it."""

    def __init__(
        self, settings: AdminSettings, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Raises ValueError when a certificate can't be used. `sleep` waits between repetitions."""
        self.settings = settings
        self._sleep = sleep
        # Also without https in the own address: a redirect may lead to a broker with TLS.
        self._tls = _build_tls_context(settings)

    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        follow: bool = True,
    ) -> AdminResponse:
        """Read something and return the last answer, whatever its status.

        The call is repeated, with growing pauses, while there is no answer or a transient error.
        Without `follow` a redirect is an answer, too. Raises AdminError: AdminTimeout when no
        answer came in time, AdminRefused when no process listens.
        """
        deadline = time.monotonic() + (timeout_s or self.settings.read_timeout_s)
        for attempt in range(1, self.settings.attempts + 1):
            pause_s = self.settings.back_off_s * 2 ** (attempt - 1)
            last = attempt == self.settings.attempts or time.monotonic() + pause_s >= deadline
            try:
                answer = self._follow("GET", path, query, None, deadline, MAX_HOPS * follow)
                if last or answer.status not in _TRANSIENT:
                    return answer
            except AdminError as error:
                if last or error.status:
                    raise
            self._sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def get_json(
        self, path: str, query: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> Any:
        """Read a JSON value. Raises AdminError for any status but 200, and for what is no JSON."""
        return self.parse(path, self.get(path, query, timeout_s))

    def get_as(self, path: str, shape: type[Shape]) -> Shape:
        """Read a JSON value of a given shape. Raises AdminError, as `parse_as`."""
        return self.parse_as(path, self.get(path), shape)

    def parse_as(self, path: str, answer: AdminResponse, shape: type[Shape]) -> Shape:
        """Return an answer's JSON value, which has a given shape, such as `list[str]`.

        Raises AdminError as `parse` does, and for a value of another shape.
        """
        value = self.parse(path, answer)
        try:
            return msgspec.convert(value, shape)
        except msgspec.ValidationError as error:
            raise UnusableAnswer(f"GET {answer.hops[-1]}{path}: {error}", answer.status) from None

    def parse(self, path: str, answer: AdminResponse) -> object:
        """Return the JSON value of an answer to a GET.

        Raises AdminError for any status but 200, and for what is no JSON.
        """
        if answer.status != 200:
            raise self.refusal("GET", path, answer)
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            raise UnusableAnswer(
                f"GET {answer.hops[-1]}{path}: expected JSON, got {answer.reason[:80]!r}",
                answer.status,
            ) from None

    def put(
        self, path: str, query: Mapping[str, str] | None = None, body: object = None
    ) -> AdminResponse:
        """Change something; return the answer, whatever its status.

        The call is sent only once. Raises AdminError when no answer comes: then it is unknown
        whether the change was made.
        """
        return self._follow(
            "PUT", path, query, body, time.monotonic() + self.settings.act_timeout_s
        )

    def post(self, path: str, query: Mapping[str, str] | None = None) -> AdminResponse:
        """Have something done; return the answer, whatever its status.

        The call is sent only once. Raises AdminError when no answer comes: then it is unknown
        whether it was done.
        """
        return self._follow(
            "POST", path, query, None, time.monotonic() + self.settings.act_timeout_s
        )

    def refusal(self, method: str, path: str, answer: AdminResponse) -> AdminError:
        """Return the error for an answer with an unexpected status."""
        advice = {
            401: ": give a token (--token-file), or renew it",
            403: ": the token's role must be a superuser of the cluster",
        }.get(answer.status, "")
        reason = f" ({answer.reason})" if answer.reason else ""
        return AdminError(
            f"{method} {answer.hops[-1]}{path} answers {answer.status}{reason}{advice}",
            answer.status,
        )

    # --- one call ---

    def _follow(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: object,
        deadline: float,
        max_hops: int = MAX_HOPS,
    ) -> AdminResponse:
        """Call, follow redirects, and return the first answer that is none.

        With `max_hops` 0 none is followed.
        """
        target = path + ("?" + urlencode(query, safe=":") if query else "")
        address = self.settings.url.rstrip("/")
        hops: list[str] = []
        while True:
            hops.append(address)
            status, location, content = self._once(method, address, target, body, deadline)
            if status not in REDIRECTS or location is None or not max_hops:
                return AdminResponse(status, content, tuple(hops))

            # A redirect: check where it leads.
            try:
                parts = urlsplit(urljoin(address + target, location))
                _ = parts.port
            except ValueError:
                raise AdminError(
                    f"{method} {address}{path}: redirected to {location!r}, which is no address",
                    status,
                ) from None
            following = f"{parts.scheme}://{parts.netloc}"
            if len(hops) > max_hops:
                raise AdminError(
                    f"{method} {hops[0]}{path}: redirected more than {max_hops} times, last to "
                    f"{following}",
                    status,
                )
            loses_tls = address.startswith("https:") and parts.scheme != "https"
            if parts.scheme not in _PORTS or loses_tls:
                raise AdminError(
                    f"{method} {address}{path}: redirected to {following}, which is less safe; not "
                    "followed",
                    status,
                )
            address = following
            target = parts.path + (f"?{parts.query}" if parts.query else "")

    def _once(
        self, method: str, address: str, target: str, body: object, deadline: float
    ) -> tuple[int, str | None, bytes]:
        """Call one address; return status, redirect and body of its answer."""
        called = f"{method} {address}{target.partition('?')[0]}"
        try:
            connection = self._connection(address, deadline, called)
        except http.client.InvalidURL as error:
            raise AdminError(f"{called}: {error}") from None
        try:
            connection.connect()
            sock = connection.sock
            sock.settimeout(_left(deadline, called))
            connection.request(
                method, target, None if body is None else json.dumps(body).encode(), self._headers()
            )
            response = connection.getresponse()
            content = bytearray()
            while chunk := response.read1(_CHUNK_BYTES):
                content += chunk
                if len(content) > LARGEST_ANSWER_BYTES:
                    raise UnusableAnswer(
                        f"{called}: the answer is larger than {LARGEST_ANSWER_BYTES >> 20} MiB",
                        response.status,
                    )
                sock.settimeout(_left(deadline, called))
            return response.status, response.getheader("Location"), bytes(content)
        except TimeoutError:
            raise AdminTimeout(f"{called}: no answer in time") from None
        except ConnectionRefusedError as error:
            raise AdminRefused(f"{called}: {error.strerror or error}") from error
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            raise AdminError(
                f"{called}: {getattr(error, 'strerror', None) or error or type(error).__name__}"
            ) from error
        finally:
            connection.close()

    def _connection(self, address: str, deadline: float, called: str) -> http.client.HTTPConnection:
        parts = urlsplit(address)
        timeout_s = min(self.settings.connect_timeout_s, _left(deadline, called))
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=timeout_s, context=self._tls
            )
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)

    def _headers(self) -> dict[str, str]:
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "Connection": "close",
        }
        if token := read_token(self.settings):
            headers["Authorization"] = f"Bearer {token}"
        return headers


def read_token(settings: AdminSettings) -> str | None:
    """Return the token, if there is one. Raises AdminError when its file can't be read."""
    if settings.token_file is None:
        return settings.token
    try:
        token = settings.token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AdminError(f"token file {settings.token_file}: {error}") from None
    if not token:
        raise AdminError(f"token file {settings.token_file}: expected a token, it is empty")
    return token


def _build_tls_context(settings: AdminSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.cert_file is not None:
            context.load_cert_chain(settings.cert_file, settings.key_file)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(
            str(file) for file in (settings.ca_file, settings.cert_file, settings.key_file) if file
        )
        raise ValueError(
            f"certificates {files}: expected PEM files that belong together ({error})"
        ) from None
    context.check_hostname = settings.verify_hostname  # the certificate itself is always checked
    return context


def _left(deadline: float, called: str) -> float:
    """Return the seconds until the deadline. Raises AdminTimeout when none are left."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise AdminTimeout(f"{called}: no answer in time")
    return left
