"""Finds the jars that `lbctl jars fetch` has put into `.jars/{spark,broker}` and `.jars/s3`.

conf/ivy.xml names them; lb_stream.kit.fetch_jars fetches them.
"""

from __future__ import annotations

import hashlib
import os
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from lb_stream.settings.files import CONF, find_home

CONFIGURATIONS = ("spark", "broker")
EXTRAS = ("s3",)
"""Configurations that are fetched on request, and kept up to date from then on."""
COMPILED_NAME = "lb-checkpoints"
"""The project's own jar, which a checkpoint in a bucket needs."""


class JarsError(RuntimeError):
    """Jars are missing, can't be fetched or differ from the lock. The text says what to do."""


@dataclass(frozen=True)
class JarsLock:
    """The files that fix the jars: their names, where they come from, and their SHA-256."""

    conf: Path = CONF

    @property
    def ivy(self) -> Path:
        """Return the file that names the jars."""
        return self.conf / "ivy.xml"

    @property
    def settings(self) -> Path:
        """Return the file that says where jars are fetched from."""
        return Path(os.environ.get("LB_IVY_SETTINGS") or self.conf / "ivysettings.xml")

    @property
    def hashes(self) -> Path:
        """Return the file with each jar's SHA-256."""
        return self.conf / "jars.sha256"

    @property
    def source(self) -> Path:
        """Return the Scala source of COMPILED_NAME."""
        return self.conf / "checkpoints.scala"

    def modules(self) -> dict[str, list[str]]:
        """Return configuration → its jars' file names, as ivy.xml lists them."""
        listed: dict[str, list[str]] = {
            configuration: [] for configuration in (*CONFIGURATIONS, *EXTRAS)
        }
        for dependency in ET.parse(self.ivy).iter("dependency"):
            configuration = dependency.attrib["conf"].split("->")[0]
            listed[configuration].append(
                f"{dependency.attrib['name']}-{dependency.attrib['rev']}.jar"
            )
        return listed

    def expected(self) -> dict[str, str]:
        """Return `<configuration>/<jar>` → SHA-256, from jars.sha256 (sha256sum's format)."""
        lines = self.hashes.read_text().splitlines() if self.hashes.exists() else []
        return {name: digest for digest, name in (line.split(maxsplit=1) for line in lines if line)}

    def stamp(self) -> str:
        """Return a text that changes with the lock's content."""
        content = b"".join(path.read_bytes() for path in (self.ivy, self.hashes) if path.exists())
        return hashlib.sha256(content).hexdigest()


def default_folder() -> Path:
    """Return `$LB_JARS_DIR`, else `.jars` in the clone or, without one, in the current folder."""
    return Path(os.environ.get("LB_JARS_DIR") or find_home() / ".jars")


def jar_paths(configuration: str, folder: Path | None = None) -> list[Path]:
    """Return the jars of one configuration ("spark", "broker" or "s3"), sorted by name.

    Raises JarsError when those that conf/ivy.xml names are not all there.
    """
    if configuration not in (*CONFIGURATIONS, *EXTRAS):
        known = ", ".join((*CONFIGURATIONS, *EXTRAS))
        raise ValueError(f"configuration = {configuration!r}: expected one of {known}")
    folder = folder or default_folder()
    lock = JarsLock()
    paths = [folder / configuration / name for name in sorted(lock.modules()[configuration])]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        option = f" --with {configuration}" if configuration in EXTRAS else ""
        raise JarsError(
            f"{len(missing)} of {len(paths)} {configuration} jars are missing in {folder} "
            f"({missing[0]}, …): run `lbctl jars fetch{option}`"
        )
    return paths


def spark_jars(folder: Path | None = None) -> list[Path]:
    """Return all jars of a Spark session: its own, and those of each extra that was fetched.

    Raises JarsError when one of them is missing.
    """
    extras = fetched_extras(folder)
    paths = [
        path for configuration in ("spark", *extras) for path in jar_paths(configuration, folder)
    ]
    if "s3" in extras:
        compiled = compiled_jar((folder or default_folder()) / "s3", JarsLock().source)
        if not compiled.exists():
            raise JarsError(f"{compiled} is missing: run `lbctl jars fetch --with s3`")
        paths.append(compiled)
    return paths


def fetched_extras(folder: Path | None = None) -> tuple[str, ...]:
    """Return the extras that were fetched into this folder."""
    return tuple(extra for extra in EXTRAS if ((folder or default_folder()) / extra).is_dir())


def compiled_jar(folder: Path, source: Path) -> Path:
    """Return the path of COMPILED_NAME in `folder`; it differs by source and by Spark's version."""
    digest = hashlib.sha256(source.read_bytes() + version("pyspark").encode()).hexdigest()
    return folder / f"{COMPILED_NAME}-{digest[:12]}.jar"
