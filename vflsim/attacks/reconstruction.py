"""Reconstruction of parties' features from tensors that other parties have received."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias, final, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from vflsim.attacks.base import AttackedRun, Measured
from vflsim.attacks.probes import (
    STRONGEST,
    AttackOfClients,
    Attempt,
    Indices,
    decoded,
    halved,
    kernelled,
    linear,
    spread_of,
    strongest,
)
from vflsim.attacks.received_messages import Epochs, Form, Seen, remark_on_epochs, seen_of
from vflsim.finished import TableShape
from vflsim.protocol import SERVER, Count, Floats, Quantity, generator, party_name, torch_seed
from vflsim.scenario import LoadedData

Method: TypeAlias = Literal["linear", "kernel", "decoder"]
Beside: TypeAlias = Literal["none", "own", "others"]
Attacker: TypeAlias = Literal["server", "client", "clients", "two clients", "server and client"]
Probe: TypeAlias = Callable[[Floats, Floats, Indices, Indices, Floats | None], Floats]
"""Guesses features (others, features) from inputs, known rows' features, known and other rows, features beside."""
FEWEST = 20
"""The fewest recorded rows of a view that must have arrived."""


@final
class Reconstruction(AttackOfClients):
    """Other parties reconstruct a party's features from the views that the run has recorded.

    The attackers are the server, a client, all other clients together, two of them where there are more, and the server
    with a client. They know the features of some auxiliary rows, the strongest usual assumption, and fit a probe to
    them: ridge regression (``linear``), the same with a Gaussian kernel (``kernel``), both with penalties by
    leave-one-out, or a small network (``decoder``). The other rows judge it. The strongest of all these attempts is
    chosen on half of them, and judged on the other half.
    """

    kind: Literal["reconstruction"] = "reconstruction"
    attacker: Annotated[tuple[Attacker, ...], Field(min_length=1)] = get_args(Attacker)
    """Who attacks: one party, or several that show each other all that they have."""
    method: Annotated[tuple[Method, ...], Field(min_length=1)] = ("linear", "kernel")
    """How features are reconstructed."""
    epochs: Annotated[tuple[Epochs, ...], Field(min_length=1)] = ("all",)
    """What arrived ``last`` about a row, or ``all`` that ever did; the last, too, if the run has kept no more."""
    form: Annotated[tuple[Form, ...], Field(min_length=1)] = ("values", "directions", "means")
    """How a probe reads what has arrived: its ``values``, ``directions`` and lengths, ``means`` over all epochs, or
    ``differences`` from one epoch to the next."""
    features: Annotated[tuple[Beside, ...], Field(min_length=1)] = ("none", "own", "others")
    """Features of the same rows beside the view: ``none``, the attacker's ``own``, or those of all ``others`` than the
    party, as if they had joined forces."""
    auxiliary: Annotated[float, Quantity(above=0, at_most=0.9)] = 0.5
    """The share of the rows that have arrived whose features the attacker knows."""
    hidden: Count = 128
    """The width of the decoder's hidden layer."""
    title: ClassVar[str] = "reconstruction of a party's features"
    measures: ClassVar[Mapping[str, str]] = {
        "r2": "explained variance R²",
        "partial_r2": "partial R²",
        "control": "control: R² of rows out of order",
    }
    drawn: ClassVar[tuple[str, ...]] = ("r2",)
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = dict.fromkeys(drawn, (-math.inf, 1))
    note: ClassVar[str] = (
        "A lower bound: cleverer attackers find more, and clients together what one of them does. R² over all features "
        "of the rows that the attacker does not know: 1 − R² is the mean square error relative to that of predicting "
        "the mean, whose R² is 0. Its chance level is the R² of the features beside the view alone; partial R² is the "
        "share of what these leave over that the view explains. The control is the same of what has arrived about "
        "other rows. Intervals in the Parquet table are over rows (bootstrap)"
    )

    def on(self, attacked: AttackedRun) -> Iterator[Measured]:
        """Attack each party by each attacker with each of its views, and all of them."""
        views, data = attacked.run.views(), attacked.models.data
        for party in self._targets(attacked):
            try:
                y = numeric(_of(data, party)[views.rows], _shape(data, party))
            except ValueError as error:
                attacked.remarks.append(f"{party_name(party)}: {error}")
                continue
            for attacker, members in self._attackers(attacked, party):
                names = [party_name(member) for member in members]
                seens = []
                for seen in seen_of(views.views, party_name(party), attacker, names):
                    if seen.received.sum() >= FEWEST:
                        seens.append(seen)
                        continue
                    attacked.remarks.append(
                        f"fewer than {FEWEST} recorded rows of {party_name(party)} have arrived as {seen.name}"
                    )
                if seens:
                    beside = {kind: self._beside(attacked, kind, party, members, views.rows) for kind in self.features}
                    yield from self._by(attacked, party, attacker, seens, y, beside)
        remark_on_epochs(attacked, self.epochs)

    def _attackers(self, attacked: AttackedRun, party: int) -> Iterator[tuple[Attacker, list[int]]]:
        """Yield the names of attackers, and who they are: the first other client represents all single ones."""
        clients = [each for each in attacked.models.learners.clients if each != party]
        server = [] if party == SERVER else [SERVER]
        members: dict[Attacker, list[int]] = {
            "server": server,
            "client": clients[:1],
            "clients": clients if len(clients) > 1 else [],
            "two clients": clients[:2] if len(clients) > 2 else [],
            "server and client": [*server, *clients[:1]] if server and clients else [],
        }
        yield from ((name, who) for name, who in members.items() if name in self.attacker and who)

    def _by(
        self,
        attacked: AttackedRun,
        party: int,
        attacker: str,
        seens: Sequence[Seen],
        y: Floats,
        beside: Mapping[Beside, Floats | None],
    ) -> Iterator[Measured]:
        seed = attacked.run.seed
        rows = np.flatnonzero(np.any([seen.received for seen in seens], axis=0))
        order = generator(seed, party, f"attack.reconstruction/{attacker}").permutation(len(rows))
        known, others = np.split(order, [max(2, round(self.auxiliary * len(rows)))])
        truth, mean = y[rows], y[rows][known].mean(0)
        probes = self._probes(torch_seed(seed, party, f"attack.decoder/{attacker}") % 2**32)
        for kind, features in beside.items():
            if kind != "none" and features is None:
                continue
            more = None if features is None else features[rows]
            judge = _Judge(party_name(party), attacker, kind, truth[others], mean)
            base = {
                method: np.broadcast_to(mean, truth[others].shape)
                if more is None
                else probe(more, truth[known], known, others, None)
                for method, probe in probes.items()
            }
            attempts = list[Attempt[Floats]]()
            for seen in seens:
                there = seen.received[rows]
                for epochs, form in product(seen.epochs(self.epochs), self.form):
                    inputs = seen.inputs(epochs, form)
                    if inputs is None or there[known].sum() < 2 or not there[others].any():
                        continue
                    for method, probe in probes.items():
                        fit = _Fit(probe, inputs[rows], truth[known], known, others, there, more, base[method])
                        setting = {"view": seen.name, "epochs": epochs, "form": form, "method": method}
                        attempt = Attempt[Floats](setting, len(rows), fit)
                        attempts.append(attempt)
                        bits = generator(seed, party, f"attack.reconstruction/{attacker}/{kind}/{attempt.words}")
                        arrived = np.flatnonzero(there[others])
                        yield from judge.measured(attempt.guess, base[method], arrived, setting, bits)
            if attempts:
                bits = generator(seed, party, f"attack.reconstruction/{attacker}/{kind}/{STRONGEST}")
                yield from judge.strongest(attempts, base, bits)

    def _probes(self, seed: int) -> dict[str, Probe]:
        probes: dict[Method, Probe] = {
            "linear": linear,
            "kernel": kernelled,
            "decoder": partial(decoded, hidden=self.hidden, seed=seed),
        }
        return {method: probes[method] for method in self.method}

    def _targets(self, attacked: AttackedRun) -> list[int]:
        """Return the parties whose features are attacked: clients, and the active party where its features count."""
        clients = self.clients(attacked)
        used = attacked.models.setting.active_model is not None and attacked.models.data.active is not None
        return [*clients, SERVER] if used and self.client == "each" else clients

    def _beside(
        self, attacked: AttackedRun, kind: Beside, party: int, members: Sequence[int], rows: Indices
    ) -> Floats | None:
        """Return features of other parties that have numbers, (recorded rows, columns); None if there are none."""
        data = attacked.models.data
        active = [] if data.active is None else [SERVER]
        holders = [each for each in (*active, *attacked.models.learners.clients) if each != party]
        chosen = {"none": [], "own": [each for each in holders if each in members], "others": holders}[kind]
        parts = []
        for holder in chosen:
            try:
                parts.append(numeric(_of(data, holder)[rows], _shape(data, holder)))
            except ValueError:  # there are only categories
                continue
        return np.hstack(parts) if parts else None


@dataclass(frozen=True, eq=False)
class _Fit:
    """Fits a probe to the known rows that have arrived; what else there is says all about the others (``base``)."""

    probe: Probe
    inputs: Floats
    features: Floats
    known: Indices
    others: Indices
    there: NDArray[np.bool_]
    beside: Floats | None
    base: Floats

    def __call__(self, order: Indices) -> Floats:
        """Guess the features of the other rows, (others, features), from inputs in this order."""
        inputs, there = self.inputs[order], self.there[order]
        known, others = there[self.known], there[self.others]
        guess = self.base.copy()
        if known.sum() > 1 and others.any():
            guess[others] = self.probe(
                inputs, self.features[known], self.known[known], self.others[others], self.beside
            )
        return guess


@dataclass(frozen=True, eq=False)
class _Judge:
    """Judges guesses of a party's features by their ``truth`` (others, features), beside features of a ``kind``.

    ``mean`` (features,) is that of the known rows.
    """

    party: str
    attacker: str
    kind: Beside
    truth: Floats
    mean: Floats

    def measured(
        self,
        guess: Floats,
        alone: Floats,
        rows: Indices,
        setting: Mapping[str, str],
        bits: np.random.Generator,
        chosen: str = "",
    ) -> Iterator[Measured]:
        """Yield R² of a guess of some rows and, with features beside, what it explains beyond these ``alone``."""
        whole = {"attacker": self.attacker, **setting, "features": self.kind}
        truth, r2 = self.truth[rows], explained(guess[rows], self.truth[rows], self.mean, bits)
        if self.kind == "none":
            yield Measured("r2", r2.r2, self.party, whole, r2.low, r2.high, 0.0, chosen=chosen)
            return
        base, more = explained(alone[rows], truth, self.mean, bits), explained(guess[rows], truth, alone[rows], bits)
        yield Measured("r2", r2.r2, self.party, whole, r2.low, r2.high, *base, chosen=chosen)
        yield Measured("partial_r2", more.r2, self.party, whole, more.low, more.high, 0.0, chosen=chosen)

    def strongest(
        self, attempts: Sequence[Attempt[Floats]], base: Mapping[str, Floats], bits: np.random.Generator
    ) -> Iterator[Measured]:
        """Yield what the strongest attempt finds, beside the strongest of the features alone, and its control."""
        choosing, judging = halves = halved(len(self.truth), bits)

        def missed(guess: Floats) -> float:
            return float(((self.truth - guess)[choosing] ** 2).sum())

        best = strongest(attempts, lambda attempt, _: -missed(attempt.guess), halves)
        alone = min(base.values(), key=missed)
        setting = dict.fromkeys(("view", "epochs", "form", "method"), STRONGEST)
        yield from self.measured(best.guess, alone, judging, setting, bits, best.words)
        beyond = self.mean if self.kind == "none" else alone[judging]
        control = explained(best.control(bits)[judging], self.truth[judging], beyond, bits)
        whole = {"attacker": self.attacker, **setting, "features": self.kind}
        yield Measured("control", control.r2, self.party, whole, control.low, control.high, chosen=best.words)


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
        raise ValueError("it has only categories, and R² is about numbers")
    return x[:, codes == 0]


def _of(data: LoadedData, party: int) -> Tensor:
    if party == SERVER:
        assert data.active is not None, "the server holds features"
        return data.active["train"]
    return data.features[party - 1]["train"]


def _shape(data: LoadedData, party: int) -> tuple[int, ...]:
    return data.active_shape if party == SERVER else data.shapes[party - 1]
