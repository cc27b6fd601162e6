"""How a store is reached: given in a file, by the environment or by --set, and shown without
secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from lb_stream.contracts.keys import SettingError
from lb_stream.settings.load import load_settings
from lb_stream.settings.secrets import is_secret
from tests.support.wordings import check_wording

TOML = """
[stream.store_options]
aws_region = "eu-1"
aws_access_key_id = "AKIA-FILE"
"fs.s3a.connection.maximum" = "20"
"""


def test_options_come_from_file_environment_and_arguments_each_over_the_one_before(
    tmp_path: Path,
) -> None:
    (tmp_path / "lb.toml").write_text(TOML)
    environment = {
        "LB_STREAM__STORE_OPTIONS__AWS_ACCESS_KEY_ID": "AKIA-ENV",
        "LB_STREAM__STORE_OPTIONS__AWS_ENDPOINT": "http://env",
    }
    given = [
        "stream.store_options.aws_endpoint=http://host:9000",
        "stream.store_options.fs.s3a.connection.maximum=30",
    ]
    assert load_settings(tmp_path / "lb.toml", None, given, environment).stream.store_options == {
        "aws_region": "eu-1",
        "aws_access_key_id": "AKIA-ENV",
        "aws_endpoint": "http://host:9000",
        "fs.s3a.connection.maximum": "30",
    }


def test_an_option_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lb.toml").write_text("[stream]\nstore_options = 5\n")
    with pytest.raises(SettingError) as error:
        load_settings(tmp_path / "lb.toml", environment={})
    check_wording(error.value)


@pytest.mark.parametrize(
    "name",
    [
        "aws_secret_access_key",
        "aws_access_key_id",
        "azure_storage_account_key",
        "fs.s3a.secret.key",
        "other",
    ],
)
def test_what_is_not_known_to_be_public_is_hidden(name: str) -> None:
    assert is_secret(("stream", "store_options", name))


@pytest.mark.parametrize(
    "name",
    ["aws_endpoint", "AWS_REGION", "azure_storage_account_name", "fs.s3a.endpoint", "allow_http"],
)
def test_where_a_store_is_may_be_shown(name: str) -> None:
    assert not is_secret(("stream", "store_options", name))
