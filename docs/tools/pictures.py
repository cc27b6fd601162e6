"""`make pictures`: take the pictures of README.md, in docs/pictures.

It records what `lbctl demo` prints as demo.svg. Then it runs `lbctl demo --keep` until the load is
even, with the console and the report beside it, and photographs both with Chromium: console.png and
report.png. `--recording` takes only the first. Needs Java and the jars; for the others Chromium and
playwright, too.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from docs.tools.recording import COLUMNS, RecordedLine, render_recording

PROJECT = Path(__file__).resolve().parents[2]
PICTURES = PROJECT / "docs" / "pictures"
LBCTL = [sys.executable, "-c", "from lb_stream.cli.main import main; main()"]
WIDTH, HEIGHT = 1440, 960
"""CSS pixels of a picture; the page is cut off below."""
COLOURS = 128
"""Colours of a picture: more make it larger, not clearer."""
PATIENCE_S = 600.0
URL = re.compile(r"http://127\.0\.0\.1:\d+")
AFTERWARDS_S = 20.0
"""Time after the demo has balanced its cluster, so that charts show it."""


END = "balanced"
"""The last line of the recording; paths of this machine follow it."""


def main(arguments: list[str]) -> int:
    """Take the pictures. Exit code 2: wrong usage, or something that is needed is missing."""
    if arguments not in ([], ["--recording"]):
        print("usage: python -m docs.tools.pictures [--recording]", file=sys.stderr)
        return 2
    PICTURES.mkdir(exist_ok=True)
    if arguments:
        record_demo(PICTURES / "demo.svg")
        return 0
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("pictures: there is no Chromium: apt-get install chromium", file=sys.stderr)
        return 2
    record_demo(PICTURES / "demo.svg")
    with (
        tempfile.TemporaryDirectory() as name,
        _running(["demo", "--keep"], Path(name), "demo") as demo,
    ):
        folder = Path(name)
        _wait(demo, lambda: "second terminal" in _text(folder, "demo"), folder)
        time.sleep(AFTERWARDS_S)
        tables = ["--set", f"stream.tables={folder / '.lb' / 'demo' / 'tables'}"]
        command = [*LBCTL, "report", "--out", "report.html", *tables]
        subprocess.run(command, cwd=folder, env=_environment(), check=True)
        console_command = ["console", "--address", "127.0.0.1:0", *tables]
        with (
            _running(console_command, folder, "console") as console,
            sync_playwright() as driver,
        ):
            _wait(console, lambda: URL.search(_text(folder, "console")) is not None, folder)
            url = URL.findall(_text(folder, "console"))[0]
            options = ["--no-sandbox", "--disable-dev-shm-usage"]
            browser = driver.chromium.launch(executable_path=chromium, args=options)
            _take(browser, f"{url}/cluster?name=demo", PICTURES / "console.png")
            _take(browser, (folder / "report.html").as_uri(), PICTURES / "report.png")
            browser.close()
    return 0


def record_demo(file: Path) -> None:
    """Run the demo once, and write what it printed. Raises SystemExit if nothing was balanced."""
    begin = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as name,
        subprocess.Popen(
            [*LBCTL, "demo"],
            cwd=name,
            env=_environment() | {"COLUMNS": str(COLUMNS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        recorded = [
            RecordedLine(time.monotonic() - begin, line.rstrip()) for line in process.stdout
        ]
    texts = [line.text for line in recorded]
    if END not in texts:
        raise SystemExit("pictures: the demo did not balance:\n" + "\n".join(texts))
    kept = recorded[: texts.index(END) + 1]
    file.write_text(render_recording("make demo", kept), encoding="utf-8")
    print(f"{file.relative_to(PROJECT)}: {file.stat().st_size // 1000} kB")


def _take(browser: Browser, address: str, file: Path) -> None:
    """Photograph the top of a page, in few colours."""
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    page.goto(address)
    if page.locator("[data-chart]").count():
        page.locator(".uplot").first.wait_for(timeout=PATIENCE_S * 1000)
    page.wait_for_timeout(2_000)
    page.screenshot(path=file)
    page.close()
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(COLOURS).save(file, optimize=True)
    print(f"{file.relative_to(PROJECT)}: {file.stat().st_size // 1000} kB")


@contextmanager
def _running(command: list[str], folder: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run lbctl in a folder, its output in NAME.log; end it as Ctrl-C does."""
    with (folder / f"{name}.log").open("wb") as log:
        process = _start(command, folder, log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _start(command: list[str], folder: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    arguments = [*LBCTL, *command]
    return subprocess.Popen(
        arguments, cwd=folder, env=_environment(), stdout=log, stderr=subprocess.STDOUT
    )


def _environment() -> dict[str, str]:
    """Return the environment in which this checkout's code and jars are found."""
    jars = os.environ.get("LB_JARS_DIR", str(PROJECT / ".jars"))
    return os.environ | {"PYTHONPATH": str(PROJECT), "LB_JARS_DIR": jars, "PYTHONUNBUFFERED": "1"}


def _text(folder: Path, name: str) -> str:
    return (folder / f"{name}.log").read_text(errors="replace")


def _wait(process: subprocess.Popen[bytes], is_ready: Callable[[], bool], folder: Path) -> None:
    """Wait until a program is ready. Raises SystemExit with the logs when it ends or takes long."""
    until = time.monotonic() + PATIENCE_S
    while not is_ready():
        if process.poll() is not None or time.monotonic() > until:
            logs = [path.read_text(errors="replace") for path in sorted(folder.glob("*.log"))]
            raise SystemExit("pictures: the program did not get ready:\n" + "\n".join(logs))
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
