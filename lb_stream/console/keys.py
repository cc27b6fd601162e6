"""The keys of the console's pages, as pages list them. static/ has what they do."""

from __future__ import annotations

KEYS = (
    (("/",), "search"),
    (("g",), "all clusters"),
    (("j", "k"), "next, previous entry; Enter opens it"),
    (("[", "]"), "previous, next round or decision; of a list the previous, next page"),
    (
        ("←", "→", "Home", "End"),
        "on a chart or the heat map: move the cursor; Enter opens what is there",
    ),
    (("t",), "dark or light theme; at first the system's"),
    (("?",), "all keys"),
    (("Esc",), "leaves a field, closes the list of keys"),
)
"""Names of keys, and their effect as a text."""
