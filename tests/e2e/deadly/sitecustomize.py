"""On PYTHONPATH: a Python process that decodes the record `deadly` is gone, as after a fault in a
library."""

import importlib.abc
import importlib.util
import os
import sys
from typing import Any


class Finder(importlib.abc.MetaPathFinder):
    """Loads the decoder like the others do, with one record that it doesn't survive."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """The decoder's own spec, whose loader changes it."""
        if name != "lb_stream.stream.decode":
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            read_record = module._read_record

            def deadly(records: Any, config: Any, key: Any, value: Any, *rest: Any) -> None:
                if value == b"deadly":
                    os._exit(9)
                read_record(records, config, key, value, *rest)

            module._read_record = deadly

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
