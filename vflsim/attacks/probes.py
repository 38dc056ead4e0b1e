"""Common parts of attacks on recorded views: values as numbers, known rows, intervals, the strongest of several.

The strongest attacker is chosen on some rows and judged on others, so that the choice flatters nobody.
"""

from __future__ import annotations

import warnings
from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vflsim.attacks.base import Attack, AttackedRun, OneOrEach
from vflsim.finished import CONFIDENCE, Results
from vflsim.protocol import Floats
from vflsim.scenario import Scenario

Indices = NDArray[np.int64]
T = TypeVar("T")
STRONGEST = "strongest"
"""What stands for a setting that the strongest attacker has chosen."""
RESAMPLED = 500
"""Samples of a bootstrap and of a permutation test."""
FARTHEST = 5.0
"""The most standard deviations by which an input of a probe may differ from its mean."""


class AttackOfClients(Attack, ABC):
    """An attack by, or on, one client or each of them."""

    client: OneOrEach = "each"
    """The client."""

    def check(self, results: Results, scenario: Scenario) -> None:
        """Raise ``ValueError`` if the client does not exist."""
        if self.client != "each" and self.client > scenario.clients:
            raise ValueError(f"there is no client {self.client}; allowed: 1 to {scenario.clients}, or each")

    def clients(self, attacked: AttackedRun) -> list[int]:
        """Return the clients. Raises ``ValueError`` if they take no part, or are at the server."""
        models = attacked.models
        if models.protocol.traits.reference or not models.learners.clients:
            raise ValueError("no client of it is apart from the server, so nobody receives anything")
        if self.client not in ("each", *models.learners.clients):
            raise ValueError(f"client {self.client} takes no part")
        return list(models.learners.clients) if self.client == "each" else [self.client]


def numbers(values: Tensor) -> Floats:
    """Return received rows as real numbers, (rows, inputs), float64.

    An integer, such as an element of a field or one modulo 2^b, becomes the number and each of its bits: a probe need
    not know what it stands for.
    """
    flat = values.flatten(1).contiguous()
    real: Floats = flat.double().numpy()
    if flat.dtype.is_floating_point:
        return real
    return np.concatenate([real, np.unpackbits(flat.numpy().view(np.uint8), axis=1)], axis=1)


def scaled(x: Floats, known: Indices) -> Floats:
    """Return columns with mean 0 and standard deviation 1 over the ``known`` rows; constant ones, and NaN, are 0.

    What lies more than ``FARTHEST`` deviations out counts as that far: gradients of a few rows are hundreds of times as
    long as those of most, and a linear probe would predict as much more of them.
    """
    seen = np.ma.masked_invalid(x) if np.isnan(x).any() else x
    centred, spread = seen - seen[known].mean(0), seen[known].std(0)
    if isinstance(centred, np.ma.MaskedArray):
        centred, spread = centred.filled(0), np.ma.filled(spread, 0)
    columns: Floats = np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0)
    return np.clip(columns, -FARTHEST, FARTHEST)


def spread_of(score: Callable[[Indices], float], rows: int, bits: np.random.Generator) -> tuple[float, float]:
    """Return a 95 % interval of a score over resampled rows (percentile bootstrap)."""
    return _middle([score(bits.integers(rows, size=rows)) for _ in range(RESAMPLED)])


def by_chance(score: Callable[[Indices], float], rows: int, bits: np.random.Generator) -> tuple[float, float]:
    """Return the interval that holds a score in 95 % of random orders of the rows' truth (permutation test)."""
    return _middle([score(bits.permutation(rows)) for _ in range(RESAMPLED)])


def _middle(draws: list[float]) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


_PENALTIES = np.logspace(-6, 6, 13)
_WEIGHTS = (1.0, 0.0, 0.1)
"""The weights of a view relative to features; with 0 the view is ignored."""
_WIDTHS = (0.1, 1.0, 10.0)
"""Squared widths of a kernel, relative to the median squared distance of two known rows."""
_MOST_EPOCHS, _PATIENCE, _HELD_OUT = 500, 30, 5
_FEWEST_STOPPED = 10
"""Of more rows, at least two are the tenth that stops a decoder early."""


def linear(x: Floats, y: Floats, known: Indices, others: Indices, beside: Floats | None = None) -> Floats:
    """Guess the features of the rows ``others`` by ridge regression on ``x`` (rows, inputs): (others, features).

    ``y`` are the features of the rows ``known``; what is NaN in ``x`` is missing. Leave-one-out, in closed form,
    chooses the penalty, and how much ``x`` counts against ``beside``, features of the same rows: not at all, maybe.
    """
    from sklearn.linear_model import RidgeCV  # slow to import

    z, mean, unit = _standard(y)
    fits = [(RidgeCV(_PENALTIES).fit(each[known], z), each) for each in _inputs(x, known, beside)]
    best, of = max(fits, key=lambda fit: fit[0].best_score_)
    estimates: Floats = mean + unit * best.predict(of[others]).reshape(len(others), -1)
    return estimates


def kernelled(x: Floats, y: Floats, known: Indices, others: Indices, beside: Floats | None = None) -> Floats:
    """Guess the same by ridge regression with a Gaussian kernel, exp(−d² / (width · median of d²)).

    Leave-one-out, in closed form, chooses the width, too.
    """
    z, mean, unit = _standard(y)
    best, weighted = np.inf, np.zeros((len(others), z.shape[1]))
    for between, towards in _kernel_distances(x, known, others, beside):
        middle = float(np.median(between)) or 1.0
        for width in _WIDTHS:
            values, vectors = np.linalg.eigh(np.exp(-between / (width * middle)))
            shrunk = 1 / (np.maximum(values, 0)[:, None] + _PENALTIES)
            spread = vectors**2 @ shrunk  # (known, penalties)
            turned = vectors.T @ z
            for penalty, each in enumerate(shrunk.T):
                dual = vectors @ (each[:, None] * turned)
                left_out = float(np.square(dual / spread[:, penalty, None]).sum())
                if left_out < best:
                    best, weighted = left_out, np.exp(-towards / (width * middle)) @ dual
    guess: Floats = mean + unit * weighted
    return guess


def decoded(
    x: Floats, y: Floats, known: Indices, others: Indices, beside: Floats | None = None, *, hidden: int, seed: int
) -> Floats:
    """Guess the same by a network with a layer of ``hidden`` units.

    It is fitted to most of the known rows; the rest decide how far it is to be believed, against the mean: it fits
    noise, too.
    """
    from sklearn.exceptions import ConvergenceWarning  # slow to import
    from sklearn.neural_network import MLPRegressor

    x, (z, mean, unit) = scaled(x if beside is None else np.hstack([beside, x]), known), _standard(y)
    most = len(known) - max(1, len(known) // _HELD_OUT)
    decoder = MLPRegressor(
        hidden_layer_sizes=(hidden,),
        early_stopping=most > _FEWEST_STOPPED,
        n_iter_no_change=_PATIENCE,
        max_iter=_MOST_EPOCHS,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        decoder.fit(x[known[:most]], z[:most])
    tried = decoder.predict(x[known[most:]]).ravel()
    belief = tried @ z[most:].ravel() / max(tried @ tried, np.finfo(float).tiny)
    estimates: Floats = mean + unit * (decoder.predict(x[others]) * np.clip(belief, 0, 1)).reshape(len(others), -1)
    return estimates


def _inputs(x: Floats, known: Indices, beside: Floats | None) -> list[Floats]:
    """Return the possible inputs of a probe: a view, or features and the view with each weight."""
    x = scaled(x, known)
    return [x] if beside is None else [np.hstack([scaled(beside, known), weight * x]) for weight in _WEIGHTS]


def _kernel_distances(
    x: Floats, known: Indices, others: Indices, beside: Floats | None
) -> Iterator[tuple[Floats, Floats]]:
    """Yield squared distances among the known rows, and from the others to them, for each of ``_inputs``."""
    x = scaled(x, known)
    between, towards = (_squared_distances(x[rows], x[known]) for rows in (known, others))
    if beside is None:
        yield between, towards
        return
    beside = scaled(beside, known)
    near, far = (_squared_distances(beside[rows], beside[known]) for rows in (known, others))
    for weight in _WEIGHTS:
        yield near + weight**2 * between, far + weight**2 * towards


def _squared_distances(a: Floats, b: Floats) -> Floats:
    estimates: Floats = np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T, 0)
    return estimates


def _standard(y: Floats) -> tuple[Floats, Floats, float]:
    """Return features with means of 0 and a common unit, the means and the unit."""
    mean, unit = y.mean(0), max(float(y.std()), np.finfo(float).tiny)
    return (y - mean) / unit, mean, unit


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """One way to attack: its settings, and ``of``, which guesses from what has arrived about the rows in an order."""

    setting: Mapping[str, str]
    rows: int
    of: Callable[[Indices], T]

    @property
    def words(self) -> str:
        """Its settings, for a table: ``gradient, all, directions, kernel``."""
        return ", ".join(self.setting.values())

    @cached_property
    def guess(self) -> T:
        """What it guesses from what has really arrived."""
        return self.of(np.arange(self.rows))

    def control(self, bits: np.random.Generator) -> T:
        """Guess from what has arrived about other rows, in a random order: nothing is to be found there."""
        return self.of(bits.permutation(self.rows))


def strongest(
    attempts: Sequence[Attempt[T]], score: Callable[[Attempt[T], Indices], float], halves: tuple[Indices, Indices]
) -> Attempt[T]:
    """Return the attempt with the highest score on the first half of the rows; ties go to the first attempt.

    The other half, which nobody has chosen by, judges it. ``score`` takes an attempt and places of judged rows.

    Example::

        halves = halved(256, np.random.default_rng(0))
        best = strongest(attempts, score, halves)
        score(best, halves[1])
    """
    return max(attempts, key=lambda attempt: score(attempt, halves[0]))


def halved(rows: int, bits: np.random.Generator) -> tuple[Indices, Indices]:
    """Return the rows that choose an attacker and those that judge it: a random half each."""
    choosing, judging = np.array_split(bits.permutation(rows), 2)
    return np.sort(choosing), np.sort(judging)
