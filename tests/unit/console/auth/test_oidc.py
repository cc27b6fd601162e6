"""Logins by an OpenID Connect provider: who comes in, and what keeps everybody else out."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from httpx2 import Response
from joserfc import jwt
from starlette.testclient import TestClient

from lb_stream.console.address import link
from lb_stream.console.auth.oidc import KNOWN_S, LOGIN_S, MAX_GROUPS, RETRY_S, OidcLogins
from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import COOKIE, Access
from lb_stream.console.login import CALLBACK_PATH, OIDC_COOKIE, OIDC_PATH
from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.servers import OidcSettings
from lb_stream.contracts.settings import SecuritySettings
from lb_stream.settings.rights import RightsFile
from tests.support.oidc_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    Claims,
    Provider,
    make_key,
    oidc_provider,
)
from tests.support.wordings import check_wording
from tests.unit.console.site import PASSWORD, Tags, Topic, client, fleet, log_in


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def provider() -> Iterator[Provider]:
    with oidc_provider() as found:
        yield found


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("oidc") / "tables"
    fleet(folder)
    return folder


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users.toml"
    path.write_text(
        user_lines("alice", None, "operator", {}) + user_lines("root", PASSWORD, "admin", {})
    )
    return path


@pytest.fixture
def clock() -> Clock:
    return Clock()


def settings_of(provider: Provider, **more: str) -> OidcSettings:
    given = {"issuer": provider.url, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    return OidcSettings.model_validate(given | more)


@pytest.fixture
def access(provider: Provider, users: Path, clock: Clock) -> Access:
    return replace(Access.load(users), oidc=OidcLogins(settings_of(provider), clock))


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def site(tables: Path, access: Access, topic: Topic) -> TestClient:
    return client(tables, access, topic)


def begin(site: TestClient, provider: Provider, following: str = "/") -> str:
    """Begin a login; return the address to which the provider sends the visitor back."""
    answer = site.get(link(OIDC_PATH[1:], next=following))
    assert answer.status_code == 303, answer.text
    url = urlsplit(answer.headers["location"])
    assert f"{url.scheme}://{url.netloc}" == provider.url
    return provider.authorize(dict(parse_qsl(url.query)))


def finish(site: TestClient, address: str) -> Response:
    parts = urlsplit(address)
    assert f"{parts.scheme}://{parts.netloc}" == "http://localhost"
    return site.get(f"{parts.path}?{parts.query}")


def is_logged_in(site: TestClient) -> bool:
    return "Log out" in site.get("/").text


# --- who comes in ---


def test_a_user_of_the_file_logs_in_and_sends_a_command_in_the_providers_name(
    site: TestClient, provider: Provider, topic: Topic
) -> None:
    assert urlsplit(provider.url).netloc in site.get("/login").text
    answer = finish(site, begin(site, provider, "/cluster?name=eu-1"))
    assert answer.status_code == 200
    assert 'content="0; url=/cluster?name=eu-1"' in answer.text
    assert is_logged_in(site) and OIDC_COOKIE not in site.cookies
    form = {
        tag["name"]: tag.get("value") or ""
        for tag in Tags(site.get(link("send/pause", cluster="eu-1")).text).all("input")
        if tag.get("type") == "hidden"
    }
    assert site.post("/send/pause", data=form).status_code == 303
    assert [command.by for _, command in topic.sent] == ["alice"]


def test_cookies_of_a_login_are_for_this_site_and_its_callback_alone(
    site: TestClient, provider: Provider
) -> None:
    begun = site.get(OIDC_PATH).headers["set-cookie"]
    assert all(
        part in begun for part in ("HttpOnly", "SameSite=lax", f"Path={CALLBACK_PATH}", "Max-Age")
    )
    ended = finish(site, begin(site, provider)).headers.get_list("set-cookie")
    session = next(cookie for cookie in ended if cookie.startswith(f"{COOKIE}="))
    assert "HttpOnly" in session and "SameSite=strict" in session


def test_groups_of_the_token_go_to_the_session(
    site: TestClient, provider: Provider, access: Access
) -> None:
    provider.user["groups"] = ["ops", "eu", 7, ""]
    finish(site, begin(site, provider))
    session = access.find_session(site.cookies[COOKIE])
    assert session is not None and session.groups == {"ops", "eu"}


def test_groups_of_the_token_have_the_rights_that_the_file_of_rights_grants_them(
    tables: Path, access: Access, provider: Provider, topic: Topic, tmp_path: Path
) -> None:
    file = tmp_path / "rights.toml"
    file.write_text('[[grants]]\nto = ["group:ops"]\nrole = "operator"\n')
    rights = RightsFile(SecuritySettings(rights=str(file)))
    site = client(tables, replace(access, rights=rights), topic)
    for groups, status in ((["eu"], 403), (["eu", "ops"], 200)):
        provider.user = {"preferred_username": "stranger", "groups": groups}
        finish(site, begin(site, provider))
        assert site.get(link("send/pause", cluster="eu-1")).status_code == status


def test_somebody_who_is_not_in_the_file_logs_in_and_may_send_nothing(
    site: TestClient, provider: Provider
) -> None:
    provider.user["preferred_username"] = "stranger"
    finish(site, begin(site, provider))
    assert is_logged_in(site)
    assert site.get(link("send/pause", cluster="eu-1")).status_code == 403


def test_passwords_of_the_file_still_log_in(site: TestClient) -> None:
    assert log_in(site, "root").status_code == 303
    assert is_logged_in(site)


def test_a_logout_ends_the_session_and_leads_to_the_providers_own_logout(
    site: TestClient, provider: Provider
) -> None:
    finish(site, begin(site, provider))
    token = site.cookies[COOKIE]
    (csrf,) = {
        tag["value"]
        for tag in Tags(site.get("/").text).all("input")
        if tag.get("name") == "csrf_token"
    }
    answer = site.post("/logout", data={"csrf_token": csrf})
    ends = [tag["href"] for tag in Tags(answer.text).all("a") if "/end" in tag["href"]]
    query = parse_qs(urlsplit(ends[0]).query)
    assert query == {"client_id": [CLIENT_ID], "post_logout_redirect_uri": ["http://localhost/"]}
    site.cookies.set(COOKIE, token)
    assert not is_logged_in(site)


def test_the_consoles_address_that_is_set_is_the_one_to_come_back_to(
    tables: Path, users: Path, provider: Provider, topic: Topic
) -> None:
    given = settings_of(provider, console_url="https://console.example/")
    site = client(tables, replace(Access.load(users), oidc=OidcLogins(given)), topic)
    url = urlsplit(site.get(OIDC_PATH).headers["location"])
    assert parse_qs(url.query)["redirect_uri"] == [f"https://console.example{CALLBACK_PATH}"]


@pytest.mark.parametrize(
    "following", ["https://elsewhere.example/", "//elsewhere.example", "/\\elsewhere.example"]
)
def test_a_login_leads_to_no_other_site(
    site: TestClient, provider: Provider, following: str
) -> None:
    answer = finish(site, begin(site, provider, following))
    assert 'content="0; url=/"' in answer.text and "elsewhere" not in answer.text


# --- what keeps everybody else out ---


def lie(**changes: Any) -> Callable[[Claims], Claims]:
    """Change claims; a claim that is None is left out."""
    return lambda claims: {
        name: value for name, value in (claims | changes).items() if value is not None
    }


LIES: dict[str, dict[str, Any]] = {
    "another nonce": {"nonce": "made up"},
    "no nonce": {"nonce": None},
    "another audience": {"aud": "another-client"},
    "audiences without an authorized party": {"aud": [CLIENT_ID, "another-client"]},
    "another authorized party": {"aud": [CLIENT_ID, "b"], "azp": "b"},
    "no audience": {"aud": None},
    "another issuer": {"iss": "https://elsewhere.example"},
    "expired": {"exp": 1_000_000_000},
    "no expiry": {"exp": None},
    "from the future": {"iat": int(time.time()) + 3_600},
    "not valid yet": {"nbf": int(time.time()) + 3_600},
    "of another access token": {"at_hash": "made-up"},
    "no name": {"preferred_username": None},
    "a job's name": {"preferred_username": "job:lb-stream"},
    "a name of another type": {"preferred_username": ["alice"]},
    "too many groups": {"groups": ["x"] * (MAX_GROUPS + 1)},
}


@pytest.mark.parametrize("name", LIES)
def test_a_token_that_is_not_for_this_login_logs_nobody_in(
    site: TestClient, provider: Provider, name: str
) -> None:
    provider.change = lie(**LIES[name])
    answer = finish(site, begin(site, provider))
    assert answer.status_code == 403 and COOKIE not in site.cookies
    check_wording(Tags(answer.text).text.partition("Not possible")[2].split("\n")[1].strip())


def _sign_by_secret(header: Claims, claims: Claims, secret: bytes | None) -> str:
    """Return a token as no library would make it. `secret` None: without a signature."""

    def encode(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).decode().rstrip("=")

    text = ".".join(encode(json.dumps(part).encode()) for part in (header, claims))
    signature = b"" if secret is None else hmac.digest(secret, text.encode(), "sha256")
    return f"{text}.{encode(signature)}"


def _unsigned(claims: Claims) -> str:
    return _sign_by_secret({"alg": "none", "typ": "JWT"}, claims, None)


@pytest.mark.parametrize("forgery", ["none", "by the secret", "by the public key", "by another"])
def test_a_token_that_the_provider_has_not_signed_logs_nobody_in(
    site: TestClient, provider: Provider, forgery: str
) -> None:
    def sign(claims: Claims) -> str:
        if forgery == "none":
            return _unsigned(claims)
        if forgery == "by another":
            other = make_key("first")
            return jwt.encode({"alg": "RS256", "kid": "first"}, claims, other)
        secret = CLIENT_SECRET.encode()
        if forgery == "by the public key":
            secret = provider.key.as_pem(private=False)
        return _sign_by_secret({"alg": "HS256", "kid": "first"}, claims, secret)

    provider.sign = sign
    answer = finish(site, begin(site, provider))
    assert answer.status_code == 403 and COOKIE not in site.cookies


def test_a_login_counts_once_and_in_the_browser_that_began_it(
    site: TestClient, tables: Path, access: Access, topic: Topic, provider: Provider
) -> None:
    victim = client(tables, access, topic)
    address = begin(site, provider)
    assert finish(victim, address).status_code == 403, "a browser without the cookie"
    begin(victim, provider)
    assert finish(victim, address).status_code == 403, "a browser with another login"
    cookie = site.cookies[OIDC_COOKIE]
    assert finish(site, address).status_code == 200
    site.cookies.set(OIDC_COOKIE, cookie, path=CALLBACK_PATH)
    site.cookies.delete(COOKIE)
    for again in (address, begin(victim, provider)):
        assert finish(site, again).status_code == 403
    assert provider.asked.count("/token") == 1, "no other code was sent to the provider"
    assert not is_logged_in(site) and not is_logged_in(victim)


def test_a_code_counts_once_and_with_its_own_verifier(site: TestClient, provider: Provider) -> None:
    code = parse_qs(urlsplit(begin(site, provider)).query)["code"][0]
    address = begin(site, provider)
    state = parse_qs(urlsplit(address).query)["state"][0]
    stolen = f"http://localhost{CALLBACK_PATH}?" + f"code={code}&state={state}"
    answer = finish(site, stolen)
    assert answer.status_code == 403 and "invalid_grant" in answer.text
    assert "script>" not in answer.text.partition("<main")[2], "no text of the provider"


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("state={state}&error=access_denied", "access_denied"),
        ("state={state}&error=%3Cb%3E", "no code came back"),
        ("state={state}&code=x&iss=https%3A%2F%2Felsewhere.example", "Another provider"),
        ("code=x", "begun elsewhere"),
    ],
)
def test_a_redirection_without_a_right_code_is_explained(
    site: TestClient, provider: Provider, query: str, word: str
) -> None:
    state = parse_qs(urlsplit(begin(site, provider)).query)["state"][0]
    answer = site.get(f"{CALLBACK_PATH}?{query.format(state=state)}")
    assert answer.status_code == 403 and word in answer.text
    assert "/token" not in provider.asked


def test_a_changed_cookie_and_a_login_that_took_too_long_are_refused(
    site: TestClient, provider: Provider, clock: Clock
) -> None:
    address = begin(site, provider)
    content, _, signature = site.cookies[OIDC_COOKIE].rpartition(".")
    login = json.loads(base64.urlsafe_b64decode(content))
    login[3] = "https://elsewhere.example"
    changed = base64.urlsafe_b64encode(json.dumps(login).encode()).decode()
    for cookie in ("", ".", "x.y", f"{changed}.{signature}"):
        site.cookies.clear()
        site.cookies.set(OIDC_COOKIE, cookie, path=CALLBACK_PATH)
        assert finish(site, address).status_code == 403
    site.cookies.clear()
    address = begin(site, provider)
    clock.now += LOGIN_S + 1
    assert "too long" in finish(site, address).text


def test_an_email_address_is_a_name_only_if_the_provider_has_verified_it(
    tables: Path, users: Path, provider: Provider, topic: Topic
) -> None:
    given = settings_of(provider, name_claim="email", scopes="openid email")
    site = client(tables, replace(Access.load(users), oidc=OidcLogins(given)), topic)
    for verified, status in ((None, 403), ("true", 403), (False, 403), (True, 200)):
        provider.user = {"email": "root@shop.example", "email_verified": verified}
        assert finish(site, begin(site, provider)).status_code == status


# --- the provider's description and keys ---


def test_descriptions_and_keys_are_read_once_and_new_keys_when_a_token_names_one(
    site: TestClient, provider: Provider, clock: Clock
) -> None:
    for _ in range(3):
        assert finish(site, begin(site, provider)).status_code == 200
    described = "/.well-known/openid-configuration"
    assert (provider.asked.count(described), provider.asked.count("/keys")) == (1, 1)
    provider.key = make_key("second")
    assert finish(site, begin(site, provider)).status_code == 403, "keys were just read"
    clock.now += RETRY_S
    assert finish(site, begin(site, provider)).status_code == 200
    provider.sign = _unsigned
    for _ in range(5):
        assert finish(site, begin(site, provider)).status_code == 403
    assert provider.asked.count("/keys") == 2, "bad tokens don't make the console read keys"
    clock.now += KNOWN_S
    begin(site, provider)
    assert provider.asked.count(described) == 2


@pytest.mark.parametrize(
    ("path", "status", "content"),
    [
        ("/.well-known/openid-configuration", 500, b"{}"),
        ("/.well-known/openid-configuration", 302, b"{}"),
        ("/.well-known/openid-configuration", 200, b"no JSON"),
        ("/.well-known/openid-configuration", 200, b" " * ((1 << 20) + 1) + b"{}"),
        ("/.well-known/openid-configuration", 200, b'{"issuer": "https://elsewhere.example"}'),
        ("/keys", 200, b'{"keys": []}'),
        ("/keys", 200, b'{"keys": [1]}'),
        ("/token", 500, b"no JSON"),
    ],
    ids=str,
)
def test_a_provider_that_answers_nonsense_is_not_available_and_is_asked_seldom(
    site: TestClient, provider: Provider, path: str, status: int, content: bytes
) -> None:
    provider.answers[path] = (status, content)
    if path.startswith("/."):
        answers = [site.get(OIDC_PATH) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [503] * 3
        assert provider.asked.count(path) == 1
    else:
        assert finish(site, begin(site, provider)).status_code == 503
    assert site.get("/").status_code == 200 and COOKIE not in site.cookies


@pytest.mark.parametrize(
    "name", ["authorization_endpoint", "token_endpoint", "jwks_uri", "end_session_endpoint"]
)
def test_no_address_of_the_provider_may_be_plain_http_elsewhere(
    site: TestClient, provider: Provider, access: Access, name: str
) -> None:
    provider.metadata = {name: "http://elsewhere.example/x"}
    if name == "end_session_endpoint":
        assert access.oidc is not None and access.oidc.logout_url("http://localhost/") is None
    else:
        assert site.get(OIDC_PATH).status_code == 503


def test_without_a_provider_there_is_no_such_login(tables: Path, users: Path) -> None:
    site = client(tables, Access.load(users), Topic())
    assert [site.get(path).status_code for path in (OIDC_PATH, CALLBACK_PATH)] == [404, 404]


@pytest.mark.parametrize(
    "change",
    [{"client_id": ""}, {"ca_file": "missing.pem"}, {"client_secret": "file:missing"}],
    ids=str,
)
def test_settings_without_which_no_login_works_are_refused(
    provider: Provider, change: dict[str, str]
) -> None:
    with pytest.raises(SettingError) as raised:
        OidcLogins(settings_of(provider, **change))
    check_wording(raised.value)
