"""`make fuzz`: gives the parsers of outside bytes what a fuzzer makes of small files.

Without arguments it tries every target, for a minute each. An input that breaks one is written to
build/fuzz/findings. What a run has found to be new is kept in build/fuzz/TARGET, so that the next
one goes on from there. The last line is one JSON object. Exit code 1: a finding; 2: no such target,
or no atheris.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.fuzz.registry import Target, list_targets

PROJECT = Path(__file__).parents[2]
WORK = PROJECT / "build" / "fuzz"
ATHERIS = PROJECT / ".make" / "fuzz"
INPUT_S = 20
"""A longer time for one input is a finding."""
MEMORY_MB = 2_048
"""A process that takes more memory is a finding."""
STOPPED_S = 600
"""How much longer than asked a run may take, with its start."""
LAST_LINES = 60
_TRACEBACK = "=== Uncaught Python exception: ==="

_COVERAGE = re.compile(r"cov: (\d+) ft: (\d+)")
_EXECUTIONS = re.compile(r"stat::number_of_executed_units:\s+(\d+)|^#(\d+)\s", re.MULTILINE)
_FINDING = re.compile(r"Test unit written to (\S+)")


@dataclass(frozen=True, slots=True)
class FuzzRun:
    """What came of one target. `coverage`: branches of instrumented code that inputs reached."""

    target: str
    executions: int
    coverage: int
    finding: str | None = None


def write_words(words: tuple[str, ...], path: Path) -> Path:
    """Write a target's words as libFuzzer reads a dictionary."""
    lines = []
    for word in words:
        escaped = "".join(
            chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}"
            for byte in word.encode("latin-1")
        )
        lines.append(f'"{escaped}"\n')
    path.write_text("".join(lines))
    return path


def fuzz(target: Target, seconds: int) -> FuzzRun:
    """Run one target for some seconds; what it says goes to stderr if it finds something."""
    corpus, findings = WORK / target.name, WORK / "findings"
    last = WORK / f"{target.name}.last"
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        shutil.copy(seed, corpus / f"seed-{seed.name}")
    command = [
        sys.executable,
        "-m",
        "tests.fuzz.engine",
        target.name,
        str(last),
        str(corpus),
        f"-max_total_time={seconds}",
        f"-max_len={target.max_bytes}",
        f"-timeout={INPUT_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-dict={write_words(target.words, WORK / f'{target.name}.dict')}",
        f"-artifact_prefix={findings}/{target.name}-",
        "-print_final_stats=1",
    ]
    path = os.pathsep.join([str(PROJECT), str(ATHERIS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": path, "TZ": "UTC"},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + STOPPED_S,
        check=False,
    )
    run = read_run(target.name, done.stdout + done.stderr, done.returncode)
    if done.returncode < 0 and last.is_file():
        content = last.read_bytes()
        written = findings / f"{target.name}-last"
        written.write_bytes(content[4 : 4 + int.from_bytes(content[:4], "little")])
        run = replace(run, finding=str(written))
    return run


def read_run(target: str, said: str, code: int) -> FuzzRun:
    """Return what a run has said: executions, coverage, and what it found."""
    executions = [int(first or second) for first, second in _EXECUTIONS.findall(said)]
    coverage = [int(found) for found, _ in _COVERAGE.findall(said)]
    finding = None
    if code != 0:
        written = _FINDING.search(said)
        finding = written[1] if written else f"exit code {code}"
        shown = said[said.rfind(_TRACEBACK) :] if _TRACEBACK in said else said
        print("\n".join(shown.splitlines()[-LAST_LINES:]), file=sys.stderr)
    return FuzzRun(target, max(executions, default=0), max(coverage, default=0), finding)


def main(arguments: list[str] | None = None) -> int:
    """Run the targets one after another; return the exit code."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    parser.add_argument("--seconds", type=int, default=60, help="of each target; default: 60")
    parser.add_argument("--list", action="store_true", help="name the targets, and run none")
    given = parser.parse_args(arguments)
    known = list_targets()
    if given.list:
        for name, target in known.items():
            print(f"{name:20} {target.about}")
        return 0
    if unknown := [name for name in given.targets if name not in known]:
        expected = f"expected one of {', '.join(known)}"
        print(f"fuzz: TARGET = {', '.join(unknown)}: {expected}", file=sys.stderr)
        return 2
    if not (ATHERIS / "atheris").is_dir():
        print(f"fuzz: no atheris in {ATHERIS}: run make fuzz", file=sys.stderr)
        return 2
    runs = []
    for name in given.targets or known:
        run = fuzz(known[name], given.seconds)
        runs.append(run)
        came = f"FOUND {run.finding}" if run.finding else "nothing found"
        print(f"{name}: {run.executions} inputs, coverage {run.coverage}: {came}", flush=True)
    findings = [run.target for run in runs if run.finding]
    print(
        json.dumps(
            {
                "targets": len(runs),
                "executions": sum(run.executions for run in runs),
                "findings": findings,
                "seconds": given.seconds,
                "runs": list(map(asdict, runs)),
            }
        )
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
