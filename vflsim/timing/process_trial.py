"""Trial of availabilities, activations and capacities from outside: possible functions of (seed, party, time)."""

from __future__ import annotations

import math
from itertools import islice, pairwise
from typing import Any, Final, Protocol, get_args

import numpy as np

from vflsim.timing.arrivals import ActivationProcess
from vflsim.timing.profile import Flat, Interrupted, Profile, StepProfile

_PARTIES: Final = ((0, 1), (0, 2), (1, 1))
"""Seeds and parties that are tried."""
_PIECES: Final = 200
_BLOCKS: Final = 3


class TriedAvailability(Protocol):
    """What is tried out of an availability."""

    def profile(self, seed: int, party: int) -> Profile:
        """When one party is up (1) and down (0)."""


class TriedActivation(Protocol):
    """What is tried out of an activation."""

    @property
    def last(self) -> float:
        """When the last activation comes (s)."""

    def process(self, seed: int, party: int) -> ActivationProcess:
        """The arrivals of one party."""


class TriedCapacity(Protocol):
    """What is tried out of a capacity."""

    def profile(self) -> StepProfile | Flat:
        """The bandwidth in bit/s."""


def try_availability(availability: TriedAvailability) -> None:
    """Walk through its profiles twice, in two orders. Raises ValueError for the first thing that is wrong."""
    own = type(availability).__name__
    interrupted, known = getattr(availability, "interrupted", None), get_args(Interrupted)
    if interrupted not in known:
        what = f"{own}.interrupted is {interrupted!r}; allowed: {', '.join(known)}"
        raise ValueError(f'{what}; add `interrupted: Interrupted` to the class, or `interrupted: Interrupted = "lost"`')
    for name, is_right, allowed in (
        ("recurs", lambda value: isinstance(value, bool), "True or False"),
        ("regular", lambda value: isinstance(value, bool), "True or False"),
        ("cycle_s", lambda value: _is_finite(value) and value >= 0, "seconds, finite and at least 0"),
    ):
        if not is_right(value := getattr(availability, name)):
            _refuse(f"{own}.{name} is {value!r}", allowed, name)
    for seed, party in _PARTIES:
        first, again = (availability.profile(seed, party) for _ in range(2))
        for profile in (first, again):
            if not isinstance(profile, Profile):
                kind = type(profile).__name__
                _refuse(f"{own}.profile returned a {kind}", "a Profile, such as StepProfile(times, values)", "profile")
        pieces = _pieces(first, own)
        if wrong := [value for _, value, _ in pieces if value not in (0, 1)]:
            _refuse(
                f"{own}.profile has the value {wrong[0]!r}", "1 while the client is up, 0 while it is down", "profile"
            )
        if first.finish(0.0, 0.0) == math.inf:
            _refuse(f"{own}.profile is 0 for ever", "some time up", "profile")
        _same(pieces, again, own, f"for seed {seed} and party {party}")


def try_activation(activation: TriedActivation) -> None:
    """Look at the first arrivals, twice. Raises ValueError for the first thing that is wrong."""
    own = type(activation).__name__
    for name, least in (("last", 0.0), ("cycle_s", 0.0)):
        value = getattr(activation, name)
        if not isinstance(value, int | float) or not value >= least or (name == "cycle_s" and math.isinf(value)):
            _refuse(f"{own}.{name} is {value!r}", "seconds, at least 0", name)
    for seed, party in _PARTIES:
        both = []
        for _ in range(2):
            process = activation.process(seed, party)
            if not isinstance(process, ActivationProcess):
                kind = type(process).__name__
                _refuse(f"{own}.process returned a {kind}", "ActivationProcess(blocks, queue=…)", "process")
            both.append([_block(block, own) for block in islice(process.arrivals, _BLOCKS)])
        if not _alike(*both):
            what = f"{own}.process gives other arrivals when it is asked again for seed {seed} and party {party}"
            _refuse(what, "a function of seed and party; draw from generator(seed, party, …)", "process")
        times = np.concatenate([np.empty(0), *(times for times, _ in both[0])])
        for early, late in pairwise(times.tolist()):
            if late < early:
                _refuse(
                    f"{own}.process has an arrival at {late:.6g} s after one at {early:.6g} s", "in order", "process"
                )
        if len(times) and not (math.isfinite(times[-1]) and times[0] >= 0):
            what = f"{own}.process has arrivals from {times[0]:.6g} s to {times[-1]:.6g} s"
            _refuse(what, "finite times of at least 0 s", "process")
        if len(times) and times[-1] > activation.last:
            what = f"{own}.last is {activation.last:.6g} s, and an arrival comes at {times[-1]:.6g} s"
            _refuse(what, "when the last one comes, or inf", "last")


def try_capacity(capacity: TriedCapacity) -> None:
    """Look at its profile, twice. Raises ValueError for the first thing that is wrong."""
    own = type(capacity).__name__
    first, again = (capacity.profile() for _ in range(2))
    for profile in (first, again):
        if not isinstance(profile, StepProfile | Flat):
            what = f"{own}.profile returned a {type(profile).__name__}"
            _refuse(what, "StepProfile(times, rates) in bit/s, or Flat(rate)", "profile")
    if first.finish(0.0, 0.0) == math.inf:
        _refuse(f"{own}.profile is 0 at all times: nothing would ever move", "at least one rate above 0", "profile")
    _same(_pieces(first, own), again, own, "")


def _pieces(profile: Profile, own: str) -> list[tuple[float, float, float]]:
    """Return the beginning, the value and the end of the first pieces."""
    t, found = 0.0, []
    for _ in range(_PIECES):
        value, until = profile.piece(t)
        found.append((t, value, until))
        if value != profile.value(t) or until != profile.next_change(t):
            _refuse(f"{own}.profile: piece({t:.6g}) disagrees with value and next_change", "the same", "profile")
        if not until > t:
            _refuse(
                f"{own}.profile: the next change after {t!r} s is at {until!r} s", "a later time, or inf", "profile"
            )
        if until == math.inf:
            break
        t = until
    return found


def _same(pieces: list[tuple[float, float, float]], again: Profile, own: str, of: str) -> None:
    """Refuse a profile that differs when it is queried again in another order."""
    for t, *piece in reversed(pieces):
        if (found := again.piece(t)) != tuple(piece):
            first, then = (f"{value:g} from {t:.6g} to {until:.6g} s" for value, until in (piece, found))
            what = f"{own}.profile is {first}, and {then} when it is asked again {of}".rstrip()
            _refuse(what, "a function of seed, party and time; draw from generator(seed, party, …)", "profile")


def _block(block: Any, own: str) -> tuple[np.ndarray, np.ndarray]:
    pair = isinstance(block, tuple) and len(block) == 2 and all(isinstance(each, np.ndarray) for each in block)
    if not pair or block[0].ndim != 1 or block[0].shape != block[1].shape or block[0].dtype != np.float64:
        _refuse(f"{own}.process has a block {block!r:.80}", "(times, drawn): two arrays (n,) of float64", "process")
    if not len(block[0]):
        _refuse(f"{own}.process has an empty block", "at least one arrival in each", "process")
    times, drawn = block
    return times.copy(), drawn.copy()


def _alike(first: list[tuple[np.ndarray, np.ndarray]], again: list[tuple[np.ndarray, np.ndarray]]) -> bool:
    pairs = [(one, other) for a, b in zip(first, again, strict=False) for one, other in zip(a, b, strict=True)]
    return len(first) == len(again) and all(np.array_equal(one, other, equal_nan=True) for one, other in pairs)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _refuse(what: str, allowed: str, method: str) -> None:
    raise ValueError(f"{what}; allowed: {allowed}; mend '{method}' of the class")
