"""Addresses: each library's spelling of them and of their options."""

from __future__ import annotations

from pathlib import Path

import pytest

from lb_stream.contracts.settings import StreamSettings
from lb_stream.settings.files import CONF
from lb_stream.store import AddressError, Store, checkpoint_of, tables_of
from lb_stream.store.address import delta_options, hadoop_options, object_store_options
from tests.support.wordings import check_wording

ABFSS = "abfss://c@a.dfs.core.windows.net/d"


@pytest.mark.parametrize(
    ("given", "uri", "for_hadoop"),
    [
        ("s3://b/d/", "s3://b/d", "s3a://b/d"),
        ("s3a://b/d", "s3://b/d", "s3a://b/d"),
        ("gs://b/d", "gs://b/d", "gs://b/d"),
        (ABFSS, ABFSS, ABFSS),
        ("wasbs://c@a.blob.core.windows.net/d", ABFSS, ABFSS),
        ("file:///x/a%20b/", "/x/a b", "/x/a b"),
        ("/x/y", "/x/y", "/x/y"),
    ],
)
def test_an_address_is_spelled_as_each_library_reads_it(
    given: str, uri: str, for_hadoop: str
) -> None:
    store = Store.at(given)
    assert (store.uri, store.for_hadoop) == (uri, for_hadoop)
    assert (store / "t" / "u").uri == f"{uri}/t/u"


def test_a_relative_path_is_made_absolute_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept = tables_of(StreamSettings(tables="some/tables"))
    monkeypatch.chdir("/")
    assert kept.uri == str(kept.local) == f"{tmp_path}/some/tables"
    assert str(kept / "rounds") == "some/tables/rounds", "people see what they wrote"


@pytest.mark.parametrize(
    "given",
    [
        "ftp://h/d",
        "s3:///d",
        "s3://KEY:hidden@b/d",
        "file://host/d",
        "",
    ],
)
def test_an_address_that_cannot_be_is_refused_with_what_was_expected(given: str) -> None:
    with pytest.raises(AddressError) as error:
        checkpoint_of(StreamSettings(checkpoint=given))
    check_wording(error.value)
    assert str(error.value).startswith("stream.checkpoint = ") and "hidden" not in str(error.value)


def test_options_are_given_once_and_reach_each_library_under_its_names() -> None:
    given = {
        "aws_endpoint": "http://127.0.0.1:9000",
        "aws_access_key_id": "me",
        "secret_access_key": "it",
        "aws_region": "eu-1",
        "fs.s3a.connection.maximum": "20",
    }
    native = {name: value for name, value in given.items() if not name.startswith("fs.")}
    assert object_store_options(given) == native and delta_options(given) == native | {
        "allow_http": "true"
    }
    assert hadoop_options(given) == {
        "fs.s3a.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.access.key": "me",
        "fs.s3a.secret.key": "it",
        "fs.s3a.endpoint.region": "eu-1",
        "fs.s3a.connection.maximum": "20",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }


def test_without_options_nothing_is_said_to_the_libraries_and_their_own_environment_counts() -> (
    None
):
    assert (object_store_options({}), delta_options({}), hadoop_options({})) == ({}, {}, {})
    assert hadoop_options({"azure_storage_account_key": "x", "google_service_account": "y"}) == {}
    assert Store.at("/x", {"aws_region": "eu-1"}).hadoop_options == {}, (
        "a folder of this machine needs none"
    )


def test_sparks_own_checkpoint_in_a_bucket_is_written_without_a_rename_and_found_as_the_tables_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket = Store.at("s3://b/x", {"fs.s3a.performance.flags": "none", "aws_region": "eu-1"})
    assert bucket.hadoop_options == {
        "fs.s3a.performance.flags": "none",
        "fs.s3a.input.stream.type": "classic",
        "fs.s3a.endpoint.region": "eu-1",
    }
    package, _, name = str(bucket.checkpoint_manager).rpartition(".")
    source = (CONF / "checkpoints.scala").read_text()
    assert f"package {package}\n" in source and f"class {name}(" in source
    assert Store.at("s3a://b/x").checkpoint_manager == bucket.checkpoint_manager
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    of_environment = Store.at("s3://b/x").hadoop_options
    assert (
        of_environment["fs.s3a.endpoint"] == "http://127.0.0.1:9000"
        and of_environment["fs.s3a.connection.ssl.enabled"] == "false"
    )
    for other in ("gs://b/x", "abfss://c@a.dfs.core.windows.net/x", "/x"):
        assert (
            Store.at(other).checkpoint_manager,
            "fs.s3a.performance.flags" in Store.at(other).hadoop_options,
        ) == (None, False)
