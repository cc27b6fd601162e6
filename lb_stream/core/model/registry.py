"""Strategies by name. A decorator registers a strategy with the model of its settings.

A strategy is also found under Pulsar's class name. One of another package is an entry point: the
point's name is the strategy's, its value is the module whose import registers it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from typing import Any, Generic, TypeVar

import msgspec

from lb_stream.contracts.keys import KeyModel

Function = TypeVar("Function", bound=Callable[..., object])
Remembered = TypeVar("Remembered")


def nothing(_data: Mapping[str, object]) -> None:
    """Read the memory of a strategy that has none."""


def read_memory(data: Mapping[str, object], model: type[Remembered]) -> Remembered:
    """Return the memory, a dataclass, that `write_memory` wrote. Raises msgspec.ValidationError."""
    return msgspec.convert(data, model)


def write_memory(memory: object) -> dict[str, object]:
    """Return a memory, which is a dataclass, as a JSON object."""
    written: dict[str, object] = msgspec.to_builtins(memory)
    return {name: _without_tuples(value) for name, value in written.items()}


def _without_tuples(value: object) -> object:
    """Return a value with lists for tuples: what JSON gives back. Mappings have one type of value.

    Large mappings hold texts or numbers; they are returned as they are.
    """
    if isinstance(value, list | tuple):
        return [_without_tuples(item) for item in value]
    if isinstance(value, dict) and isinstance(
        next(iter(value.values()), None), dict | list | tuple
    ):
        return {name: _without_tuples(item) for name, item in value.items()}
    return value


@dataclass(frozen=True, slots=True)
class Strategy(Generic[Function]):
    """One registered strategy."""

    name: str
    function: Function
    config: type[KeyModel]
    memory: Callable[[Mapping[str, object]], Any]  # reads the last round's JSON object; {} at first
    traits: object = None  # how the round treats the strategy, where its kind leaves a choice


class UnknownStrategyError(ValueError):
    """A strategy that is not registered, or a plug-in that can't be loaded.

    `expected` describes the names that are valid, or what the plug-in should do.
    """

    def __init__(self, kind: str, name: str, expected: str) -> None:
        super().__init__(f"{kind} strategy: {name!r}; expected {expected}")
        self.kind, self.name, self.expected = kind, name, expected


class Registry(Generic[Function]):
    """All strategies of one kind."""

    def __init__(self, kind: str, group: str) -> None:
        self.kind, self.group = kind, group
        self._strategies: dict[str, Strategy[Function]] = {}

    def __call__(
        self,
        name: str,
        *,
        config: type[KeyModel],
        memory: Callable[[Mapping[str, object]], object] = nothing,
        traits: object = None,
    ) -> Callable[[Function], Function]:
        """Register the decorated function under `name`.

        Raises TypeError for a function that can't be called with a context alone.
        """

        def register(function: Function) -> Function:
            try:
                signature(function).bind(None)
            except TypeError as error:
                raise TypeError(
                    f"{self.kind} strategy {name}: expected a function of one context "
                    f"(docs/plugins.md): {error}"
                ) from None
            self._strategies[name] = Strategy(name, function, config, memory, traits)
            return function

        return register

    def __getitem__(self, name: str) -> Strategy[Function]:
        """Return the strategy of this name or Pulsar class name; a plug-in is loaded.

        Raises UnknownStrategyError, with the names that exist, or why a plug-in can't be loaded.
        """
        simple = name.rpartition(".")[2]
        if simple not in self._strategies and simple in self._plugins():
            self._load(simple)
        found = self._strategies.get(simple)
        if found is None:
            raise UnknownStrategyError(
                self.kind, name, f"one of {', '.join(sorted({*self.names, *self._plugins()}))}"
            )
        return found

    def load_plugins(self) -> None:
        """Register every plug-in that can be loaded.

        A plug-in that can't be loaded raises its error when it is asked for by name.
        """
        for name in self._plugins().keys() - self._strategies.keys():
            with suppress(UnknownStrategyError):
                self._load(name)

    def _plugins(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}

    def _load(self, name: str) -> None:
        point = self._plugins()[name]
        try:
            point.load()
        except Exception as error:
            raise UnknownStrategyError(
                self.kind,
                name,
                f"its plug-in {point.value} to load ({type(error).__name__}: {error})",
            ) from error
        if name not in self._strategies:
            raise UnknownStrategyError(
                self.kind, name, f"its plug-in {point.value} to register {name!r}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the strategies registered so far, sorted.

        A plug-in is registered when it is first asked for.
        """
        return tuple(sorted(self._strategies))
