"""Check that the methods of a protocol from outside accept the arguments that vflsim passes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NamedTuple

from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import CAPABILITIES


class Mismatch(NamedTuple):
    """A method that vflsim cannot call: what is wrong, what is allowed, and where it is defined."""

    what: str
    allowed: str
    place: str


def mismatches(kind: type[Protocol]) -> Iterator[Mismatch]:
    """Yield the methods of ``kind`` that override a method of ``Protocol`` with another signature.

    Mistakes are too few or too many parameters, a coroutine in place of a function, and an attribute that is no method.
    Names of parameters do not matter, because vflsim calls by position.
    """
    yield from _underived(kind)
    hooks = {
        name: hook for base in (*CAPABILITIES, Protocol) if issubclass(kind, base) for name, hook in vars(base).items()
    }
    for name, of_base in hooks.items():
        if not isinstance(of_base, FunctionType) or name.startswith("_"):
            continue
        owner = next(each for each in kind.__mro__ if name in vars(each))
        own = vars(owner)[name]
        if name in kind.model_fields:
            owner, own = kind, None
        elif owner.__module__.partition(".")[0] == "vflsim":
            continue
        wrong = _wrong(own, of_base)
        if wrong:
            says = "async def" if inspect.iscoroutinefunction(of_base) else "def"
            allowed = f"{says} {name}{_bare(inspect.signature(of_base))}"
            yield Mismatch(f"{owner.__name__}.{name} {wrong}", allowed, _place(own, owner))


def _underived(kind: type[Protocol]) -> Iterator[Mismatch]:
    """Yield methods of a capability that ``kind`` does not derive from: vflsim would never call them."""
    for capability in CAPABILITIES:
        if issubclass(kind, capability):
            continue
        for name in vars(capability):
            owner = next((each for each in kind.__mro__ if name in vars(each)), None)
            if not name.startswith("_") and owner is not None and owner.__module__.partition(".")[0] != "vflsim":
                allowed = f"class {kind.__name__}({capability.__name__}, …)"
                what = (
                    f"{owner.__name__}.{name} is never used: {kind.__name__} does not derive from {capability.__name__}"
                )
                yield Mismatch(what, allowed, _place(vars(owner)[name], owner))


def _wrong(own: Any, of_base: FunctionType) -> str:
    function = own.__func__ if isinstance(own, staticmethod | classmethod) else own
    if not callable(function):
        return "is no method"
    if not isinstance(function, FunctionType):  # a callable object, which may take anything
        return ""
    given = list(inspect.signature(of_base).parameters)[isinstance(own, staticmethod) :]
    signature = inspect.signature(function)
    try:
        signature.bind(*given)
    except TypeError:
        return f"takes {_bare(signature)}"
    if inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(of_base):
        return "is a coroutine"
    return ""


def _bare(signature: inspect.Signature) -> str:
    """Write a signature without types."""
    empty = inspect.Parameter.empty
    parameters = [each.replace(annotation=empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=empty))


def _place(own: Any, owner: type) -> str:
    code = getattr(getattr(own, "__func__", own), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else f"{owner.__module__}.{owner.__qualname__}"
