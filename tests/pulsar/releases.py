"""The release of Pulsar that the tests with a real cluster start: PULSAR_VERSION of the
environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lb_stream.core.model.releases import parse_version
from lb_stream.io.local.java import JavaUnfit, find_java

DEFAULT_VERSION = "5.0.1"
"""The long-term release, which new clusters are installed with; its balancer's defaults are its own,
so that no older release stands for it."""
JAVA_HOMES = Path("/usr/lib/jvm")


@dataclass(frozen=True)
class Release:
    """A version of Pulsar, as 5.0.1, and what its tests need to know of it."""

    version: str

    @property
    def profile(self) -> str:
        """The profile that decides as this release does. Raises ValueError if there is none."""
        parsed = parse_version(self.version)
        if parsed.profile is None or parsed.note:
            raise ValueError(f"PULSAR_VERSION: {parsed.note}; expected one as {DEFAULT_VERSION}")
        return parsed.profile

    @property
    def oldest_java(self) -> int:
        """The major version of the oldest Java that its brokers start with."""
        return 21 if parse_version(self.version).numbers >= (5,) else 17

    def java_home(
        self, env: Mapping[str, str] = os.environ, homes: Path = JAVA_HOMES
    ) -> Path | None:
        """The home of the first Java that is new enough: that of the environment, else of `homes`;
        None if there is none."""
        for settings in (env, *({"JAVA_HOME": str(home)} for home in sorted(homes.glob("*")))):
            try:
                java = find_java(settings)
            except JavaUnfit:
                continue
            if java.major >= self.oldest_java:
                return java.path.parent.parent
        return None

    def class_path(self, folder: Path) -> Path:
        """The file in which the class path of this version is kept: Maven takes a while to find
        it."""
        return folder / f"pulsar-{self.version}.classpath"


RELEASE = Release(os.environ.get("PULSAR_VERSION") or DEFAULT_VERSION)
