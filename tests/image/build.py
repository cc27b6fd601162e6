"""Build both images and try them: `python -m tests.image.build`; the last line is one JSON object.

Exit codes: 1: an image is too large, or does not do what it must; 2: something is missing here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import lb_stream
from lb_stream.io.local.java import JavaUnfit, find_java
from tests.image.check import (
    CheckError,
    check_demo,
    check_executors,
    check_identity,
    check_pods,
    trial,
)
from tests.image.engine import (
    ADVICE,
    Engine,
    EngineError,
    find_engine,
    import_base,
    slim_debian,
)
from tests.image.settings import build_secrets, proxies
from tests.release.image_bill import render_image_bill

PROJECT = Path(__file__).parents[2]
PUBLISHED_BASE = "debian:12-slim"
MADE_BASE = "localhost/lb-stream-base:bookworm"
SUITE = "bookworm"
BILLS = PROJECT / "build" / "image"


@dataclass(frozen=True)
class Image:
    """An image of this project, and the most bytes that it may have."""

    name: str
    file: str
    limit_bytes: float

    @property
    def tag(self) -> str:
        """Return its whole name, as pages and the chart have it."""
        return f"{self.name}:{lb_stream.__version__}"


JOB = Image("lb-stream", "conf/deploy/Dockerfile", 1e9)
AGENT = Image("lb-stream-agent", "conf/deploy/Dockerfile.agent", 220e6)
IMAGES = (JOB, AGENT)


def make_base(engine: Engine) -> str:
    """Make a base of Debian's packages if it isn't there; return its name."""
    if not engine.has(MADE_BASE):
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder, "root.tar")
            subprocess.run(slim_debian(SUITE, archive), check=True)
            import_base(engine, archive, MADE_BASE)
    return MADE_BASE


def build(engine: Engine, base: str) -> dict[str, float]:
    """Build both images; return the seconds that each took."""
    try:
        truststore = find_java().path.resolve().parents[1] / "lib" / "security" / "cacerts"
    except JavaUnfit:
        truststore = None
    git = ["git", "-C", str(PROJECT), "rev-parse", "HEAD"]
    revision = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    arguments = {"BASE": base, "REVISION": revision, **proxies(os.environ)}
    took = {}
    with tempfile.TemporaryDirectory() as folder:
        secrets = build_secrets(Path(folder), os.environ, truststore)
        for image in IMAGES:
            begin = time.monotonic()
            engine.build(Path(image.file), image.tag, arguments, secrets)
            took[image.name] = time.monotonic() - begin
    return took


def find_faults(image: Image, found: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with an image by what the engine knows of it: its size, its labels."""
    faults = []
    if found["Size"] > image.limit_bytes:
        sizes = f"{found['Size'] / 1e6:.0f} MB, allowed are {image.limit_bytes / 1e6:.0f} MB"
        faults.append(f"{image.tag}: {sizes}")
    prefix = "org.opencontainers.image."
    expected = {
        "title": image.name,
        "version": lb_stream.__version__,
        "licenses": "Apache-2.0",
    }
    labels = found["Config"].get("Labels") or {}
    for name, value in expected.items():
        if labels.get(prefix + name) != value:
            faults.append(f"{image.tag}: label {prefix}{name} is {labels.get(prefix + name)!r}")
    if found["Config"].get("User") != "10001":
        faults.append(f"{image.tag}: its user is {found['Config'].get('User')!r}, not 10001")
    return faults


def write_bills(engine: Engine, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the bill of materials of each image to build/image. Raises EngineError, ValueError."""
    BILLS.mkdir(parents=True, exist_ok=True)
    for image in IMAGES:
        known = found[image.name]
        epoch = int(datetime.fromisoformat(known["Created"]).timestamp())
        with engine.files(image.tag) as files:
            bill = render_image_bill(files, image.name, lb_stream.__version__, known["Id"], epoch)
        path = BILLS / f"{image.name}-{lb_stream.__version__}.cdx.json"
        path.write_text(bill, encoding="utf-8")
        say(f"{path.relative_to(PROJECT)}: what is in the image, as CycloneDX")


def size_table(sizes: Mapping[str, int]) -> str:
    """Return the sizes as a table. They are those of all layers, uncompressed."""
    lines = [f"{'image':24} {'MB':>7} {'limit':>7}   (all layers, uncompressed)"]
    for image in IMAGES:
        size = sizes[image.name] / 1e6
        lines.append(f"{image.tag:24} {size:7.1f} {image.limit_bytes / 1e6:7.0f}")
    return "\n".join(lines)


def try_images(engine: Engine) -> dict[str, Any]:
    """Run both images as the chart does; return figures. Raises CheckError."""
    figures: dict[str, Any] = {}
    with trial(engine) as made:
        say("user 10001, a read-only root")
        check_identity(made, JOB.tag)
        check_identity(made, AGENT.tag)
        say("lbctl demo: Kafka, the job, simulated brokers")
        figures["demo"] = check_demo(made, JOB.tag)
        say("classes of executors on Kubernetes")
        check_executors(made, JOB.tag)
        say("the chart's pods: job, agent, console, notify, upkeep")
        figures["ready_s"] = check_pods(made, JOB.tag, AGENT.tag)
    return figures


def say(text: str) -> None:
    """Say what is under way, on stderr."""
    print(f"image: {text}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Build, measure and try the images; return the exit code."""
    parser = argparse.ArgumentParser(prog="make image", description=__doc__)
    parser.add_argument("--base", default=PUBLISHED_BASE, help="the image to begin with")
    parser.add_argument(
        "--make-base", action="store_true", help="make that image with mmdebstrap, from packages"
    )
    parser.add_argument("--check-only", action="store_true", help="try images that were built")
    options = parser.parse_args(arguments)
    engine = find_engine()
    if engine is None:
        print(ADVICE, file=sys.stderr)
        return 2
    if options.make_base and shutil.which("mmdebstrap") is None:
        print("image: --make-base needs mmdebstrap: install it", file=sys.stderr)
        return 2
    say(f"by {engine.name}")
    figures: dict[str, Any] = {"engine": engine.name}
    try:
        if not options.check_only:
            base = make_base(engine) if options.make_base else options.base
            if not engine.has(base) and engine.call("pull", base, check=False).returncode != 0:
                hint = "name another with --base, or make one: make image ARGS=--make-base"
                print(f"image: the base {base} can't be pulled: {hint}", file=sys.stderr)
                return 2
            figures["build_s"] = build(engine, base)
        found = {image.name: engine.inspect(image.tag) for image in IMAGES}
        figures["bytes"] = {name: image["Size"] for name, image in found.items()}
        print(size_table(figures["bytes"]), flush=True)
        write_bills(engine, found)
        faults = [fault for image in IMAGES for fault in find_faults(image, found[image.name])]
        figures |= try_images(engine)
    except (EngineError, CheckError) as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    for fault in faults:
        print(f"image: {fault}", file=sys.stderr)
    print(json.dumps(figures), flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
