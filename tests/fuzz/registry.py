"""The fuzz targets: functions that give bytes to a parser, and check what becomes of them.

A target returns whether the parser took the bytes. What a parser may raise, its target catches; any
other exception, and any check that fails, is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples"
MODULES = ("answers", "files", "records", "scenarios", "web")
"""Modules of tests.fuzz.targets."""
LONGEST_MESSAGE = 20_000
"""Characters of an error's text: it goes to a log or a screen."""

Parse = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Target:
    """One target.

    `modules`: those of lb_stream whose parsing it tries. `records`: kinds of records that it
    tries, by their names in the contract. `words`: texts that inputs are made of. `max_bytes`: of
    an input.
    """

    name: str
    parse: Parse
    about: str
    modules: tuple[str, ...]
    records: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    max_bytes: int = 4_096

    def seeds(self) -> list[Path]:
        """Return the files that the fuzzer begins with, and that every test run tries.

        They are those of the corpus, and the contract's examples of the target's records.
        """
        examples = [find_example(record) for record in self.records]
        return [*examples, *sorted((CORPUS / self.name).glob("*"))]


def find_example(record: str) -> Path:
    """Return the contract's example of a kind of record: JSON, or an Arrow stream."""
    binary = EXAMPLES / f"{record}.arrow"
    return binary if binary.exists() else EXAMPLES / f"{record}.json"


@dataclass
class _Registry:
    targets: dict[str, Target] = field(default_factory=dict)


_REGISTRY = _Registry()


def target(
    *modules: str,
    records: Iterable[str] = (),
    words: Iterable[str] = (),
    max_bytes: int = 4_096,
) -> Callable[[Parse], Parse]:
    """Register the decorated function under its own name, with dashes."""

    def register(parse: Parse) -> Parse:
        name = parse.__name__.replace("_", "-")
        about = (parse.__doc__ or "").partition("\n")[0]
        _REGISTRY.targets[name] = Target(
            name,
            parse,
            about,
            tuple(f"lb_stream.{module}" for module in modules),
            tuple(records),
            tuple(words),
            max_bytes,
        )
        return parse

    return register


def list_targets() -> dict[str, Target]:
    """Return name → target, sorted; this imports the parsers."""
    for module in MODULES:
        import_module(f"tests.fuzz.targets.{module}")
    return dict(sorted(_REGISTRY.targets.items()))


def load_target(name: str) -> Target:
    """Return one target; this imports the parsers of its module alone, which takes less time."""
    begin = f"\ndef {name.replace('-', '_')}(data: bytes)"
    folder = Path(__file__).parent / "targets"
    (module,) = (module for module in MODULES if begin in (folder / f"{module}.py").read_text())
    import_module(f"tests.fuzz.targets.{module}")
    return _REGISTRY.targets[name]


def require_message(error: Exception) -> None:
    """Raise AssertionError unless an error says something, in text that can be shown."""
    text = str(error)
    assert text.strip(), "an error without a text"
    assert len(text) <= LONGEST_MESSAGE, f"an error of {len(text)} characters"
    text.encode(errors="backslashreplace")
