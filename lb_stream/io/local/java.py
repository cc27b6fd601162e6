"""Finds the Java that Spark and the embedded broker run on.

It needs only the standard library, so that set-up can call it before any package is installed:
`python3 -I lb_stream/io/local/java.py` prints the path of a Java that fits. If there is none, one
line on stderr says what was found and what to install, and the exit code is 2.
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
    """A Java on this machine."""

    path: Path
    version: str

    @property
    def major(self) -> int:
        """Return the major version."""
        return major_version(self.version)


def major_version(version: str) -> int:
    """Return 17 for "17.0.15", "17" or "17-ea", and 8 for "1.8.0_422".

    Raises ValueError for a text without a number.
    """
    numbers = re.findall(r"\d+", version)
    if not numbers:
        raise ValueError(f"not a Java version: {version!r}")
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


def find_java(env: Mapping[str, str] = os.environ) -> Java:
    """Return the Java that Spark's scripts run: `$JAVA_HOME/bin/java`, or `java` on PATH.

    Raises JavaUnfit, also if JAVA_HOME has an unfit Java and PATH a better one: Spark would run the
    one of JAVA_HOME.
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
    # The line reads: openjdk version "17.0.15" 2025-04-15. Some builds print "Picked up …" before.
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
    """Print the path of a Java that fits, and return the exit code."""
    try:
        java = find_java()
    except JavaUnfit as error:
        print(error, file=sys.stderr)
        return 2
    print(java.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
