"""Features by solving equations: a server that knows the clients' linear models, and no row of their features."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated, ClassVar, Literal, TypeAlias, final

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from vflsim.attacks.base import AttackedRun, Measured
from vflsim.attacks.probes import AttackOfClients
from vflsim.attacks.reconstruction import explained
from vflsim.finished import TrainedModels, Uploads
from vflsim.protocol import Count, Floats, generator, party_name

Knows: TypeAlias = Literal["nothing", "means"]
View: TypeAlias = Literal["upload", "sum", "prediction"]
_TOLERANCE = 1e-3
"""The allowed relative difference of a float32 function from its affine approximation."""
_SMALLEST = 1e-5
"""Singular values below this share of the largest are 0."""


@dataclass(frozen=True, slots=True)
class Affine:
    """y = x W + b: ``weight`` (inputs, outputs) and ``bias`` (outputs,)."""

    weight: Floats
    bias: Floats


@dataclass(frozen=True, slots=True)
class Equations:
    """Σ_m x_m W_m = y for every row: ``weights`` W_m by client, (features, equations), and ``known`` y."""

    view: View
    weights: Mapping[int, Floats]
    known: Floats

    @property
    def count(self) -> int:
        """The number of independent equations."""
        w = np.concatenate([*self.weights.values()])
        return int(np.linalg.matrix_rank(w, tol=_SMALLEST * float(np.linalg.norm(w, 2))))

    def solved(self, origin: Mapping[int, Floats]) -> dict[int, Floats]:
        """Return the solution that is closest to ``origin``, (features,) by client: (rows, features) by client."""
        w = np.concatenate([*self.weights.values()])
        near = np.concatenate([origin[client] for client in self.weights])
        x = near + (self.known - near @ w) @ np.linalg.pinv(w, rcond=_SMALLEST)
        parts = np.split(x, np.cumsum([len(each) for each in self.weights.values()])[:-1], axis=1)
        return dict(zip(self.weights, parts, strict=True))


@final
class EquationSolving(AttackOfClients):
    """The server knows all clients' final models, which are linear, and solves for the features of new rows.

    This is the equality solving attack (Luo et al. 2021). The server has what clients upload for a prediction, where it
    sees single uploads (``upload``), else their sum (``sum``). A party with only the model and the class probabilities
    of a prediction has differences of logits (``prediction``), if they are linear in all uploads. Equations are solved
    by the pseudo-inverse. As many independent ones as features have one solution.
    """

    kind: Literal["equations"] = "equations"
    knows: Annotated[tuple[Knows, ...], Field(min_length=1)] = ("nothing", "means")
    """What the attacker knows of clients' features: ``nothing``, or their ``means`` over the training rows. Of all
    solutions it takes the one closest to zero, or to them."""
    rows: Count = 200
    """Test rows, at most."""
    title: ClassVar[str] = "features by solving equations"
    measures: ClassVar[Mapping[str, str]] = {"r2": "explained variance R²"}
    drawn: ClassVar[tuple[str, ...]] = ("r2",)
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"r2": (-math.inf, 1)}
    note: ClassVar[str] = (
        "R² over all features of test rows, relative to predicting their mean, whose R² is 0. The attacker knows the "
        "clients' models, and of their features nothing, or their means in training. The chance level is the R² of the "
        "solution of no equation: zeros, or these means. Equations are independent ones for a row, unknowns the "
        "features in them. Intervals in the Parquet table are over rows (bootstrap)"
    )

    def on(self, attacked: AttackedRun) -> Iterator[Measured]:
        """Solve for each client's features. Raises ``ValueError`` if a client's upload is not affine in them."""
        models, clients = attacked.models, self.clients(attacked)
        rows, uploads = attacked.rows(self.rows), attacked.uploads(self.rows)
        maps = maps_of(attacked)
        truth = {client: _flat(models.data.features[client - 1]["test"][rows]) for client in maps}
        received = {client: _flat(h) for client, h in uploads.received.items()}
        single = models.protocol.traits.shows_uploads and models.setting.blinding is None
        systems: list[Equations] = []
        if single:
            for client, each in maps.items():
                systems.append(Equations("upload", {client: each.weight}, received[client] - each.bias))
        elif len({each.weight.shape[1] for each in maps.values()}) == 1:
            known = sum(received[client] - each.bias for client, each in maps.items())
            systems.append(Equations("sum", {client: each.weight for client, each in maps.items()}, np.asarray(known)))
        try:
            systems.append(predicted(uploads, maps, models.data.task.name == "multiclass"))
        except ValueError as error:
            attacked.remarks.append(str(error))
        for equations, knows in product(systems, self.knows):
            origin = {
                client: _flat(models.data.features[client - 1]["train"]).mean(0) * (knows == "means") for client in maps
            }
            guesses = equations.solved(origin)
            for client in (each for each in clients if each in guesses):
                mean = truth[client].mean(0)
                bits = generator(attacked.run.seed, client, f"attack.equations/{equations.view}/{knows}")
                r2, low, high = explained(guesses[client], truth[client], mean, bits)
                chance = explained(np.broadcast_to(origin[client], truth[client].shape), truth[client], mean, bits)
                setting: dict[str, str | int] = {
                    "view": equations.view,
                    "knows": knows,
                    "equations": equations.count,
                    "unknowns": sum(len(each) for each in equations.weights.values()),
                }
                yield Measured("r2", r2, party_name(client), setting, low, high, *chance)


def maps_of(attacked: AttackedRun) -> dict[int, Affine]:
    """Return every client's upload as an affine function of its features, from its values at 0 and unit vectors.

    Raises ``ValueError`` if it is not affine.
    """
    models = attacked.models
    widths = {client: columns.stop - columns.start for client, columns in enumerate(models.data.columns, 1)}
    at = np.concatenate([np.zeros((1, most := max(widths.values()))), np.eye(most)])
    values_at: dict[int, list[Floats]] = {client: [] for client in models.learners.clients}
    for begin in range(0, len(at), count := len(models.data.labels["train"])):
        chunk = torch.from_numpy(at[begin : begin + count])
        joint = models.data.joint["train"].clone()
        for client, columns in enumerate(models.data.columns, 1):
            joint[: len(chunk), columns] = chunk[:, : widths[client]].to(joint.dtype)
        data = models.data.with_joint({**models.data.joint, "train": joint})
        probed = TrainedModels(attacked.run, attacked.scenario, data).embeddings("train")
        for client, values in values_at.items():
            values.append(_flat(probed[client][: len(chunk)]))
    maps = {}
    for client, values in values_at.items():
        y = np.concatenate(values)[: widths[client] + 1]
        maps[client] = Affine(y[1:] - y[0], y[0])
        x, sent = _flat(models.data.features[client - 1]["train"]), _flat(models.embeddings("train")[client])
        if not _close(x @ maps[client].weight + maps[client].bias, sent):
            raise ValueError(f"client {client}'s upload is no affine function of its features; allowed: linear clients")
    return maps


def predicted(uploads: Uploads, maps: Mapping[int, Affine], classes: bool) -> Equations:
    """Return the equations that predictions give for features.

    Of ``classes`` the attacker has probabilities, so differences of logits. Raises ``ValueError`` if predictions are
    not affine in the uploads.
    """
    heads = heads_of(uploads)
    known = _predict(uploads, uploads.received.__getitem__) - _predict(uploads, _nothing(uploads).__getitem__)
    known = known - sum(maps[client].bias @ head for client, head in heads.items())
    weights = {client: maps[client].weight @ head for client, head in heads.items()}
    if classes:
        weights, known = {client: np.diff(each, axis=1) for client, each in weights.items()}, np.diff(known, axis=1)
    return Equations("prediction", weights, known)


def heads_of(uploads: Uploads) -> dict[int, Floats]:
    """Return W_m of a prediction Σ_m h_m W_m plus what does not depend on uploads, (width, outputs) by client.

    Raises ``ValueError`` if it is not of that form.
    """
    received, nothing = uploads.received, _nothing(uploads)
    base = _predict(uploads, nothing.__getitem__)
    heads = {}
    for client, h in received.items():
        units = []
        for unit in torch.eye(h.shape[1], dtype=h.dtype):
            moved = {**nothing, client: unit.expand_as(h)}
            units.append(_predict(uploads, moved.__getitem__)[0] - base[0])
        heads[client] = np.stack(units)
    expected = base + sum(_flat(h) @ heads[client] for client, h in received.items())
    if not _close(expected, _predict(uploads, received.__getitem__)):
        raise ValueError("predictions are not linear in the uploads, so they are no equations; allowed: linear servers")
    return heads


def _nothing(uploads: Uploads) -> dict[int, Tensor]:
    return {client: torch.zeros_like(h) for client, h in uploads.received.items()}


def _predict(uploads: Uploads, of: Callable[[int], Tensor]) -> Floats:
    with torch.no_grad():
        return _flat(uploads.predict({client: of(client) for client in uploads.sent}))


def _close(values: Floats, truth: Floats) -> bool:
    return bool(np.abs(values - truth).max() <= _TOLERANCE * np.abs(truth).max())


def _flat(values: Tensor) -> Floats:
    numbers: Floats = values.detach().flatten(1).double().numpy()
    return numbers
