"""Retrieves the jars that conf/ivy.xml names, with the Ivy inside PySpark, into `.jars/{spark,broker}`, and on demand into `.jars/s3`.

`python -m lb_stream.io.local.jars` does it once and says so; run again it does nothing. Jars that arrived complete are kept in
`.jars/cache`, so an interrupted run goes on where it stopped. Every jar must have the SHA-256 of conf/jars.sha256. To those of s3 comes
one of our own, which is compiled here (compiled.py).
"""

import hashlib
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from lb_stream.io.local.compiled import (
    SOURCE,
    CompileError,
    classes_of_pyspark,
    compile_jar,
    compiled_jar,
)
from lb_stream.io.local.java import JavaUnfit, find_java
from lb_stream.io.local.locks import locked
from lb_stream.io.local.resources import CONF, home

CONFIGURATIONS = ("spark", "broker")
EXTRAS = ("s3",)
"""Configurations that are retrieved where they are asked for, and kept up to date from then on."""
Progress = Callable[[str, int, int], None]  # what is going on, steps done, steps in all


class JarsError(RuntimeError):
    """The jars are not there, not retrievable or not the ones that were locked. The text says what to do."""


@dataclass(frozen=True)
class Lock:
    """The files that say which jars: what to retrieve (ivy.xml), from where (ivysettings.xml), and what must arrive (jars.sha256)."""

    conf: Path = CONF

    @property
    def ivy(self) -> Path:
        return self.conf / "ivy.xml"

    @property
    def settings(self) -> Path:
        return Path(os.environ.get("LB_IVY_SETTINGS") or self.conf / "ivysettings.xml")

    @property
    def hashes(self) -> Path:
        return self.conf / "jars.sha256"

    @property
    def source(self) -> Path:
        """What of ours is compiled for a checkpoint in a bucket."""
        return self.conf / SOURCE

    def modules(self) -> dict[str, list[str]]:
        """Configuration → its jars' file names, as ivy.xml lists them."""
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
        """`<configuration>/<jar>` → SHA-256, from jars.sha256 (the format of sha256sum)."""
        lines = self.hashes.read_text().splitlines() if self.hashes.exists() else []
        return {name: digest for digest, name in (line.split(maxsplit=1) for line in lines if line)}

    def stamp(self) -> str:
        """Changes with the lock's content."""
        content = b"".join(path.read_bytes() for path in (self.ivy, self.hashes) if path.exists())
        return hashlib.sha256(content).hexdigest()


def default_folder() -> Path:
    """`$LB_JARS_DIR`; or `.jars` in the clone or, installed from a wheel, in the current folder."""
    return Path(os.environ.get("LB_JARS_DIR") or home() / ".jars")


def jar_paths(configuration: str, folder: Path | None = None) -> list[Path]:
    """The retrieved jars of one configuration ("spark", "broker" or "s3"), sorted by name.

    Raises JarsError when they were not retrieved yet, or not those of the present conf/ivy.xml.
    """
    if configuration not in (*CONFIGURATIONS, *EXTRAS):
        raise ValueError(
            f"no such configuration: {configuration!r}; there are {', '.join((*CONFIGURATIONS, *EXTRAS))}"
        )
    folder = folder or default_folder()
    lock = Lock()
    paths = [folder / configuration / name for name in sorted(lock.modules()[configuration])]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        found = f"{len(missing)} of {len(paths)} {configuration} jars are missing in {folder} ({missing[0]}, …)"
        raise JarsError(
            f"{found}: run `lbctl jars fetch{f' --with {configuration}' if configuration in EXTRAS else ''}`"
        )
    return paths


def spark_jars(folder: Path | None = None) -> list[Path]:
    """All that a Spark session is given: its own jars, and those of each extra that is there. Raises JarsError as `jar_paths` does."""
    extras = fetched_extras(folder)
    paths = [
        path for configuration in ("spark", *extras) for path in jar_paths(configuration, folder)
    ]
    if "s3" in extras:
        paths.append(own := compiled_jar((folder or default_folder()) / "s3", Lock().source))
        if not own.exists():
            raise JarsError(f"{own} is missing: run `lbctl jars fetch --with s3`")
    return paths


def fetched_extras(folder: Path | None = None) -> tuple[str, ...]:
    """The extras that have been asked for in this folder."""
    return tuple(extra for extra in EXTRAS if ((folder or default_folder()) / extra).is_dir())


def retrieve(
    folder: Path | None = None,
    lock: Lock | None = None,
    progress: Progress = lambda *_: None,
    extras: Collection[str] = (),
) -> bool:
    """Brings `folder` in line with the lock. False when it was already. Raises JarsError or JavaUnfit.

    `extras`: of EXTRAS, besides those that are there. Waits for another process that is at it. A hash that differs from the lock's is an
    error and the file is removed.
    """
    folder, lock = folder or default_folder(), lock or Lock()
    wanted = (
        *CONFIGURATIONS,
        *(extra for extra in EXTRAS if extra in extras or extra in fetched_extras(folder)),
    )
    if _stamped(folder, lock, wanted):
        return False
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        if _stamped(folder, lock, wanted):
            return False
        _run_ivy(folder, lock, wanted, progress)
        _remove_strays(folder, lock)
        _verify(folder, lock, wanted)
        if "s3" in wanted and lock.source.exists():
            _compile(folder / "s3", lock.source, progress)
        (folder / ".stamp").write_text(lock.stamp())
    return True


def relock(
    folder: Path | None = None, lock: Lock | None = None, progress: Progress = lambda *_: None
) -> None:
    """Retrieves what ivy.xml names and rewrites jars.sha256 from it: for a change of ivy.xml, reviewed as a diff."""
    folder, lock = folder or default_folder(), lock or Lock()
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        _run_ivy(folder, lock, (*CONFIGURATIONS, *EXTRAS), progress)
        _remove_strays(folder, lock)
        names = [
            f"{configuration}/{jar}"
            for configuration, jars in lock.modules().items()
            for jar in jars
        ]
        lock.hashes.write_text(
            "".join(f"{_sha256(folder / name)}  {name}\n" for name in sorted(names))
        )
        (folder / ".stamp").write_text(lock.stamp())


def _stamped(folder: Path, lock: Lock, wanted: Sequence[str]) -> bool:
    stamp, names = folder / ".stamp", _of(wanted, lock.expected())
    if (
        "s3" in wanted
        and lock.source.exists()
        and not compiled_jar(folder / "s3", lock.source).exists()
    ):
        return False
    return (
        stamp.exists()
        and stamp.read_text() == lock.stamp()
        and all((folder / name).exists() for name in names)
    )


def _of(wanted: Sequence[str], expected: dict[str, str]) -> dict[str, str]:
    """The jars of these configurations."""
    return {name: digest for name, digest in expected.items() if name.partition("/")[0] in wanted}


def _compile(folder: Path, source: Path, progress: Progress) -> None:
    progress(f"compiling {source.name}", 0, 1)
    try:
        compile_jar(folder, source)
    except CompileError as error:
        raise JarsError(str(error)) from None


def _ivy_classpath() -> str:
    try:
        return classes_of_pyspark()
    except ModuleNotFoundError:
        text = "PySpark, whose Ivy fetches the jars, is not installed in this Python: install lb_stream with what it needs"
        raise JarsError(text) from None


def _run_ivy(folder: Path, lock: Lock, wanted: Sequence[str], progress: Progress) -> None:
    total = sum(
        len(jars) for configuration, jars in lock.modules().items() if configuration in wanted
    )
    command = [
        *(
            str(find_java().path),
            "-Xshare:auto",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            _ivy_classpath(),
            "org.apache.ivy.Main",
        ),
        *("-settings", str(lock.settings), "-ivy", str(lock.ivy), "-cache", str(folder / "cache")),
        *("-retrieve", str(folder / "[conf]" / "[artifact]-[revision].[ext]"), "-confs", *wanted),
    ]
    found, downloaded = 0, 0
    tail: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as ivy:
        try:
            for line in ivy.stdout or []:
                tail = [*tail, line.strip()][-400:]
                found += line.startswith("\tfound ")
                downloaded += "[SUCCESSFUL" in line
                progress(
                    f"{line.split('!')[-1].split()[0]}" if "[SUCCESSFUL" in line else "",
                    found + downloaded,
                    2 * total,
                )
        except BaseException:
            ivy.terminate()  # Ctrl-C: what is in the cache by now stays for the next run
            raise
    if ivy.returncode != 0:
        raise JarsError(_explain(tail))
    progress("retrieved", 2 * total, 2 * total)


def _explain(tail: list[str]) -> str:
    """One paragraph out of Ivy's report: which modules it did not find, or the last lines when it says nothing clear."""
    trouble = [
        line.removeprefix(":: ")
        for line in tail
        if "not found" in line or "FAILED" in line or "Exception" in line
    ]
    said = "; ".join(dict.fromkeys(trouble)) or " | ".join(line for line in tail[-5:] if line)
    return (
        f"Ivy could not retrieve every jar: {said[:2000]}. What arrived is kept; run it again to go on. Behind a proxy set "
        "JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=…; with a mirror set LB_IVY_SETTINGS to your ivysettings.xml"
    )


def _remove_strays(folder: Path, lock: Lock) -> None:
    """Jars of an earlier lock would be on the class path too."""
    for configuration, jars in lock.modules().items():
        for path in (folder / configuration).glob("*.jar"):
            if path.name not in jars:
                path.unlink()


def _verify(folder: Path, lock: Lock, wanted: Sequence[str]) -> None:
    expected = lock.expected()
    listed = {
        f"{configuration}/{jar}" for configuration, jars in lock.modules().items() for jar in jars
    }
    if listed != set(expected):
        raise JarsError(
            f"conf/jars.sha256 does not match conf/ivy.xml ({', '.join(sorted(listed ^ set(expected)))}): run `make lock`"
        )
    for name, digest in _of(wanted, expected).items():
        path = folder / name
        if not path.exists():
            raise JarsError(f"{name} did not arrive: run it again")
        if _sha256(path) != digest:
            path.unlink()
            shutil.rmtree(folder / "cache", ignore_errors=True)
            raise JarsError(
                f"{name} is not the file that was locked (SHA-256 differs); it was removed. Run it again"
            )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: list[str]) -> int:
    """`python -m lb_stream.io.local.jars [--relock | EXTRA]`: exit 0 when the jars are there, 1 when they cannot be had, 2: unfit Java."""
    from lb_stream.io.local.progress import progress  # noqa: PLC0415 (rich is imported only when something is shown)

    try:
        with progress("jars") as told:
            if arguments == ["--relock"]:
                relock(progress=told)
            elif not set(arguments) <= set(EXTRAS):
                print(
                    f"usage: python -m lb_stream.io.local.jars [--relock | {' | '.join(EXTRAS)}]",
                    file=sys.stderr,
                )
                return 2
            else:
                retrieve(progress=told, extras=arguments)
    except JavaUnfit as error:
        print(error, file=sys.stderr)
        return 2
    except (JarsError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run it again to go on where it stopped", file=sys.stderr)
        return 130
    jars = [
        path
        for configuration in (*CONFIGURATIONS, *fetched_extras())
        for path in jar_paths(configuration)
    ]
    print(
        f"{len(jars)} jars in {default_folder()} ({sum(path.stat().st_size for path in jars) / 1e6:.0f} MB)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
