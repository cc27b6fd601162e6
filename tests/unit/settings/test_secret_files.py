"""A file of secrets that other users can open is named, with what to do; nobody is stopped."""

from pathlib import Path

import pytest

from lb_stream.settings.load import load
from tests.support.lbctl_runner import lbctl
from tests.support.wordings import check_wording

PASSWORD = '[kafka.options]\nsasl_plain_password = "wonderland"\n'
KEY = "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"


def make(path: Path, text: str, mode: int = 0o644) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("mode", "can"),
    [(0o644, "can read it"), (0o602, "can change it"), (0o666, "can read and change it")],
)
def test_a_file_of_settings_with_a_password_for_all_to_read_is_warned_of(
    tmp_path: Path, mode: int, can: str
) -> None:
    file = make(tmp_path / "lb.toml", PASSWORD, mode)
    (warning,) = load(file).warnings
    check_wording(warning)
    assert "wonderland" not in warning


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400])
def test_a_private_file_is_not_warned_of(tmp_path: Path, mode: int) -> None:
    assert load(make(tmp_path / "lb.toml", PASSWORD, mode)).warnings == ()


def test_settings_without_a_secret_may_be_for_all_to_read(tmp_path: Path) -> None:
    text = '[kafka]\nbootstrap_servers = "k:9092"\n[kafka.options]\nsasl_plain_password = ""\n'
    assert load(make(tmp_path / "lb.toml", text)).warnings == ()


@pytest.mark.parametrize(
    ("setting", "content"),
    [
        ("kafka.options.ssl_keyfile={}", KEY),
        ("kafka.options.ssl_certfile={}", CERTIFICATE + KEY),
        ("kafka.options.sasl_oauth_token_file={}", "token"),
        ("notify.targets.ops=file:{}", "json://x"),
        ("hooks.secret=file:{}", "s3cret"),
        ("hooks.before_move=file:{}", "https://x"),
    ],
)
def test_a_file_of_secrets_that_a_setting_names_is_warned_of(
    tmp_path: Path, setting: str, content: str
) -> None:
    file = make(tmp_path / "secret", content)
    (warning,) = load(arguments=[setting.format(file)], environment={}).warnings
    assert f"{file} holds a secret ({setting.partition('=')[0]})" in warning
    assert warning.endswith(f"chmod 600 {file}")
    file.chmod(0o600)
    assert load(arguments=[setting.format(file)], environment={}).warnings == ()


def test_a_certificate_alone_is_no_secret(tmp_path: Path) -> None:
    file = make(tmp_path / "cert.pem", CERTIFICATE)
    assert load(arguments=[f"kafka.options.ssl_certfile={file}"], environment={}).warnings == ()


def test_users_of_the_console_for_all_to_read_are_warned_of(tmp_path: Path) -> None:
    file = make(tmp_path / "users.toml", '[users.alice]\nrole = "admin"\n')
    result = lbctl("console", "--users", str(file), "--address", "no address", cwd=tmp_path)
    check_wording(result.err)
    assert f"chmod 600 {file}" in result.err
    file.chmod(0o600)
    result = lbctl("console", "--users", str(file), "--address", "no address", cwd=tmp_path)
    assert "chmod" not in result.err


@pytest.mark.parametrize(
    ("options", "holds"),
    [(("--token-file", "{}"), "a token"), (("--cert-file", "{}"), "a private key")],
)
def test_an_agents_files_of_secrets_are_warned_of(
    tmp_path: Path, options: tuple[str, ...], holds: str
) -> None:
    file = make(tmp_path / "secret", CERTIFICATE + KEY)
    given = ["--admin-url", "http://127.0.0.1:1", *(option.format(file) for option in options)]
    result = lbctl("agent", "namespaces", *given, cwd=tmp_path)
    check_wording(result.err)
