"""The files that come with the package, and the folder that its own relative files are in."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

PACKAGE = Path(str(files("lb_stream")))

CONF = (PACKAGE / "conf").resolve()
"""The settings that ship: in a clone the folder conf, to which lb_stream/conf links; in an installed package a copy of its files."""


def home() -> Path:
    """The clone that this package is part of. Installed from a wheel: the current folder."""
    clone = PACKAGE.parent
    return clone if (clone / "pyproject.toml").is_file() else Path.cwd()
