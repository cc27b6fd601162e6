"""The profile that follows from the versions of a cluster's brokers, unless a setting names it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lb_stream.core.model.releases import PulsarVersion, parse_version

UNKNOWN = "default"
"""The profile of a cluster whose brokers' versions are not known."""
MAX_VERSIONS = 20
"""A cluster's memory has this many versions at most, the oldest ones."""
LONGEST_VERSION = 40
"""Characters of a version that are remembered."""


@dataclass(frozen=True, slots=True)
class FollowedProfile:
    """The profile in force where no setting names another, and the one that is to follow it.

    A change counts `profile_change_delay_ms` after `since_ms` (ms since the epoch).
    """

    profile: str = UNKNOWN
    version: str = ""  # the version that it follows; empty: none was known
    versions: Mapping[str, int] = field(default_factory=dict)  # version → brokers that report it
    next_profile: str = ""  # of the present versions, where it is another; empty: it isn't
    next_version: str = ""
    since_ms: int = 0  # since when the versions imply the next profile
    problem: str = ""  # why a profile does not count although it should; empty: it counts

    @property
    def origin(self) -> str:
        """Describe where the profile in force comes from; empty: no version is known."""
        return f"follows the brokers' version {self.version}" if self.version else ""


def find_oldest(versions: Iterable[str]) -> PulsarVersion | None:
    """Return the oldest of the versions that can be read; None: none can be."""
    known = [version for version in map(parse_version, versions) if version.release is not None]
    return min(known, key=lambda version: (version.numbers, version.text), default=None)


def count_versions(reported: Iterable[str]) -> dict[str, int]:
    """Return version → the number of brokers that report it, the oldest first.

    "" stands for brokers that report none. Empty where no broker reports a version.
    """
    counts: dict[str, int] = {}
    for given in reported:
        text = " ".join(given.split())
        counts[text] = counts.get(text, 0) + 1
    shown: dict[str, int] = {}
    for text in sorted(counts, key=_order)[:MAX_VERSIONS]:
        short = text[:LONGEST_VERSION]
        shown[short] = shown.get(short, 0) + counts[text]
    return {} if set(shown) <= {""} else shown


def _order(text: str) -> tuple[bool, tuple[int, ...], str]:
    """Return the key by which versions are sorted: those that can't be read are the last."""
    numbers = parse_version(text).numbers
    return not numbers, numbers, text


# --- what people are shown ---


def describe_versions(versions: Mapping[str, int]) -> str:
    """Describe how many brokers run which version: `2 of 4.0.7, 1 of 5.0.1`; empty: not known.

    The oldest comes first, whatever the order in a memory that was read from the log.
    """
    if not versions:
        return ""
    shown = [
        f"{versions[version]} of {version if parse_version(version).numbers else repr(version)}"
        for version in sorted(filter(None, versions), key=_order)
    ]
    if "" in versions:
        shown.append(f"{versions['']} without a version")
    return ", ".join(shown)


def describe_doubts(followed: FollowedProfile, chosen: str | None) -> list[str]:
    """Describe what is unusual about the brokers' versions, a sentence for each.

    `chosen`: the profile that a setting names; None: none does.
    """
    versions, found = followed.versions, []
    oldest = find_oldest(versions)
    if len(versions) > 1:
        counts = "" if chosen or oldest is None else ": the profile is that of the oldest one"
        found.append(f"brokers differ in their version ({describe_versions(versions)}){counts}")
    found += [
        version.note for version in map(parse_version, filter(None, versions)) if version.note
    ]
    if chosen and chosen.startswith("pulsar-") and oldest and chosen != oldest.profile:
        found.append(
            f"profile = {chosen} is set, and that of the brokers' version {oldest.text} is "
            f"{oldest.profile}"
        )
    if followed.problem and not chosen:
        found.append(followed.problem)
    return found
