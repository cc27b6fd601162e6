"""One module for each group of kinds.

Every module in this folder is imported, so a new file is all that a new kind needs.
"""

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")
