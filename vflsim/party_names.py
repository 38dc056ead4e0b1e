"""The names that a scenario gives its parties, in all that people read; files keep ``server`` and ``client-2``.

Tables, messages and files name parties by number, so that results of scenarios with other names compare. What people
read (errors, tables, pictures, reports) says ``bank`` instead of ``client-2`` or ``client 2`` where
``partition.names`` says so. The names hold inside of :func:`naming`, as the appearance of figures does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from functools import wraps
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

_NAMES: ContextVar[Mapping[int, str]] = ContextVar("party names", default=MappingProxyType({}))
_MENTION = re.compile(r"(?<![\w./])(?<!--party )[Cc]lient[ -]([1-9]\d*)(?![\w/]|[.-]\w)")
"""A client in a sentence. Columns (``accuracy.client-2``), files and options of commands are none."""
_MEANS = re.compile(
    r"\s*(?:all|server|the server|client[ -]\d+|(?:\d|(?-i:\b[Nim]\b)|[.,+*/()\s-])*)\s*", re.IGNORECASE
)
"""What messages call parties, and selections and formulas that name none: ``2``, ``N``, ``1..N/2``."""
P = ParamSpec("P")
T = TypeVar("T")


def names_of(scenario: Mapping[str, Any]) -> dict[int, str]:
    """Return the clients' names by number, from a scenario's keys; empty if it gives none.

    Of an active server's names, the first is the server's, which stays ``the server``.

    Example::

        names_of({"partition": {"names": ["bank", "shop"]}})  # {1: 'bank', 2: 'shop'}
    """
    partition = scenario.get("partition")
    if not isinstance(partition, Mapping) or not isinstance(names := partition.get("names"), list | tuple):
        return {}
    if any(has_meaning(str(name)) for name in names):
        return {}  # the scenario is refused, and its error says what it says
    first = 0 if partition.get("active") is True else 1
    return {number: str(name) for number, name in enumerate(names, first) if number}


def has_meaning(name: str) -> bool:
    """Whether messages or selections mean another party by it, or all of them: no name for a party."""
    return bool(_MEANS.fullmatch(name) or _MENTION.search(name))


@contextmanager
def naming(scenario: Mapping[str, Any]) -> Iterator[None]:
    """Let texts made inside name the parties as ``scenario`` does.

    Example::

        with naming({"partition": {"names": ["bank", "shop"]}}):
            titled("client 2 went down")  # 'shop went down'
    """
    token = name_from_now_on(scenario)
    try:
        yield
    finally:
        _NAMES.reset(token)


def name_from_now_on(scenario: Mapping[str, Any]) -> Token[Mapping[int, str]]:
    """Let all texts of this context name the parties so: a command has one scenario until its end."""
    return _NAMES.set(names_of(scenario))


def are_named() -> bool:
    """Whether the parties have names here."""
    return bool(_NAMES.get())


def titled(text: str) -> str:
    """Return ``text`` with the names of the clients that it mentions."""
    names = _NAMES.get()
    if not names:
        return text
    return _MENTION.sub(lambda mention: names.get(int(mention[1]), mention[0]), text)


def with_names(of: Callable[..., Mapping[str, Any]]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function whose texts name the parties of the scenario that ``of`` takes from its arguments."""

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> T:
            with naming(of(*args, **kwargs)):
                return function(*args, **kwargs)

        return inside

    return decorated
