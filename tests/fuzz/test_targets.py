"""Every parser of outside bytes has a fuzz target, and no small file breaks one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.schemas import BINARY_RECORDS, RECORDS
from tests.fuzz.__main__ import ATHERIS, PROJECT, FuzzRun, fuzz, read_run, write_words
from tests.fuzz.parsers import NOT_FUZZED, find_parsers, find_reason
from tests.fuzz.registry import CORPUS, find_example, list_targets, load_target

TARGETS = list_targets()
SECONDS = int(os.environ.get("LB_FUZZ_SECONDS", "600"))
"""How long the long test fuzzes each target."""
MAX_SEED_BYTES = 16_384


@pytest.mark.parametrize("name", TARGETS)
def test_every_file_of_the_corpus_is_taken_or_rejected_as_documented(name: str) -> None:
    taken = {seed.name: TARGETS[name].parse(seed.read_bytes()) for seed in TARGETS[name].seeds()}
    assert taken
    for record in TARGETS[name].records:
        assert taken[find_example(record).name], f"the example of {record} is not taken"


def test_every_kind_of_record_of_the_contract_has_a_target() -> None:
    fuzzed = {record for target in TARGETS.values() for record in target.records}
    assert fuzzed == {record.name for record in (*RECORDS, *BINARY_RECORDS)}


def test_every_kind_of_command_has_a_file_in_the_corpus() -> None:
    command = TARGETS["command"]
    files = {path.name: path.read_bytes() for path in (CORPUS / "command").iterdir()}
    assert files.keys() >= set(COMMANDS)
    for kind in COMMANDS:
        assert json.loads(files[kind])["kind"] == kind
        assert command.parse(files[kind])


def test_every_module_that_parses_has_a_target_or_a_reason_why_not() -> None:
    fuzzed = {module for target in TARGETS.values() for module in target.modules}
    without = {
        module: sorted(functions)
        for module, functions in find_parsers().items()
        if module not in fuzzed and find_reason(module) is None
    }
    assert not without, "give them a target in tests/fuzz/targets, or a reason in parsers.py"


def test_no_reason_is_given_for_what_does_not_parse_or_is_fuzzed() -> None:
    parsers = set(find_parsers())
    for name in NOT_FUZZED:
        assert any(f"{module}.".startswith(f"{name}.") for module in parsers), name
    fuzzed = {module for target in TARGETS.values() for module in target.modules}
    assert not fuzzed & NOT_FUZZED.keys()
    for module in fuzzed:
        assert (PROJECT / f"{module.replace('.', '/')}.py").is_file(), module


def test_the_corpus_is_small_and_every_folder_of_it_is_a_targets() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} <= TARGETS.keys()
    for path in CORPUS.rglob("*"):
        assert path.is_dir() or path.stat().st_size <= MAX_SEED_BYTES, path


def test_a_target_is_found_without_the_others_being_imported() -> None:
    script = (
        "import sys; from tests.fuzz.registry import load_target; "
        "print(load_target('trace').name, 'tests.fuzz.targets.records' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["trace", "False"]
    assert load_target("trace") is TARGETS["trace"]


def test_what_a_run_says_gives_its_figures_and_its_finding() -> None:
    said = (
        "#2048\tpulse  cov: 30 ft: 80 corp: 5/1Kb exec/s: 10\n"
        "#4096\tNEW    cov: 41 ft: 99 corp: 6/1Kb exec/s: 10\n"
        "stat::number_of_executed_units: 5000\n"
    )
    assert read_run("trace", said, 0) == FuzzRun("trace", 5_000, 41)
    found = read_run("trace", f"{said}Test unit written to /x/trace-crash-1\n", 77)
    assert found.finding == "/x/trace-crash-1"
    assert read_run("trace", "", -9) == FuzzRun("trace", 0, 0, "exit code -9")


def test_words_are_written_as_the_fuzzer_reads_them(tmp_path: Path) -> None:
    written = write_words(('"a":\\', "\n", "\x1f\x8b"), tmp_path / "words")
    assert written.read_text() == '"\\x22a\\x22:\\x5c"\n"\\x0a"\n"\\x1f\\x8b"\n'


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_a_fuzzer_finds_nothing_in_ten_minutes(name: str) -> None:
    if not (ATHERIS / "atheris").is_dir():
        pytest.skip(f"no atheris in {ATHERIS}: make fuzz installs it")
    run = fuzz(TARGETS[name], SECONDS)
    assert run.executions > 0 and run.coverage > 0
    assert run.finding is None, run.finding
