"""Inference of labels by a client, from the gradients that it has received and from its own model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, final, get_args

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from vflsim.attacks.base import AttackedRun, Measured, need_classes, truth_of
from vflsim.attacks.label_scores import (
    HEADS,
    Classes,
    Method,
    applies,
    auc,
    balanced_accuracy,
    class_scores,
    known_rows,
    named_accuracy,
    unaided_scores,
)
from vflsim.attacks.probes import (
    STRONGEST,
    AttackOfClients,
    Attempt,
    Indices,
    by_chance,
    halved,
    numbers,
    spread_of,
    strongest,
)
from vflsim.attacks.received_messages import EVERYTHING, Epochs, Seen, remark_on_epochs
from vflsim.finished import PartyView
from vflsim.protocol import Floats, Quantity, generator, party_name, torch_seed

_FORMS: Mapping[Method, Literal["values", "units", "directions"]] = {
    "sign": "values",
    "norm": "values",
    "clusters": "units",
    "cosine": "units",
    "spreading": "units",
    "regression": "directions",
}
"""How methods read gradients; others look at the client's own model."""
_OF_ALL_EPOCHS = ("clusters", "cosine", "spreading", "regression")
_OWN_MODEL = "own model"


@final
class LabelInference(AttackOfClients):
    """Clients infer the labels of training rows; they know none of them, or those of a few rows of each class.

    An attacker is a client, the first two of more together, or all of them. From the gradients that they have received,
    without any label: ``sign`` takes the last one by logits, (rows, classes), whose one negative element is the row's
    class: ∂ℓ/∂o = softmax(o) − onehot(y). ``norm`` takes the last one's length (two classes: the rarer one has the
    longer ones, Li et al. 2022), ``clusters`` groups directions, of the last gradients or of those of all epochs side
    by side. The nodes of trees that a client sees rows in count as gradients, as do the residuals it solves for.

    With a few labels: ``norm`` and ``cosine`` take the class whose known gradients are as long, or point the same way
    (Li et al. 2022, and for several classes the nearest mean). ``clusters`` have the names that suit the known rows
    best. ``spreading`` passes labels on between rows whose gradients point the same way (Zhou et al. 2004).
    ``regression`` is logistic on directions and lengths; as ``everything`` on all gradients beside the client's own
    model. ``completion`` puts a head, logistic regression on the known rows, on the client's own trained model (Fu
    et al. 2022, without semi-supervision); ``untrained`` does so on its initial model: what features alone give away.

    The strongest of all these attempts is chosen on half of the rows, and judged on the other half.
    """

    kind: Literal["label_inference"] = "label_inference"
    method: Annotated[tuple[Method, ...], Field(min_length=1)] = get_args(Method)
    """How labels are inferred."""
    epochs: Annotated[tuple[Epochs, ...], Field(min_length=1)] = ("all",)
    """The ``last`` gradient of a row, or those of ``all`` epochs; the last, too, if the run has kept no more."""
    known: Annotated[tuple[Annotated[int, Quantity(at_least=0, whole=True)], ...], Field(min_length=1)] = (0, 4)
    """Rows of each class whose labels the client knows; methods that cannot do without any begin at 1."""
    title: ClassVar[str] = "label inference by clients"
    measures: ClassVar[Mapping[str, str]] = {"auc": "AUC", "balanced_accuracy": "balanced accuracy"}
    drawn: ClassVar[tuple[str, ...]] = ("auc", "balanced_accuracy")
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"auc": (0, 1), "balanced_accuracy": (0, 1)}
    note: ClassVar[str] = (
        "A lower bound: cleverer attackers find more, and clients together what one of them does. On recorded rows "
        "whose labels the client does not know: AUC for two classes (chance 0.5), balanced accuracy for more (chance 1 "
        "/ classes). Clusters without known rows have the names that suit them best, for their chance level, too. What "
        "completion finds beyond untrained, training has given away. Intervals in the Parquet table are over rows "
        "(bootstrap), those of chance over permuted labels"
    )

    def on(self, attacked: AttackedRun) -> Iterator[Measured]:
        """Attack with each client and with all of them, each tensor that comes from the server, and each method."""
        views, models, seed = attacked.run.views(), attacked.models, attacked.run.seed
        clients = self.clients(attacked)
        need_classes(models.data.task)
        labels = truth_of(models.data.labels["train"][torch.from_numpy(views.rows)], models.data.task).numpy()
        classes = 2 if models.data.task.name == "binary" else models.data.outputs
        learners = {"completion": models.learners.clients}
        if "untrained" in self.method:
            learners["untrained"] = models.protocol.learners(models.setting, seed).clients
        h = {
            method: {client: _embeddings(each[client])[torch.from_numpy(views.rows)] for client in clients}
            for method, each in learners.items()
            if method in self.method
        }
        together = [
            *([("two clients", clients[:2])] if len(clients) > 2 else []),
            *([("clients", clients)] if len(clients) > 1 else []),
        ]
        for attacker, members in [*((party_name(client), [client]) for client in clients), *together]:
            seens = gradients_of(views.views, attacker, [party_name(member) for member in members])
            models_of = {method: np.hstack([numbers(each[m]) for m in members]) for method, each in h.items()}
            rows = (
                np.flatnonzero(np.any([seen.received for seen in seens], axis=0)) if seens else np.arange(len(labels))
            )
            for count in self.known:
                bits = generator(seed, members[0], f"attack.known_labels/{len(members)}")
                try:
                    known, others = known_rows(labels[rows], classes, count, bits)
                except ValueError as error:
                    attacked.remarks.append(f"{attacker}: {error}")
                    continue
                of = _Rows(rows, labels[rows], known, others, classes, np.bincount(labels, minlength=classes))
                yield from self._on_rows(seed, attacker, members[0], seens, models_of, of)
        remark_on_epochs(attacked, self.epochs)

    def _on_rows(
        self, seed: int, attacker: str, member: int, seens: Sequence[Seen], models: Mapping[Method, Floats], of: _Rows
    ) -> Iterator[Measured]:
        key, count = f"attack.label_inference/{attacker}", len(of.known) // of.classes
        attempts = list(self._attempts(seens, models, of, torch_seed(seed, member, key) % 2**32))
        whose = attacker.partition("-")[0]
        setting: Mapping[str, int | str]
        for attempt in attempts:
            setting = {"attacker": whose, **attempt.setting, "known": count}
            bits = generator(seed, member, f"{key}/{attempt.words}/{count}")
            every = np.arange(len(of.others))
            yield of.measured(attempt, every, attacker, setting, bits, [attempt], (every, every))
        some = [attempt for attempt in attempts if attempt.setting["method"] != "untrained"]
        if some:
            bits = generator(seed, member, f"{key}/{STRONGEST}/{count}")
            halves = halved(len(of.others), bits)
            best = strongest(some, of.score, halves)
            setting = {"attacker": whose, **dict.fromkeys(("view", "epochs", "method"), STRONGEST), "known": count}
            yield of.measured(best, halves[1], attacker, setting, bits, some, halves, best.words)

    def _attempts(
        self, seens: Sequence[Seen], models: Mapping[Method, Floats], of: _Rows, place: int
    ) -> Iterator[Attempt[Floats]]:
        """Yield an attempt for each view, epochs and method that are defined."""
        aided = len(of.known) > 0
        for seen, method in product(seens, self.method):
            form = _FORMS.get(method)
            values = seen.inputs("last")
            if form is None or values is None or not applies(method, aided, values.shape[1], of.classes):
                continue
            for epochs in seen.epochs(self.epochs) if method in _OF_ALL_EPOCHS else ("last",):
                x = seen.inputs(epochs, form)
                if x is not None:
                    yield of.attempt({"view": seen.name, "epochs": epochs, "method": method}, x, method, place)
        for method, x in models.items():
            if aided:
                yield of.attempt({"view": _OWN_MODEL, "epochs": "last", "method": method}, x, method, place)
        if aided and "regression" in self.method and "completion" in models and seens:
            for epochs in seens[-1].epochs(self.epochs):
                gradients = seens[-1].inputs(epochs, "directions")  # the last are all together
                if gradients is not None:
                    x = np.hstack([gradients, models["completion"]])
                    setting = {"view": EVERYTHING, "epochs": epochs, "method": "regression"}
                    yield of.attempt(setting, x, "regression", place)


@dataclass(frozen=True)
class _Rows:
    """The recorded ``rows`` that an attacker has something about: classes, the known ones, the others that judge it.

    ``counts`` are the rows of each class among all recorded ones.
    """

    rows: Indices
    labels: Classes
    known: Indices
    others: Indices
    classes: int
    counts: Classes

    def attempt(self, setting: Mapping[str, str], x: Floats, method: Method, place: int) -> Attempt[Floats]:
        """Return an attempt that scores the classes of the other rows from ``x`` (recorded rows, inputs)."""
        mine = x[self.rows] if method in HEADS else np.nan_to_num(x[self.rows])

        def scores(order: Indices) -> Floats:
            if not len(self.known):
                return unaided_scores(mine[order], self.counts, method, place)[self.others]
            y = self.labels[self.known]
            return class_scores(mine[order], y, self.known, self.classes, method, place)[self.others]

        return Attempt(setting, len(self.rows), scores)

    def score(self, attempt: Attempt[Floats], rows: Indices, truth: Classes | None = None) -> float:
        """Judge an attempt by some of the other rows, and their classes (the true ones unless others are given)."""
        truth = self.labels[self.others][rows] if truth is None else truth
        if attempt.setting["method"] == "clusters" and not len(self.known):
            return named_accuracy(attempt.guess, truth, rows)  # which cluster is which class stays open
        return (auc if self.classes == 2 else balanced_accuracy)(attempt.guess, truth, rows)

    def measured(
        self,
        attempt: Attempt[Floats],
        judging: Indices,
        attacker: str,
        setting: Mapping[str, int | str],
        bits: np.random.Generator,
        attempts: Sequence[Attempt[Floats]],
        halves: tuple[Indices, Indices],
        chosen: str = "",
    ) -> Measured:
        """Measure an attempt by rows; for its chance level labels are permuted before it is chosen among others."""
        truth = self.labels[self.others]

        def by_permuted(order: Indices) -> float:
            permuted, (choosing, judged) = truth[order], halves
            best = attempts[0]
            if len(attempts) > 1:
                best = max(attempts, key=lambda each: self.score(each, choosing, permuted[choosing]))
            return self.score(best, judged, permuted[judged])

        spread = spread_of(lambda picked: self.score(attempt, judging[picked]), len(judging), bits)
        chance = by_chance(by_permuted, len(truth), bits)
        unnamed = not len(self.known) and any(each.setting["method"] == "clusters" for each in attempts)
        named = unnamed and not chosen
        return Measured(
            "auc" if self.classes == 2 and not named else "balanced_accuracy",
            self.score(attempt, judging), attacker, setting, *spread,
            sum(chance) / 2 if unnamed else 1 / self.classes, *chance, chosen=chosen,
        )  # fmt: skip


def gradients_of(views: Collection[PartyView], attacker: str, members: Collection[str]) -> list[Seen]:
    """Return what an attacker has received from the server, by name, and several names together."""
    groups: dict[str, list[PartyView]] = {}
    for view in views:
        if view.receiver in members and is_gradient(view):
            groups.setdefault(view.path.split("/", 2)[2], []).append(view)
    every = [view for group in groups.values() for view in group]
    named = [*groups.items(), *([(EVERYTHING, every)] if len(groups) > 1 else [])]
    return [
        Seen(attacker, name, tuple(group), np.any([view.received for view in group], axis=0)) for name, group in named
    ]


def is_gradient(view: PartyView) -> bool:
    """Return whether a tensor may serve a client's step: it comes from the server, is real, and is no embedding.

    So may what the client computes from such messages: nodes of trees, residuals of encrypted regression.
    """
    passed_on = view.name == "server" or view.name.startswith("client-")
    return (view.sender == "server" or view.derived) and not passed_on and view.values.dtype.is_floating_point


def _embeddings(learner: Any) -> Tensor:
    """Return the outputs of a client's model for all training rows, (rows, width); of trees, its features."""
    operation = learner.embed_split("train")
    operation.run()
    h: Tensor = operation.result.value
    if h.dtype.is_floating_point:
        return h
    x: Tensor = learner.features("train").flatten(1)
    return x
