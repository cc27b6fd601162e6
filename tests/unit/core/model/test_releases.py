"""Versions of brokers, as they report them, and the releases that they belong to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.contracts.balancer import PROFILES
from lb_stream.core.model.releases import KNOWN_RELEASES, parse_version


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("4.0.7", "4.0"),
        ("4.0.7-SNAPSHOT", "4.0"),
        ("4.0", "4.0"),
        ("4.0.7.3", "4.0"),
        ("4.2.0-candidate-1", "4.2"),
        ("4.2.4+build.7", "4.2"),
        ("5.0.1", "5.0"),
        ("5.0.1.rc1", "5.0"),
    ],
)
def test_a_version_of_a_known_release_leads_to_its_profile(text: str, release: str) -> None:
    version = parse_version(text)
    assert (version.release, version.profile, version.note) == (release, f"pulsar-{release}", "")


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("2.10.3", "4.0"),
        ("3.1.2.5", "4.0"),
        ("4.1.0", "4.0"),
        ("4.3.0", "4.2"),
        ("4.10.0", "4.2"),
        ("5.1.0", "5.0"),
        ("6.3", "5.0"),
        ("10.0.0", "5.0"),
    ],
)
def test_another_version_leads_to_the_nearest_older_release_and_a_note(
    text: str, release: str
) -> None:
    version = parse_version(text)
    assert version.release == release
    assert text in version.note and release in version.note


@pytest.mark.parametrize(
    "text", ["", "banana", "5", "v5.0.1", "5.x", "5.0rc1", "9" * 5000 + ".0", "٥.٠", "-5.0"]
)
def test_what_is_no_version_leads_to_no_release_and_a_note(text: str) -> None:
    version = parse_version(text)
    assert version.release is None and version.profile is None
    assert "is no version" in version.note and len(version.note) < 100


def test_each_known_release_has_a_profile() -> None:
    assert {f"pulsar-{release}" for release in KNOWN_RELEASES} <= set(PROFILES)


@given(st.text())
def test_any_text_is_a_version_or_none(text: str) -> None:
    version = parse_version(text)
    assert (version.release is None) == (version.numbers == ())
