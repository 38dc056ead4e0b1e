"""Reconstruction of parties' features from tensors that other parties have received."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from vflsim.attacks.base import AttackedRun, Measured
from vflsim.attacks.probing import AttackOfClients, Indices, decoded, kernelled, linear, numbers, spread_of
from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.models.tabular import TableShape
from vflsim.protocol import SERVER, Count, generator, party_name, torch_seed
from vflsim.results.store.views import PartyView
from vflsim.timing.floats import Floats
from vflsim.vocabulary.quantities import Quantity

Epochs: TypeAlias = Literal["last", "all"]
EVERYTHING = "everything"
"""The name of all real views of an attacker, side by side."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What ``attacker`` (a party) has received in one of its views, or in all of them: ``name``."""

    attacker: str
    name: str
    views: tuple[PartyView, ...]
    received: NDArray[np.bool_]

    @property
    def path(self) -> str:
        """The key of the attack's random numbers."""
        return self.views[0].path if self.name != EVERYTHING else f"{self.attacker}/{EVERYTHING}"

    def inputs(self, epochs: Epochs) -> Floats | None:
        """Return numbers about every recorded row, (recorded rows, inputs), NaN where nothing has arrived.

        The arrivals of ``all`` epochs stand side by side, by their number; None if the run has kept the last alone.
        """
        parts = [_last(view) if epochs == "last" else _all(view) for view in self.views]
        found = [part for part in parts if part is not None]
        return np.hstack(found) if len(found) == len(parts) else None


def _last(view: PartyView) -> Floats:
    x = np.array(numbers(view.values))
    x[~view.received] = np.nan
    return x


def _all(view: PartyView) -> Floats | None:
    if view.arrivals is None:
        return None
    x, number = numbers(view.arrivals.values), view.arrivals.number
    table = np.full((len(view.received), number.max() + 1, x.shape[1]), np.nan)
    table[view.arrivals.row, number] = x
    return table.reshape(len(table), -1)


def seen_of(views: Collection[PartyView], party: str, attacker: str) -> Iterator[Seen]:
    """Yield the attacker's views that depend on the features of ``party`` one by one, and then all together.

    The server has the party's own messages, and what it computes from all clients' messages. A client has the party's
    messages to it, what others pass on under the party's name, and all else that comes from the server, which depends
    on every party: gradients, too. Everything is all real tensors that the attacker has, those about others as well:
    features of different parties resemble each other.
    """
    own = [view for view in views if view.receiver == attacker]
    about = [view for view in own if _about(view, party, attacker)]
    for view in about:
        named = "" if view.name == party else view.name
        name = "/".join(filter(None, ("derived " * view.derived + view.kind, named)))
        yield Seen(attacker, name, (view,), view.received)
    real = tuple(view for view in own if view.values.dtype.is_floating_point)
    if about and len(real) > 1:
        yield Seen(attacker, EVERYTHING, real, np.any([view.received for view in about], axis=0))


def _about(view: PartyView, party: str, attacker: str) -> bool:
    if party in (view.sender, view.name):
        return not _of_a_party(view.name) or view.name == party
    return not _of_a_party(view.name) and (view.derived or (attacker != "server" and view.sender == "server"))


def _of_a_party(name: str) -> bool:
    """Return whether a tensor is one party's, passed on or computed under its name."""
    return name == "server" or name.startswith("client-")


Method: TypeAlias = Literal["linear", "kernel", "decoder"]
Beside: TypeAlias = Literal["none", "own", "others"]
RIDGES = {"linear": linear, "kernel": kernelled}
"""Probes that take features beside a view."""
FEWEST = 20
"""The fewest recorded rows of a view that must have arrived."""


@final
class Reconstruction(AttackOfClients):
    """Another party, the server or a client, reconstructs a party's features from the views that the run has recorded.

    It knows the features of some auxiliary rows, the strongest usual assumption, and fits a probe to them: ridge
    regression (``linear``), the same with a Gaussian kernel (``kernel``), both with penalties by leave-one-out, or a
    small network (``decoder``). The other rows judge it.
    """

    kind: Literal["reconstruction"] = "reconstruction"
    method: Annotated[tuple[Method, ...], Field(min_length=1)] = ("linear", "kernel", "decoder")
    """How features are reconstructed."""
    epochs: Annotated[tuple[Epochs, ...], Field(min_length=1)] = ("last", "all")
    """What arrived ``last`` about a row, or ``all`` that ever did, if the run has kept it (``keep: all``)."""
    features: Annotated[tuple[Beside, ...], Field(min_length=1)] = ("none", "own", "others")
    """Features of the same rows beside the view, for both ridges: ``none``, the attacker's ``own``, or those of
    all ``others`` than the party, as if they had joined forces."""
    auxiliary: Annotated[float, Quantity(above=0, at_most=0.9)] = 0.5
    """The share of the rows that have arrived whose features the attacker knows."""
    hidden: Count = 128
    """The width of the decoder's hidden layer."""
    title: ClassVar[str] = "reconstruction of a party's features"
    measures: ClassVar[Mapping[str, str]] = {"r2": "explained variance R²", "partial_r2": "partial R²"}
    drawn: ClassVar[tuple[str, ...]] = ("r2",)
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = dict.fromkeys(drawn, (-math.inf, 1))
    note: ClassVar[str] = (
        "R² over all features of the rows that the attacker does not know: 1 − R² is the mean square error relative to "
        "that of predicting the mean, whose R² is 0. Its chance level is the R² of the features beside the view alone; "
        "partial R² is the share of what these leave over that the view explains. Intervals in the Parquet table are "
        "over rows (bootstrap)"
    )

    def on(self, attacked: AttackedRun) -> Iterator[Measured]:
        """Attack each party by each attacker with each of its views, and all of them."""
        views, seed, data = attacked.run.views(), attacked.run.seed, attacked.models.data
        for party in self._targets(attacked):
            y = numeric(_of(data, party)[views.rows], _shape(data, party))
            attackers = [SERVER, *attacked.models.learners.clients]
            attackers = [each for each in attackers if each != party]
            server, clients = [each for each in attackers if each == SERVER], [each for each in attackers if each]
            for attacker in [*server, *clients[:1]]:  # the first client represents all clients
                beside = {kind: self._beside(attacked, kind, party, attacker, views.rows) for kind in self.features}
                for seen in seen_of(views.views, party_name(party), party_name(attacker)):
                    rows = np.flatnonzero(seen.received)
                    if len(rows) < FEWEST:
                        attacked.remarks.append(
                            f"fewer than {FEWEST} recorded rows of {party_name(party)} have arrived as {seen.name}"
                        )
                        continue
                    order = generator(seed, party, f"attack.reconstruction/{seen.path}").permutation(len(rows))
                    yield from self._with(attacked, seen, party, y, beside, rows, order)
        if "all" in self.epochs and not any(view.arrivals for view in views):
            attacked.remarks.append("all epochs: only the last was kept (record: {views: {rows: 512, keep: all}})")

    def _with(
        self,
        attacked: AttackedRun,
        seen: Seen,
        party: int,
        y: Floats,
        beside: Mapping[Beside, Floats | None],
        rows: Indices,
        order: Indices,
    ) -> Iterator[Measured]:
        seed, truth = attacked.run.seed, y[rows]
        known, others = np.split(order, [max(2, round(self.auxiliary * len(rows)))])
        mean, target = truth[known].mean(0), truth[others]
        for epochs in self.epochs:
            inputs = seen.inputs(epochs)
            if inputs is None:
                continue
            x = inputs[rows]
            for method in self.method:
                for kind, features in beside.items():
                    if kind != "none" and (features is None or method == "decoder"):
                        continue
                    known_too = None if features is None else features[rows]
                    purpose = f"attack.reconstruction/{seen.path}/{method}/{epochs}/{kind}"
                    if method != "decoder":
                        guess = RIDGES[method](x, truth[known], known, others, known_too)
                    else:
                        place = torch_seed(seed, party, f"attack.decoder/{seen.path}") % 2**32
                        guess = decoded(x, truth[known], known, others, self.hidden, place)
                    whose = "server" if seen.attacker == "server" else "client"
                    setting = {"attacker": whose, "view": seen.name, "epochs": epochs, "features": kind,
                               "method": method}  # fmt: skip
                    found = explained(guess, target, mean, generator(seed, party, purpose))
                    if known_too is None:
                        yield Measured("r2", found.r2, party_name(party), setting, found.low, found.high, 0.0)
                        continue
                    alone = RIDGES[method](known_too, truth[known], known, others)
                    base = explained(alone, target, mean, generator(seed, party, f"{purpose}/alone"))
                    yield Measured("r2", found.r2, party_name(party), setting, found.low, found.high, *base)
                    more = explained(guess, target, alone, generator(seed, party, f"{purpose}/partial"))
                    yield Measured("partial_r2", more.r2, party_name(party), setting, more.low, more.high, 0.0)

    def _targets(self, attacked: AttackedRun) -> list[int]:
        """Return the parties whose features are attacked: clients, and the active party where its features count."""
        clients = self.clients(attacked)
        used = attacked.models.setting.active_model is not None and attacked.models.data.active is not None
        return [*clients, SERVER] if used and self.client == "each" else clients

    def _beside(self, attacked: AttackedRun, kind: Beside, party: int, attacker: int, rows: Indices) -> Floats | None:
        """Return features of other parties that have numbers, (recorded rows, columns); None if there are none."""
        data = attacked.models.data
        active = [] if data.active is None else [SERVER]
        holders = [each for each in (*active, *attacked.models.learners.clients) if each != party]
        chosen = {"none": [], "own": [each for each in holders if each == attacker], "others": holders}[kind]
        found = []
        for holder in chosen:
            try:
                found.append(numeric(_of(data, holder)[rows], _shape(data, holder)))
            except ValueError:  # there are only categories
                continue
        return np.hstack(found) if found else None


class Explained(NamedTuple):
    """R², and its 95 % interval over rows."""

    r2: float
    low: float
    high: float


def explained(guess: Floats, truth: Floats, base: Floats, bits: np.random.Generator) -> Explained:
    """Return the share of the square deviation from ``base`` that a guess explains, over all rows and features.

    ``base`` is a mean, or another guess: then it is the partial R² of what the guess knows beyond that.
    """
    missed, there = ((truth - guess) ** 2).sum(1), ((truth - base) ** 2).sum(1)

    def r2(rows: Indices | slice) -> float:
        return 1 - float(missed[rows].sum()) / max(float(there[rows].sum()), np.finfo(float).tiny)

    return Explained(r2(slice(None)), *spread_of(r2, len(truth), bits))


def numeric(features: Tensor, shape: tuple[int, ...]) -> Floats:
    """Return the columns that hold numbers, not codes of categories: (rows, columns), float64.

    Raises ``ValueError`` if there are none.
    """
    x: Floats = features.flatten(1).double().numpy()
    codes = np.array(shape.cardinalities if isinstance(shape, TableShape) else [0] * x.shape[1])
    if codes.all():
        raise ValueError("a client has only categories, and R² is about numbers")
    return x[:, codes == 0]


def _of(data: LoadedData, party: int) -> Tensor:
    """Return a party's training features."""
    if party == SERVER:
        assert data.active is not None, "the server holds features"
        return data.active["train"]
    return data.features[party - 1]["train"]


def _shape(data: LoadedData, party: int) -> tuple[int, ...]:
    return data.active_shape if party == SERVER else data.shapes[party - 1]
