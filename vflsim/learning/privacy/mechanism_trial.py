"""Trial of a mechanism from outside: rows bounded each by itself, noise of the size that it says, an ε that grows."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from torch import Tensor

from vflsim.learning.privacy.accounting import Released
from vflsim.learning.privacy.base import Mechanism, Plan

_ROWS, _WIDTH, _DRAWS = 16, 5, 1 << 16
_OFF: Final = 0.05
"""By how much the noise of so many draws may miss its standard deviation: over five times what Laplace noise may."""


def try_out(mechanism: Mechanism) -> None:
    """Bound rows, draw noise, and count ε. Raises ValueError for the first thing that is wrong."""
    if mechanism.needs_plan:
        mechanism = mechanism.planned(Plan(rate=0.1, per_epoch=10, rounds=100))
    own = type(mechanism).__name__
    for key in ("sensitivity", "sigma", "inner_noise"):
        value, least = getattr(mechanism, key), 0.0
        if not isinstance(value, int | float) or not least <= value < math.inf or (key == "sensitivity" and not value):
            allowed = "a number above 0" if key == "sensitivity" else "a number of at least 0"
            _refuse(f"{own}.{key} is {value!r}", allowed, key)
    for key in ("secret", "needs_plan"):
        if not isinstance(value := getattr(mechanism, key), bool):
            _refuse(f"{own}.{key} is {value!r}", "True or False", key)
    if not isinstance(promise := mechanism.promise(), str) or not promise:
        _refuse(f"{own}.promise returned {promise!r}", "the guarantee in words", "promise")
    for dtype in (torch.float64, torch.float32):
        _bound(mechanism, own, dtype)
        _noise(mechanism, own, dtype)
    _epsilon(mechanism, own)


def _bound(mechanism: Mechanism, own: str, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(1)
    sizes = torch.logspace(-3, 3, _ROWS, dtype=dtype)[:, None] * mechanism.sensitivity
    rows = sizes * torch.randn(_ROWS, _WIDTH, generator=draw, dtype=dtype)
    h = rows.clone().requires_grad_()
    bounded = mechanism.bounded(h)
    if not isinstance(bounded, Tensor) or bounded.shape != rows.shape or bounded.dtype != dtype:
        _refuse(f"{own}.bounded returned {_told(bounded)} for {_told(rows)}", "the same shape and dtype", "bounded")
    if not bounded.requires_grad or not bool(torch.isfinite(torch.autograd.grad(bounded.sum(), h)[0]).all()):
        _refuse(f"{own}.bounded has no finite gradient", "differentiable in the rows", "bounded")
    if not torch.equal(h, rows):
        _refuse(f"{own}.bounded changes the rows that it is given", "only to read them; copy them", "bounded")
    alone = torch.cat([mechanism.bounded(row) for row in torch.split(rows, 1)])
    if not torch.allclose(alone, bounded, rtol=1e-5, atol=0.0):
        _refuse(f"{own}.bounded gives a row other values among other rows", "each row by itself", "bounded")
    farthest = float(torch.cdist(bounded.detach().double(), -bounded.detach().double()).max())
    if farthest > mechanism.sensitivity * (1 + 1e-5):
        what = f"two bounded rows of {own} are {farthest:.6g} apart, and sensitivity is {mechanism.sensitivity:.6g}"
        _refuse(what, "rows that are no farther apart than that (L2)", "bounded")


def _noise(mechanism: Mechanism, own: str, dtype: torch.dtype) -> None:
    shape = (_DRAWS // _WIDTH, _WIDTH)
    noise, again, other = (mechanism.noise(shape, dtype, np.random.Philox(key=key)) for key in (1, 1, 2))
    if not isinstance(noise, Tensor) or noise.shape != shape or noise.dtype != dtype:
        _refuse(f"{own}.noise returned {_told(noise)} for {shape}", f"that shape, of {dtype}", "noise")
    if not torch.equal(noise, again):
        _refuse(f"{own}.noise gives other numbers for the same bits", "numbers that follow from `bits` alone", "noise")
    if not bool(torch.isfinite(noise).all()):
        _refuse(f"{own}.noise is not finite", "finite", "noise")
    if mechanism.sigma and torch.equal(noise, other):
        _refuse(f"{own}.noise is the same for other bits", "numbers that follow from `bits`", "noise")
    found = float(noise.double().square().mean().sqrt())
    if not abs(found - mechanism.sigma) <= _OFF * mechanism.sigma:
        what = f"{noise.numel():,} draws of {own}.noise have the standard deviation {found:.6g}"
        _refuse(what, f"sigma, {mechanism.sigma:.6g}", "noise")


def _epsilon(mechanism: Mechanism, own: str) -> None:
    before = -1.0
    for releases in (0, 1, 2, 10, 100):
        sampled = ((0.1, 1, releases),) if releases else ()
        for method, epsilon in (
            ("epsilon_after", mechanism.epsilon_after(releases)),
            ("spent", mechanism.spent(Released(releases, sampled))),
        ):
            if not isinstance(epsilon, int | float) or not 0 <= epsilon < math.inf:
                _refuse(f"{own}.{method} is {epsilon!r} for {releases} releases", "a number of at least 0", method)
            if not releases and epsilon:
                _refuse(f"{own}.{method} is {epsilon:g} for no release", "0", method)
        spent = mechanism.spent(Released(releases, sampled))
        if spent < before:
            _refuse(f"{own}.spent falls to {spent:g} with {releases} releases", "no less for more releases", "spent")
        before = spent


def _told(value: object) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _refuse(what: str, allowed: str, method: str) -> None:
    raise ValueError(f"{what}; allowed: {allowed}; mend '{method}' of the class")
