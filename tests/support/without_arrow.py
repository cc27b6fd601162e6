"""Blocks pyarrow in this process, as on a machine that lacks it. Import this before the project."""

import sys
from importlib.machinery import ModuleSpec


class _NoArrow:
    """Finds no module of pyarrow, and leaves others to the next finder."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
        return None


sys.meta_path.insert(0, _NoArrow)
