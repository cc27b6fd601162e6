"""Imports modules, and all that packages of this project have: `import_all.py NAME...`.

Python then writes the bytecode of all that they import, which a read-only root can't get later. The
images have no other bytecode: most modules of most packages are never imported. It also shows that
what was removed before is not imported. Optional packages may be missing.
"""

import importlib
import pkgutil
import sys
from types import ModuleType

OPTIONAL = {"highspy", "matplotlib", "optuna", "pulsar"}


def import_all(name: str) -> list[str]:
    """Import a module and those below it; return the names of those that lack an optional package.

    Raises ImportError if anything else is missing.
    """
    lacking = []
    module = importlib.import_module(name)
    for inner in names_below(module):
        try:
            importlib.import_module(inner)
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL:
                raise
            lacking.append(inner)
    return lacking


def names_below(module: ModuleType) -> list[str]:
    """Return the names of all modules of a package, but programs that run at their import."""
    found = pkgutil.walk_packages(getattr(module, "__path__", []), f"{module.__name__}.")
    return [inner.name for inner in found if not inner.name.endswith(".__main__")]


if __name__ == "__main__":
    for given in sys.argv[1:]:
        if given.startswith("lb_stream"):
            import_all(given)
        else:
            importlib.import_module(given)
