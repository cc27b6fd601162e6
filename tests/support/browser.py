"""Chromium, for tests of pages: Debian's package, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright

CHROMIUM = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
PATIENCE_MS = 180_000
"""How long a busy machine may take; nothing waits for longer than it must."""

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("LB_NEEDS_CHROMIUM"),
    reason="no Chromium here (Debian: apt-get install chromium)",
)
"""Skipped without one; where LB_NEEDS_CHROMIUM is set, as .ci/run does, that is a failure."""


def launched(driver: Playwright) -> Browser:
    """A browser without a screen."""
    assert CHROMIUM is not None, (
        "LB_NEEDS_CHROMIUM is set, and there is no Chromium: apt-get install chromium"
    )
    return driver.chromium.launch(
        executable_path=CHROMIUM,
        args=["--no-sandbox", "--disable-dev-shm-usage"],
        timeout=PATIENCE_MS,
    )


PASSWORD = "correct horse"
SHOTS = os.environ.get("LB_SCREENSHOTS")


def shoot(page: Page, name: str) -> None:
    """A picture to be looked at, where one is wanted."""
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)
