"""The helpers of the tests with a real cluster: which release they start, and how they call the
cluster's script."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lb_stream.contracts.balancer import PROFILES
from tests.pulsar.releases import DEFAULT_VERSION, Release
from tests.pulsar.testbed import PROJECT, Bed, started_bed

SCRIPT = """\
echo "$@" >>"$RUN_DIR/commands"
env >"$RUN_DIR/environment"
case $1 in start) exit "${START_FAILS:-0}";; esac
"""


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A folder with a cluster.sh that starts nothing and writes down what it is given."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "cluster.sh").write_text(SCRIPT)
    return folder


def fake_java(home: Path, version: str) -> Path:
    """A Java home whose java says that it is of this version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("version", "profile", "oldest_java"),
    [
        ("4.0.7", "pulsar-4.0", 17),
        ("4.0.11", "pulsar-4.0", 17),
        ("4.2.4", "pulsar-4.2", 17),
        ("5.0.1", "pulsar-5.0", 21),
        ("5.0.0-M1", "pulsar-5.0", 21),
    ],
)
def test_a_release_has_its_profile_and_the_java_that_it_needs(
    version: str, profile: str, oldest_java: int
) -> None:
    release = Release(version)
    assert (release.profile, release.oldest_java) == (profile, oldest_java)
    assert profile in PROFILES


def test_the_release_that_is_started_by_default_has_a_profile_and_is_named_by_make_help() -> None:
    assert Release(DEFAULT_VERSION).profile in PROFILES
    lines = (PROJECT / "Makefile").read_text().splitlines()
    (target,) = (line for line in lines if line.startswith("test-pulsar:"))
    assert f"Pulsar {DEFAULT_VERSION}" in target


@pytest.mark.parametrize("version", ["", "5", "five.0.1", "9.9.9", "4.1.0"])
def test_a_version_without_a_profile_is_an_error_that_names_the_variable(version: str) -> None:
    with pytest.raises(ValueError, match="PULSAR_VERSION"):
        _ = Release(version).profile


def test_each_release_keeps_a_class_path_of_its_own(tmp_path: Path) -> None:
    kept = {Release(version).class_path(tmp_path) for version in ("4.0.7", "4.2.4", "5.0.1")}
    assert len(kept) == 3 and {path.parent for path in kept} == {tmp_path}


def test_the_first_java_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    homes = tmp_path / "jvm"
    old = fake_java(homes / "a-17", "17.0.15")
    new = fake_java(homes / "b-21", "21.0.2")
    newest = fake_java(homes / "c-25", "25")
    env = {"JAVA_HOME": str(old), "PATH": os.defpath}
    assert Release("4.0.7").java_home(env, homes) == old
    assert Release("5.0.1").java_home(env, homes) == new
    assert Release("5.0.1").java_home({"JAVA_HOME": str(newest)}, homes) == newest
    assert Release("5.0.1").java_home(env, tmp_path / "none") is None


def test_the_script_is_given_the_release_the_ports_and_the_settings(
    scripts: Path, tmp_path: Path
) -> None:
    given = {"statsUpdateFrequencyInSecs": "10"}
    with started_bed(scripts, tmp_path / "bed", "extensible", 31000, given, {"SHEDDER": "x.Y"}):
        pass
    lines = (tmp_path / "bed" / "environment").read_text().splitlines()
    environment = dict(line.split("=", 1) for line in lines if "=" in line)
    release = Bed(scripts, tmp_path, 31000, "extensible").release
    assert environment["PULSAR_VERSION"] == release.version
    assert environment["CLASSPATH_FILE"] == str(release.class_path(PROJECT / ".make"))
    assert (environment["BASE_PORT"], environment["SHEDDER"]) == ("31000", "x.Y")
    settings = (tmp_path / "bed" / "extra.conf").read_text().splitlines()
    assert {"statsUpdateFrequencyInSecs=10", "loadBalancerSheddingEnabled=false"} <= set(settings)
    assert (tmp_path / "bed" / "commands").read_text() == "start extensible\nstop\n"


def test_a_cluster_that_does_not_start_is_stopped(scripts: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match=r"cluster\.sh start modular"),
        started_bed(scripts, tmp_path / "bed", environment={"START_FAILS": "1"}),
    ):
        pass
    assert (tmp_path / "bed" / "commands").read_text() == "start modular\nstop\n"


def test_brokers_have_the_addresses_that_the_script_gives_them(tmp_path: Path) -> None:
    bed = Bed(tmp_path, tmp_path, 31000, "modular")
    assert bed.names == ["127.0.0.1:31201", "127.0.0.1:31202", "127.0.0.1:31203"]
    assert bed.service_url == "pulsar://127.0.0.1:31101,127.0.0.1:31102,127.0.0.1:31103"
    assert bed.admin(2).settings.broker == bed.names[1]
