"""Strategies by name: a decorator registers one with the model of its settings; Pulsar's class
names lead to the same entry.

A strategy of another package is an entry point: its name is the strategy's, its value the module
whose import registers it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from typing import Any, Generic, TypeVar

from lb_stream.contracts.keys import KeyModel

Function = TypeVar("Function", bound=Callable[..., Any])


def nothing(_data: Mapping[str, Any]) -> None:
    """What most strategies remember."""


@dataclass(frozen=True, slots=True)
class Strategy(Generic[Function]):
    """One registered strategy.

    `memory` reads what it remembers between rounds from the JSON object of the last round ({} at
    first).

    `traits` says how this kind of strategy wants to be treated, where there is a choice.
    """

    name: str
    function: Function
    config: type[KeyModel]
    memory: Callable[[Mapping[str, Any]], Any]
    traits: Any = None


class UnknownStrategyError(ValueError):
    """A strategy that nobody registered, or a plug-in that can't be loaded.

    `expected` says what could stand there.
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
        memory: Callable[[Mapping[str, Any]], Any] = nothing,
        traits: Any = None,
    ) -> Callable[[Function], Function]:
        """Register the decorated function under `name`.

        Raises TypeError for one that can't be called with a context alone.
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
        """The strategy of that simple name or Pulsar class name, a plug-in's included.

        Raises UnknownStrategyError, naming those there are, or saying why a plug-in could not be
        loaded.
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
        """Register every plug-in that can be loaded; what is wrong with another one is told when it
        is asked for by name."""
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
        """Simple names of those registered so far, sorted.

        A plug-in is registered when it is first asked for.
        """
        return tuple(sorted(self._strategies))
