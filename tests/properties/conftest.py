"""How many examples the property tests try: the same few in every run, or LB_EXAMPLES=2000 new ones of each for a longer look."""

import os

from hypothesis import settings

_WANTED = os.environ.get("LB_EXAMPLES")
settings.register_profile("quick", max_examples=35, deadline=None, derandomize=True, database=None)
settings.register_profile("longer", max_examples=int(_WANTED or 0) or 50, deadline=None)
settings.load_profile("longer" if _WANTED else "quick")
