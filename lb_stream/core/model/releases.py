"""Releases of Pulsar: which of them a version belongs to, and how each names things.

Names are those of topics, of namespaces, and of the namespaces that belong to a broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Release = Literal["any", "4.0", "4.2", "5.0"]

ANYTHING = r"[^/]+"
_HOST_PORT = r"[^:/]+:\d+"


@dataclass(frozen=True, slots=True)
class NameRules:
    """What a release takes for a topic, for a namespace, and for one of a broker's own bundles.

    `system_bundle`: a regular expression that the names of heartbeat and SLA-monitor bundles begin
    with. `domains`: what stands before `://` in a topic's name. `with_cluster`: names may have a
    cluster between tenant and namespace. `part`: matches a tenant, a cluster or a namespace.
    """

    system_bundle: str
    domains: tuple[str, ...]
    with_cluster: bool
    part: str = r"[-=:.\w]+"

    def is_namespace(self, name: str) -> bool:
        """Return whether the name is that of a namespace."""
        cluster = rf"({self.part}/)?" if self.with_cluster else ""
        return re.fullmatch(rf"{self.part}/{cluster}{self.part}", name, re.ASCII) is not None

    def describe_namespace(self) -> str:
        """Describe what a namespace's name may not have, to end a sentence."""
        letters = "of letters, digits and any of -=:._" if self.part != ANYTHING else "none empty"
        return f"{letters}{'' if self.with_cluster else '; without a cluster'}"


_TWO_DOMAINS = ("persistent", "non-persistent")
_FOUR_DOMAINS = (*_TWO_DOMAINS, "topic", "segment")

NAME_RULES: Mapping[Release, NameRules] = {
    "any": NameRules(
        rf"^(sla-monitor|pulsar)/([^/]+/)?{_HOST_PORT}/0x",
        _FOUR_DOMAINS,
        with_cluster=True,
        part=ANYTHING,
    ),
    "4.0": NameRules(
        rf"^(sla-monitor/[^/]+/|pulsar/([^/]+/)?){_HOST_PORT}/0x", _TWO_DOMAINS, with_cluster=True
    ),
    "4.2": NameRules(rf"^(sla-monitor|pulsar)/{_HOST_PORT}/0x", _TWO_DOMAINS, with_cluster=False),
    "5.0": NameRules(rf"^(sla-monitor|pulsar)/{_HOST_PORT}/0x", _FOUR_DOMAINS, with_cluster=False),
}
"""Release → its names; `any` takes what one of them takes."""


# --- versions ---

KnownRelease = Literal["4.0", "4.2", "5.0"]
"""A release whose decisions a profile makes: `pulsar-4.0`, `pulsar-4.2`, `pulsar-5.0`."""
KNOWN_RELEASES: tuple[KnownRelease, ...] = ("4.0", "4.2", "5.0")
"""The oldest first."""

_NUMBERS = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})+(?=$|[-+_.\s])")
_MAX_SHOWN = 40


@dataclass(frozen=True, slots=True)
class PulsarVersion:
    """A broker's version, and the release whose profile fits it.

    `numbers`: the version's own, for comparison; empty where it can't be read. `release`: None
    where it can't be read. `note`: why the profile is another release's; empty: it is the
    version's own.
    """

    text: str
    numbers: tuple[int, ...]
    release: KnownRelease | None
    note: str

    @property
    def profile(self) -> str | None:
        """Return the name of the release's profile; None: no release is known."""
        return None if self.release is None else f"pulsar-{self.release}"


def parse_version(text: str) -> PulsarVersion:
    """Return the release that a version such as `5.0.1` or `4.2.0-SNAPSHOT` belongs to.

    A version between or after the known releases counts as the nearest older one, a version before
    them as the oldest. Anything may follow the numbers. Never raises. Results are cached, except
    those of long texts: a broker may report any.
    """
    return _parse_cached(text) if len(text) <= _MAX_SHOWN else _parse(text)


def _parse(text: str) -> PulsarVersion:
    """Return the release of a version, as `parse_version` does."""
    shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
    match = _NUMBERS.match(text)
    if match is None:
        return PulsarVersion(text, (), None, f"{shown!r} is no version such as 5.0.1")
    numbers = tuple(map(int, match.group().split(".")))
    release, known = KNOWN_RELEASES[0], False
    for candidate in KNOWN_RELEASES:
        first = tuple(map(int, candidate.split(".")))
        if numbers[:2] >= first:
            release, known = candidate, numbers[:2] == first
    if known:
        return PulsarVersion(text, numbers, release, "")
    is_older = numbers[:2] < tuple(map(int, KNOWN_RELEASES[0].split(".")))
    nearest = "oldest release with a profile" if is_older else "nearest older release with one"
    note = f"{shown!r} has no profile of its own: {release} is the {nearest}"
    return PulsarVersion(text, numbers, release, note)


_parse_cached = lru_cache(maxsize=1_024)(_parse)
