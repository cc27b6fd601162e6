"""Finds the Java that Spark and the embedded broker run on.

Standard library only, so that set-up can call it before anything is installed: `python3 -I
lb_stream/io/local/java.py` prints the path of a fit Java; otherwise one line on stderr says what
was found and what to install, exit code 2.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

OLDEST, NEWEST = 17, 25  # Spark 4.2's documentation: "runs on Java 17/21/25"
ADVICE = (
    f"Spark 4.2 needs Java {OLDEST} to {NEWEST}: install one (Debian, Ubuntu: apt-get install "
    "openjdk-17-jre-headless; "
    "Fedora: dnf install java-21-openjdk-headless; macOS: brew install openjdk@17) and put it on "
    "PATH or set JAVA_HOME"
)


class JavaUnfit(RuntimeError):
    """Java is missing, does not run, or is of a version that Spark 4.2 does not support.

    The text says what to do.
    """


@dataclass(frozen=True)
class Java:
    path: Path
    version: str

    @property
    def major(self) -> int:
        return major_version(self.version)


def major_version(version: str) -> int:
    """17 for "17.0.15", "17" or "17-ea"; 8 for "1.8.0_422". ValueError when there is no number."""
    numbers = re.findall(r"\d+", version)
    if not numbers:
        raise ValueError(f"not a Java version: {version!r}")
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


def find_java(env: Mapping[str, str] = os.environ) -> Java:
    """The Java that Spark's own scripts would run: $JAVA_HOME/bin/java when JAVA_HOME is set, else
    `java` on PATH.

    Raises JavaUnfit. A JAVA_HOME that is set but unfit is an error even if PATH has a better one:
    Spark would use it.
    """
    home = env.get("JAVA_HOME", "")
    found = (
        str(Path(home) / "bin" / "java")
        if home
        else shutil.which("java", path=env.get("PATH", os.defpath))
    )
    origin = f"JAVA_HOME={home}" if home else "java on PATH"
    if not found:
        raise JavaUnfit(f"No Java found (JAVA_HOME is not set, no java on PATH). {ADVICE}.")
    try:
        java = Java(Path(found), _version_of(found))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise JavaUnfit(
            f"{origin}: {found} does not run ({_one_line(error)}). {ADVICE}."
        ) from error
    if not OLDEST <= java.major <= NEWEST:
        raise JavaUnfit(f"Found Java {java.version} ({origin}: {found}). {ADVICE}.")
    return java


def _version_of(java: str) -> str:
    # The first line reads: openjdk version "17.0.15" 2025-04-15; some builds print "Picked up …"
    # lines before it.
    result = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=30, check=True
    )
    match = re.search(r'version "([^"]+)"', result.stderr + result.stdout)
    if match is None:
        raise ValueError("it prints no version")
    major_version(match[1])
    return match[1]


def _one_line(error: Exception) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split())


def main() -> int:
    try:
        java = find_java()
    except JavaUnfit as error:
        print(error, file=sys.stderr)
        return 2
    print(java.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
