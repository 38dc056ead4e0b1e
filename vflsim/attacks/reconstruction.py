"""Reconstruction of clients' features from what other parties have received of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias, final

import numpy as np
from pydantic import Field
from torch import Tensor

from vflsim.attacks.base import AttackedRun, Measured
from vflsim.attacks.probing import AttackOfClients, Indices, numbers, scaled, spread_of
from vflsim.learning.models.tables import TableShape
from vflsim.results.statistics import Floats
from vflsim.results.views import PartyView
from vflsim.streams import generator, party_name, torch_seed
from vflsim.vocabulary.quantities import Count, Quantity

Method: TypeAlias = Literal["linear", "decoder"]
FEWEST = 20
"""Recorded rows of a view that must have arrived."""
_PENALTIES = np.logspace(-6, 6, 25)
_MOST_EPOCHS, _PATIENCE, _HELD_OUT = 500, 30, 5


@final
class Reconstruction(AttackOfClients):
    """Another party, mostly the server, reconstructs a client's features from the view that the run has recorded.

    It knows the features of some auxiliary rows, the strongest usual assumption, and fits a probe to them: ridge
    regression (``linear``), its penalty by leave-one-out, or a small network (``decoder``). The other rows judge it.
    """

    kind: Literal["reconstruction"] = "reconstruction"
    method: Annotated[tuple[Method, ...], Field(min_length=1)] = ("linear", "decoder")
    """How features are reconstructed."""
    auxiliary: Annotated[float, Quantity(above=0, at_most=0.9)] = 0.5
    """The share of the rows that have arrived whose features the attacker knows."""
    hidden: Count = 128
    """The width of the decoder's hidden layer."""
    title: ClassVar[str] = "reconstruction of a client's features"
    measures: ClassVar[Mapping[str, str]] = {"r2": "explained variance R²"}
    drawn: ClassVar[tuple[str, ...]] = ("r2",)
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"r2": (-math.inf, 1)}
    note: ClassVar[str] = (
        "R² over all features of the rows that the attacker does not know: 1 − R² is the mean square error relative to "
        "that of predicting the mean, whose R² is 0. An attack on noise is at 0 or below. Features of other clients "
        "that resemble this one's raise R² where a view is a sum over clients. Intervals in the Parquet table are over "
        "rows (bootstrap)"
    )

    def on(self, attacked: AttackedRun) -> Iterator[Measured]:
        """Attack each client with each view of it, and each method."""
        views, seed, data = attacked.run.views(), attacked.run.seed, attacked.models.data
        for client in self.clients(attacked):
            features = numeric(data.features[client - 1]["train"][views.rows], data.shapes[client - 1])
            for attacker, name, view in views_of(views.views, client):
                rows = np.flatnonzero(view.received)
                if len(rows) < FEWEST:
                    attacked.remarks.append(
                        f"fewer than {FEWEST} recorded rows of {party_name(client)} have arrived as {name}"
                    )
                    continue
                bits = generator(seed, client, f"attack.reconstruction/{view.path}")
                order = bits.permutation(len(rows))
                known, others = np.split(order, [max(2, round(self.auxiliary * len(rows)))])
                for method in self.method:
                    place = torch_seed(seed, client, f"attack.decoder/{view.path}") % 2**32
                    x, y = numbers(view.values[rows]), features[rows]
                    guess = self.reconstructed(x, y[known], known, others, method, place)
                    found = explained(guess, y[others], y[known].mean(0), bits)
                    yield Measured("r2", found.r2, party_name(client), _setting(attacker, name, method),
                                   found.low, found.high, 0.0)  # fmt: skip

    def reconstructed(self, x: Floats, y: Floats, known: Indices, others: Indices, method: Method, seed: int) -> Floats:
        """Return the features of rows ``others`` as a probe guesses them from ``x``: (others, features).

        ``y`` are the features of the rows ``known``. A decoder is fitted to most of them; the rest decide how far it is
        to be believed, against the mean: it fits noise, too.
        """
        from sklearn.exceptions import ConvergenceWarning  # slow to import
        from sklearn.linear_model import RidgeCV
        from sklearn.neural_network import MLPRegressor

        x, mean = scaled(x, known), y.mean(0)
        unit = max(float(y.std()), np.finfo(float).tiny)
        z = (y - mean) / unit
        if method == "linear":
            guess = RidgeCV(_PENALTIES).fit(x[known], z).predict(x[others])
        else:
            most = len(known) - max(1, len(known) // _HELD_OUT)
            decoder = MLPRegressor(
                hidden_layer_sizes=(self.hidden,),
                early_stopping=True,
                n_iter_no_change=_PATIENCE,
                max_iter=_MOST_EPOCHS,
                random_state=seed,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                decoder.fit(x[known[:most]], z[:most])
            tried = decoder.predict(x[known[most:]]).ravel()
            belief = tried @ z[most:].ravel() / max(tried @ tried, np.finfo(float).tiny)
            guess = decoder.predict(x[others]) * np.clip(belief, 0, 1)
        found: Floats = mean + unit * guess.reshape(len(others), -1)
        return found


class Explained(NamedTuple):
    """R², and its 95 % interval over rows."""

    r2: float
    low: float
    high: float


def explained(guess: Floats, truth: Floats, mean: Floats, bits: np.random.Generator) -> Explained:
    """Return how much of the square deviation from ``mean`` a guess explains, over all rows and features."""
    missed, there = ((truth - guess) ** 2).sum(1), ((truth - mean) ** 2).sum(1)

    def r2(rows: Indices | slice) -> float:
        return 1 - float(missed[rows].sum()) / max(float(there[rows].sum()), np.finfo(float).tiny)

    return Explained(r2(slice(None)), *spread_of(r2, len(truth), bits))


def views_of(views: tuple[PartyView, ...], client: int) -> Iterator[tuple[str, str, PartyView]]:
    """Yield attacker, name and view for every view that is about a client's features.

    Those are the client's own messages, tensors that others pass on under its name, and what the server computes from
    all clients' messages. Of clients that receive the same kind of message from it, the first stands for all.
    """
    own, seen = party_name(client), set[tuple[str, str]]()
    for view in views:
        whole_sum = view.derived and not view.name.startswith("client-")
        if view.receiver == own or not (own in (view.sender, view.name) or whole_sum):
            continue
        attacker = "server" if view.receiver == "server" else "client"
        named = "" if view.name == own else view.name
        name = "/".join(filter(None, ("derived " * view.derived + view.kind, named)))
        if (attacker, name) not in seen:
            seen.add((attacker, name))
            yield attacker, name, view


def numeric(features: Tensor, shape: tuple[int, ...]) -> Floats:
    """Return the columns that hold numbers, not codes of categories: (rows, columns), float64.

    Raises ``ValueError`` if there are none.
    """
    x: Floats = features.flatten(1).double().numpy()
    codes = np.array(shape.cardinalities if isinstance(shape, TableShape) else [0] * x.shape[1])
    if codes.all():
        raise ValueError("a client has only categories, and R² is about numbers")
    return x[:, codes == 0]


def _setting(attacker: str, view: str, method: Method) -> dict[str, str]:
    return {"attacker": attacker, "view": view, "method": method}
