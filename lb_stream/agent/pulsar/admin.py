"""Calls to a Pulsar broker's admin REST API: time-outs, redirects, repetition of what may be
repeated, TLS, tokens. Standard library only.

Every call has one deadline, over all its redirects and repetitions: a broker that accepts a
connection and never answers (the survivors of a crash have been seen to do so for a minute) costs
its caller that long and no longer.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from lb_stream.agent.adapter import BrokerError

MOST_HOPS = 5
"""An unload goes to the leader, then to the owner: two redirects.

More than this many are a circle.
"""
LONGEST_REASON = 300
"""Characters of a broker's own explanation that are kept."""
LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
_REDIRECTS = {307, 308}
"""Those that promise that method and body stay as they are. Pulsar sends 307."""
_PASSING = {429, 502, 503, 504}
"""Answers that may be another one a moment later.

500 isn't among them: Pulsar says 500 to what it will never do.
"""
_PORTS = {"http": 80, "https": 443}


class AdminError(BrokerError):
    """A call that brought no usable answer: the text names call, address and reason.

    `status` is 0 when nobody answered.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """One broker's admin API and how to speak with it.

    Raises ValueError for settings that can't work.

    `url` is its scheme, host and port. A token is given as text or as a file, which is read again
    for every call, so that a renewed one counts at once. `ca_file` stands in for the system's
    certificate authorities; `cert_file` and `key_file` are the client's own. An act's time-out must
    be shorter than decisions wait for their confirmation: the agent deals with no other one
    meanwhile.
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
        wanted = (
            f"admin url = {self.url!r}: expected http://HOST:PORT or https://HOST:PORT, "
            "nothing after it"
        )
        try:
            parts = urlsplit(self.url)
            _ = parts.port
        except ValueError:
            raise ValueError(wanted) from None
        beyond = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
        if parts.scheme not in _PORTS or not parts.hostname or beyond:
            raise ValueError(wanted)
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
        """host:port of the address: what Pulsar calls the broker, unless it is advertised under
        another name."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        return f"{f'[{host}]' if ':' in host else host}:{parts.port or _PORTS[parts.scheme]}"


@dataclass(frozen=True, slots=True)
class AdminResponse:
    """What came back. `hops` are the addresses that were asked; the last one answered."""

    status: int
    body: bytes
    hops: tuple[str, ...]

    @property
    def reason(self) -> str:
        """The broker's explanation in one line: Pulsar's `reason`, or the beginning of whatever it
        sent."""
        text = self.body[: 10 * LONGEST_REASON].decode("utf-8", "replace")
        try:
            fields = json.loads(self.body)
        except ValueError:
            fields = None
        if isinstance(fields, dict) and fields.get("reason"):
            text = str(fields["reason"])
        text = " ".join(text.split())
        return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"


class AdminClient:
    """One broker's admin API. Any thread may call it: it holds nothing between calls."""

    def __init__(
        self, settings: AdminSettings, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Raises ValueError when a certificate can't be used. `sleep` waits between repetitions."""
        self.settings = settings
        self._sleep = sleep
        self._tls = _tls_context(
            settings
        )  # for redirects too: a broker without TLS may name one with it

    def get(
        self, path: str, query: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> AdminResponse:
        """Read something: repeated with growing pauses while nobody answers or the answer is one of
        a passing trouble.

        Returns whatever status came last. Raises AdminError when nobody answered in time.
        """
        deadline = time.monotonic() + (timeout_s or self.settings.read_timeout_s)
        for attempt in range(1, self.settings.attempts + 1):
            pause_s = self.settings.back_off_s * 2 ** (attempt - 1)
            last = attempt == self.settings.attempts or time.monotonic() + pause_s >= deadline
            try:
                answer = self._follow("GET", path, query, None, deadline)
                if last or answer.status not in _PASSING:
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
        return self.parsed(path, self.get(path, query, timeout_s))

    def parsed(self, path: str, answer: AdminResponse) -> Any:
        """The JSON value of an answer to a GET.

        Raises AdminError for any status but 200, and for what is no JSON.
        """
        if answer.status != 200:
            raise self.refusal("GET", path, answer)
        try:
            return json.loads(answer.body)
        except ValueError:
            raise AdminError(
                f"GET {answer.hops[-1]}{path}: expected JSON, got {answer.reason[:80]!r}",
                answer.status,
            ) from None

    def put(
        self, path: str, query: Mapping[str, str] | None = None, body: Any = None
    ) -> AdminResponse:
        """Change something.

        Sent once: whether it was done is unknown when the answer fails to come. Raises AdminError
        then.
        """
        return self._follow(
            "PUT", path, query, body, time.monotonic() + self.settings.act_timeout_s
        )

    def refusal(self, method: str, path: str, answer: AdminResponse) -> AdminError:
        """The error for an answer that isn't what was hoped for."""
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
        self, method: str, path: str, query: Mapping[str, str] | None, body: Any, deadline: float
    ) -> AdminResponse:
        """Ask, and ask whom the answer points at, until one has more to say than that."""
        target = path + ("?" + urlencode(query, safe=":") if query else "")
        address, hops = self.settings.url.rstrip("/"), list[str]()
        while True:
            hops.append(address)
            status, location, content = self._once(method, address, target, body, deadline)
            if status not in _REDIRECTS or location is None:
                return AdminResponse(status, content, tuple(hops))
            try:
                parts = urlsplit(urljoin(address + target, location))
                _ = parts.port
            except ValueError:
                raise AdminError(
                    f"{method} {address}{path}: sent on to {location!r}, which is no address",
                    status,
                ) from None
            following = f"{parts.scheme}://{parts.netloc}"
            if len(hops) > MOST_HOPS:
                raise AdminError(
                    f"{method} {hops[0]}{path}: sent on more than {MOST_HOPS} times, last to "
                    f"{following}",
                    status,
                )
            if parts.scheme not in _PORTS or (
                address.startswith("https:") and parts.scheme != "https"
            ):
                raise AdminError(
                    f"{method} {address}{path}: sent on to {following}, which is less safe; not "
                    "followed",
                    status,
                )
            address, target = following, parts.path + (f"?{parts.query}" if parts.query else "")

    def _once(
        self, method: str, address: str, target: str, body: Any, deadline: float
    ) -> tuple[int, str | None, bytes]:
        called = f"{method} {address}{target.partition('?')[0]}"
        connection = self._connection(address, deadline, called)
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
                    raise AdminError(
                        f"{called}: the answer is larger than {LARGEST_ANSWER_BYTES} bytes",
                        response.status,
                    )
                sock.settimeout(_left(deadline, called))
            return response.status, response.getheader("Location"), bytes(content)
        except TimeoutError:
            raise AdminError(f"{called}: no answer in time") from None
        except (OSError, http.client.HTTPException) as error:
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
    """The token now. Raises AdminError when its file can't be read or is empty."""
    if settings.token_file is None:
        return settings.token
    try:
        token = settings.token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AdminError(f"token file {settings.token_file}: {error}") from None
    if not token:
        raise AdminError(f"token file {settings.token_file}: expected a token, it is empty")
    return token


def _tls_context(settings: AdminSettings) -> ssl.SSLContext:
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
    """Seconds until the deadline. Raises AdminError when there are none left."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise AdminError(f"{called}: no answer in time")
    return left
