"""Rows as YAML that readers of YAML 1.1 and of 1.2 understand alike."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import yaml

_NUMBER_OF_1_2 = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|0o[0-7]+)$"
)
"""Texts such as 1e3 and 0o17, which only YAML 1.2 takes for numbers. PyYAML writes 1.1."""
_ANY_WIDTH = 1_000_000


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Puts quotes also around texts that only readers of YAML 1.2 misread."""


class _FastDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """The same in C, where PyYAML was built with it: eight times as fast."""


for _dumper in (_Dumper, _FastDumper):
    _dumper.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER_OF_1_2, [*"-+.0123456789"])


def to_yaml(value: object) -> str:
    """Return a value of dicts, lists, texts, numbers, booleans and None as YAML.

    Where it has characters that can't be seen, all but ASCII is escaped.
    """
    with suppress(UnicodeEncodeError):  # C can't encode a lone surrogate
        text = _dump(value, _FastDumper, allow_unicode=True)
        if text.replace("\n", "").isprintable():
            return text
    return _dump(value, _Dumper, allow_unicode=False)


def _dump(value: object, dumper: type[Any], *, allow_unicode: bool) -> str:
    text: str = yaml.dump(
        value, Dumper=dumper, allow_unicode=allow_unicode, sort_keys=False, width=_ANY_WIDTH
    )
    return text.removesuffix("...\n")  # ends a scalar that is a document of its own
