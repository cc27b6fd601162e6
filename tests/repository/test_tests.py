"""What holds for the tests themselves."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def imported_modules(path: Path) -> list[str]:
    """Return what a file imports, each as `module` or `module.name`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            found += [name.name for name in node.names]
    return found


def test_no_test_module_is_imported_by_another_one() -> None:
    modules = [
        ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
        for path in TESTS.rglob("test_*.py")
    ]
    faults = [
        f"{path.relative_to(TESTS)}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for name in imported_modules(path)
        if name in modules or name.rpartition(".")[0] in modules
    ]
    assert faults == [], "what two modules need is a helper: tests/support, or beside them"
