"""Fetches the jars that conf/ivy.xml names, with the Ivy inside PySpark.

`python -m lb_stream.kit.fetch_jars` fetches those that are missing. Complete jars are kept in
`.jars/cache`, so an interrupted run continues where it stopped. Every jar must have the SHA-256 in
conf/jars.sha256. The configuration s3 also has a jar that is compiled here (compile_jar.py).
"""

from __future__ import annotations

import filecmp
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from lb_stream.io.local.jars import (
    CONFIGURATIONS,
    EXTRAS,
    JarsError,
    JarsLock,
    compiled_jar,
    default_folder,
    fetched_extras,
    jar_paths,
)
from lb_stream.io.local.java import JavaUnfit, find_java
from lb_stream.io.local.native_libraries import unpack_libraries
from lb_stream.io.local.processes import locked
from lb_stream.io.messages.missing_packages import install_line
from lb_stream.kit.compile_jar import CompileError, compile_jar, pyspark_class_path

Progress = Callable[[str, int, int], None]
"""Reports progress: the present step, steps done, steps in all."""


def fetch_jars(
    folder: Path | None = None,
    lock: JarsLock | None = None,
    progress: Progress = lambda *_: None,
    extras: Collection[str] = (),
) -> bool:
    """Fetch the jars that `folder` lacks by the lock; return whether there were any.

    `extras` names configurations of EXTRAS to be added to those in the folder. If another process
    fetches jars, this one waits. Raises JavaUnfit, and JarsError also for a jar with another hash,
    which is removed.
    """
    folder, lock = folder or default_folder(), lock or JarsLock()
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
        _link_to_cache(folder, lock, wanted)
        if "s3" in wanted and lock.source.exists():
            _compile(folder / "s3", lock.source, progress)
        (folder / ".stamp").write_text(lock.stamp())
    return True


def relock(
    folder: Path | None = None, lock: JarsLock | None = None, progress: Progress = lambda *_: None
) -> None:
    """Fetch what ivy.xml names and write jars.sha256 from it, after a change of ivy.xml."""
    folder, lock = folder or default_folder(), lock or JarsLock()
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


def _stamped(folder: Path, lock: JarsLock, wanted: Sequence[str]) -> bool:
    stamp, names = folder / ".stamp", _of_configurations(wanted, lock.expected())
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


def _of_configurations(wanted: Sequence[str], expected: dict[str, str]) -> dict[str, str]:
    """Return the jars of these configurations, with their hashes."""
    return {name: digest for name, digest in expected.items() if name.partition("/")[0] in wanted}


def _compile(folder: Path, source: Path, progress: Progress) -> None:
    progress(f"compiling {source.name}", 0, 1)
    try:
        compile_jar(folder, source)
    except CompileError as error:
        raise JarsError(str(error)) from None


def _ivy_classpath() -> str:
    try:
        return pyspark_class_path()
    except ModuleNotFoundError:
        raise JarsError(
            f"PySpark, whose Ivy fetches the jars, is not installed: {install_line('job')}"
        ) from None


def _run_ivy(folder: Path, lock: JarsLock, wanted: Sequence[str], progress: Progress) -> None:
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
                arrived = line.split("!")[-1].split()[0] if "[SUCCESSFUL" in line else ""
                progress(arrived, found + downloaded, 2 * total)
        except BaseException:
            ivy.terminate()  # after Ctrl-C, too; the next run uses what is in the cache
            raise
    if ivy.returncode != 0:
        raise JarsError(_explain(tail))
    progress("retrieved", 2 * total, 2 * total)


def _explain(tail: list[str]) -> str:
    """Explain a failure of Ivy: the modules that it did not find, or its last lines."""
    failures = [
        line.removeprefix(":: ")
        for line in tail
        if "not found" in line or "FAILED" in line or "Exception" in line
    ]
    reason = "; ".join(dict.fromkeys(failures)) or " | ".join(line for line in tail[-5:] if line)
    return (
        f"Ivy could not fetch every jar: {reason[:2000]}. Jars that arrived are kept; run it again "
        "to continue. Behind a proxy set JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=…; with a mirror "
        "set LB_IVY_SETTINGS to your ivysettings.xml"
    )


def _remove_strays(folder: Path, lock: JarsLock) -> None:
    """Remove jars of an earlier lock: they would be on the class path."""
    for configuration, jars in lock.modules().items():
        for path in (folder / configuration).glob("*.jar"):
            if path.name not in jars:
                path.unlink()


def _verify(folder: Path, lock: JarsLock, wanted: Sequence[str]) -> None:
    expected = lock.expected()
    listed = {
        f"{configuration}/{jar}" for configuration, jars in lock.modules().items() for jar in jars
    }
    if listed != set(expected):
        differing = ", ".join(sorted(listed ^ set(expected)))
        raise JarsError(
            f"conf/jars.sha256 does not match conf/ivy.xml ({differing}): run `make lock`"
        )
    for name, digest in _of_configurations(wanted, expected).items():
        path = folder / name
        if not path.exists():
            raise JarsError(f"{name} did not arrive: run it again")
        if _sha256(path) != digest:
            path.unlink()
            shutil.rmtree(folder / "cache", ignore_errors=True)
            raise JarsError(
                f"{name} has another SHA-256 than in conf/jars.sha256; it was removed. Run it again"
            )


def _link_to_cache(folder: Path, lock: JarsLock, wanted: Sequence[str]) -> None:
    """Replace jars by hard links to Ivy's cache, where the file system can: half the space."""
    cached = {path.name: path for path in (folder / "cache").glob("*/*/jars/*.jar")}
    for name in _of_configurations(wanted, lock.expected()):
        path = folder / name
        origin = cached.get(path.name)
        # Of two links to one file a replacement would leave both.
        if origin is None or origin.samefile(path):
            continue
        if not filecmp.cmp(origin, path, shallow=False):
            continue
        draft = path.with_suffix(".draft")
        with suppress(OSError):  # no hard links here
            draft.unlink(missing_ok=True)
            draft.hardlink_to(origin)
            draft.replace(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: list[str]) -> int:
    """Fetch or relock; return 0 if the jars are there, 1 if they can't be fetched, 2 for Java."""
    from lb_stream.io.local.progress import progress

    try:
        with progress("jars") as shown:
            if arguments == ["--relock"]:
                relock(progress=shown)
            elif not set(arguments) <= set(EXTRAS):
                choices = " | ".join(("--relock", *EXTRAS))
                print(f"usage: python -m lb_stream.kit.fetch_jars [{choices}]", file=sys.stderr)
                return 2
            else:
                fetch_jars(progress=shown, extras=arguments)
                unpack_libraries()
    except JavaUnfit as error:
        print(error, file=sys.stderr)
        return 2
    except (JarsError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run it again to continue", file=sys.stderr)
        return 130
    jars = [
        path
        for configuration in (*CONFIGURATIONS, *fetched_extras())
        for path in jar_paths(configuration)
    ]
    megabytes = sum(path.stat().st_size for path in jars) / 1e6
    print(f"{len(jars)} jars in {default_folder()} ({megabytes:.0f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
