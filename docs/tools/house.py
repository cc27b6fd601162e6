"""`make house`: count what the project asks of its own code and pages.

Prints a table of each measure, its value and what is aimed at, and in the last line the values as
one JSON object. `--env NAME=FOLDER` adds the size of an installed environment; may be given again.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "lb_stream"
WIDTH = 100
MAX_COMPLEXITY = 12
SMALL_MODULE = 50
"""Lines of a module that is counted as small."""
WORDS = ("told", "said", "nobody")
ROUND_COLUMN = "merge_advice"
"""A column of `rounds`: how many files name it says how many places know a round's columns."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of the table. `aim`: the highest value that is wanted; None: only shown."""

    name: str
    value: float
    aim: float | None = None
    about: str = ""


def tracked(*patterns: str) -> list[Path]:
    """Return the files that git knows and that are still there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *patterns],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [path for name in listed.split("\0") if name and (path := PROJECT / name).is_file()]


def prose_lines(text: str) -> Iterator[str]:
    """Yield the lines of a page that are neither code nor part of a table."""
    fenced = False
    for line in text.splitlines():
        if re.match(r"\s*```", line):
            fenced = not fenced
        elif not fenced and not line.startswith(("|", "    ")):
            yield line


def count_wide_lines() -> Iterator[Measure]:
    """Yield the number of lines over 100 columns: of the package, of tests, of pages."""
    for name, patterns in (("lb_stream", ["lb_stream/*.py"]), ("tests", ["tests/*.py"])):
        lines = [line for path in tracked(*patterns) for line in path.read_text().splitlines()]
        wide = sum(len(line) > WIDTH for line in lines)
        share = f"{100 * wide / max(len(lines), 1):.1f} % of {len(lines):,}"
        yield Measure(f"wide_lines_{name}", wide, 0, share)
    wide = sum(
        len(line) > WIDTH for page in tracked("*.md") for line in prose_lines(page.read_text())
    )
    yield Measure("wide_lines_pages", wide, 0, "outside of tables and code")


def count_complex_functions() -> Measure:
    """Count functions whose cyclomatic complexity is above 12, as ruff's C901 counts it."""
    command = [
        *(sys.executable, "-m", "ruff", "check", "--isolated", "--exit-zero", "--select", "C901"),
        *("--config", f"lint.mccabe.max-complexity={MAX_COMPLEXITY}", "--output-format", "json"),
        *("lb_stream", "jobs"),
    ]
    found = json.loads(
        subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    )
    scores = [
        (int(complexity[1]), finding["message"].split("`")[1])
        for finding in found
        if (complexity := re.search(r"\((\d+) >", finding["message"]))
    ]
    worst = ", ".join(f"{name} {score}" for score, name in sorted(scores, reverse=True)[:3])
    return Measure("complex_functions", len(found), 0, worst)


def count_words(texts: dict[Path, str]) -> Iterator[Measure]:
    """Yield how often the package has words that the glossary replaces, also inside of names."""
    for word in WORDS:
        pattern = re.compile(rf"(?<![A-Za-z]){word}(?![A-Za-z])", re.IGNORECASE)
        yield Measure(
            f"word_{word}", sum(len(pattern.findall(text)) for text in texts.values()), 20
        )


def count_variables_one(trees: dict[Path, ast.Module]) -> Measure:
    """Count the variables `one`: each loop, assignment or argument that introduces one."""
    count = sum(
        (isinstance(node, ast.Name) and node.id == "one" and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.arg) and node.arg == "one")
        for tree in trees.values()
        for node in ast.walk(tree)
    )
    return Measure("variables_one", count, 20, "loops, assignments, arguments")


def count_shared_class_names(trees: dict[Path, ast.Module]) -> Measure:
    """Count public class names that stand in more than one module."""
    places = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    shared = sorted(name for name, count in places.items() if count > 1)
    return Measure("shared_class_names", len(shared), 0, ", ".join(shared[:6]))


def count_any(texts: dict[Path, str]) -> Measure:
    """Count the word `Any` in the package, imports included."""
    count = sum(len(re.findall(r"\bAny\b", text)) for text in texts.values())
    return Measure("any", count, 250, "imports included")


def count_lines(texts: dict[Path, str]) -> Iterator[Measure]:
    """Yield the lines of the package, and its small modules."""
    lengths = {path: len(text.splitlines()) for path, text in texts.items()}
    yield Measure("lines", sum(lengths.values()), 52_000, f"{len(lengths)} modules")
    small = [
        path
        for path, length in lengths.items()
        if length <= SMALL_MODULE and path.name not in ("__init__.py", "__main__.py")
    ]
    yield Measure("small_modules", len(small), 50, "50 lines or less, without __init__.py")


def count_files_naming_column(trees: dict[Path, ast.Module]) -> Measure:
    """Count the modules that name a column of `rounds` as text."""
    files = {
        str(path.relative_to(PACKAGE))
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search(rf"\b{ROUND_COLUMN}\b", node.value)
        and not _is_sentence(node.value)
    }
    return Measure("files_naming_round_column", len(files), 1, ", ".join(sorted(files)[:4]))


def _is_sentence(text: str) -> bool:
    """Return whether a text is not a column's name alone, but a comment or SQL about the table."""
    return " " in text


def count_page_words() -> Iterator[Measure]:
    """Yield the words of the longest page, and of all pages."""
    pages = [path for path in tracked("*.md") if path.name != "CHANGELOG.md"]
    words = {path: len(path.read_text().split()) for path in pages}
    longest = max(words, key=words.__getitem__)
    yield Measure("longest_page_words", words[longest], 4_000, str(longest.relative_to(PROJECT)))
    yield Measure("page_words", sum(words.values()), None, f"{len(words)} pages")


def measure_version_cpu() -> Measure:
    """Measure the CPU time of `lbctl --version`, the least of three runs, s."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-c", "from lb_stream.cli.main import main; main()", "--version"]
        subprocess.run(command, cwd=PROJECT, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        seconds.append(round(spent, 2))
    return Measure("cpu_s_version", min(seconds), 0.2, "lbctl --version, CPU time, s")


def measure_environment(name: str, folder: Path) -> Measure:
    """Measure what an installed environment takes on the disk, MB."""
    size = sum(
        path.stat().st_blocks * 512
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    aims = {"base": 300, "agent": 300, "demo": 1_100}
    return Measure(f"installed_mb_{name}", round(size / 1e6), aims.get(name), "MB on the disk")


def measure_all(environments: dict[str, Path]) -> list[Measure]:
    """Return every measure, in the order of the table."""
    texts = {path: path.read_text() for path in tracked("lb_stream/*.py")}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    return [
        *count_wide_lines(),
        count_complex_functions(),
        *count_words(texts),
        count_variables_one(trees),
        count_shared_class_names(trees),
        count_any(texts),
        *count_lines(texts),
        count_files_naming_column(trees),
        *count_page_words(),
        measure_version_cpu(),
        *(measure_environment(name, folder) for name, folder in environments.items()),
    ]


def main(arguments: list[str]) -> None:
    """Print the table, and the JSON object."""
    parser = argparse.ArgumentParser(prog="python -m docs.tools.house", description=__doc__)
    parser.add_argument("--env", action="append", default=[], metavar="NAME=FOLDER")
    pairs = (pair.split("=", 1) for pair in parser.parse_args(arguments).env)
    environments = {name: Path(folder) for name, folder in pairs}
    for name, folder in environments.items():
        if not folder.is_dir():
            parser.error(f"--env {name}: {folder}: expected the folder of an environment")
    measures = measure_all(environments)
    print(f"{'measure':<28}{'value':>10}{'aim':>10}   about")
    for measure in measures:
        aim = "" if measure.aim is None else f"≤ {measure.aim:,g}"
        print(f"{measure.name:<28}{measure.value:>10,}{aim:>10}   {measure.about}".rstrip())
    print(json.dumps({measure.name: measure.value for measure in measures}))


if __name__ == "__main__":
    main(sys.argv[1:])
