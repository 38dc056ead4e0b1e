"""Modules of the user's own, named by Python import path: import, construct, and try out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from pydantic import JsonValue
from torch import Tensor, nn

from vflsim.files import bytes_text, machine_memory
from vflsim.learning.models.build import drafted, seeded
from vflsim.learning.randomness import drawing_from
from vflsim.vocabulary.imported import imported, reason

Arguments = dict[str, JsonValue]

_ROWS = 2


def construct(path: str, arguments: Mapping[str, Any], **offered: Any) -> nn.Module:
    """Call what ``path`` names with ``arguments``, and with those of ``offered`` that its signature names.

    Raises ValueError if the path does not import, the call fails, or what comes back is no ``nn.Module``.
    """
    target = imported(path)
    if not callable(target):
        raise ValueError(f"{path} is {_described(target)}; allowed: a class (or function) that makes a torch.nn.Module")
    if isinstance(target, type) and not issubclass(target, nn.Module):
        raise ValueError(f"{path} is a class but not a torch.nn.Module; derive it from torch.nn.Module")
    extra = {key: value for key, value in offered.items() if key in _parameters(target)}
    try:
        module = target(**{**extra, **arguments})
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        given = ", ".join([*arguments, *(key for key in extra if key not in arguments)]) or "no arguments"
        what = f"{path} could not be built with {given}: {reason(error)}"
        raise ValueError(f"{what}; allowed: parameters named {', '.join(offered)}, and those in `arguments`") from error
    if not isinstance(module, nn.Module):
        raise ValueError(f"{path} made {_described(module)}; allowed: a torch.nn.Module")
    return module


def trial_run(path: str, build: Callable[[], nn.Module], shape: tuple[int, ...], width: int) -> None:
    """Build a module and send two rows of zeros of ``shape`` through it, as in training.

    Raises ValueError unless a floating-point tensor of (2, ``width``) comes out of trainable weights. It may draw
    random numbers: ``learning.watch`` seeds the global generators for each operation.
    """
    _must_fit(path, build)
    module = seeded(build, seed=0, dtype=torch.float32).train()
    fed = f"zeros of shape {(_ROWS, *shape)}"
    with drawing_from(0), torch.no_grad():
        try:
            output = module(torch.zeros((_ROWS, *shape)))
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            raise ValueError(f"{path} failed on {fed}: {reason(error)}") from error
    if not isinstance(output, Tensor):
        raise ValueError(f"{path} returned {_described(output)} for {fed}; allowed: a tensor of shape {(_ROWS, width)}")
    if tuple(output.shape) != (_ROWS, width) or not output.is_floating_point():
        raise ValueError(
            f"{path} returned {output.dtype} of shape {tuple(output.shape)} for {fed}; "
            f"allowed: floating point of shape {(_ROWS, width)}, {width} numbers a row"
        )
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ValueError(f"{path} has no weights to train; allowed: a module with parameters")


def _must_fit(path: str, build: Callable[[], nn.Module]) -> None:
    """Raise ValueError if the weights alone exceed the memory of this machine; before they are made, if that shows."""
    module, there = drafted(build), machine_memory()
    weights = 0 if module is None else sum(weight.numel() for weight in module.parameters())
    needed = weights * torch.float32.itemsize
    if needed > there:
        raise ValueError(
            f"{path} has {weights:,} weights, which take {bytes_text(needed)}; allowed: up to {bytes_text(there)}, "
            "the memory of this machine; make it smaller"
        )


def parameters_named(path: str) -> frozenset[str]:
    """The parameters that the callable at ``path`` names. Raises ValueError if it does not import."""
    return _parameters(imported(path))


def _parameters(target: Callable[..., Any]) -> frozenset[str]:
    """The parameters a callable names; those it would only swallow by ``**kwargs`` do not count."""
    try:
        return frozenset(inspect.signature(target).parameters)
    except (TypeError, ValueError):  # some classes written in C have no signature
        return frozenset()


def _described(value: object) -> str:
    return f"a value of type {type(value).__name__}"
