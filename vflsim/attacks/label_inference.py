"""Inference of labels by a client, from the gradients that it has received and from its own model."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, ClassVar, Literal, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from vflsim.attacks.base import AttackedRun, Measured
from vflsim.attacks.labelled import need_classes, truth_of
from vflsim.attacks.probing import AttackOfClients, Indices, by_chance, numbers, scaled, spread_of
from vflsim.learning.tasks import BINARY
from vflsim.results.statistics import Floats
from vflsim.results.views import PartyView
from vflsim.streams import generator, party_name
from vflsim.vocabulary.quantities import Count

Method: TypeAlias = Literal["norm", "cosine", "completion", "untrained"]
Classes: TypeAlias = NDArray[np.int64]


@final
class LabelInference(AttackOfClients):
    """A client infers the labels of training rows; it knows those of a few rows of each class.

    ``norm`` and ``cosine`` take the gradients that it has received last (Li et al. 2022): how long they are, and which
    class's known gradients they point along. Both generalise to several classes by the nearest mean over known rows.
    ``completion`` puts a head, logistic regression on the known rows, on the client's own trained model (Fu et al.
    2022, without semi-supervision); ``untrained`` does so on its initial model: what features alone give away.
    """

    kind: Literal["label_inference"] = "label_inference"
    method: Annotated[tuple[Method, ...], Field(min_length=1)] = ("norm", "cosine", "completion", "untrained")
    """How labels are inferred."""
    known: Count = 4
    """Rows of each class whose labels the client knows."""
    title: ClassVar[str] = "label inference by a client"
    measures: ClassVar[Mapping[str, str]] = {"auc": "AUC", "balanced_accuracy": "balanced accuracy"}
    drawn: ClassVar[tuple[str, ...]] = ("auc", "balanced_accuracy")
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"auc": (0, 1), "balanced_accuracy": (0, 1)}
    note: ClassVar[str] = (
        "on recorded rows whose labels the client does not know: AUC for two classes (chance 0.5), balanced accuracy "
        "for more (chance 1 / classes). What completion finds beyond untrained, training has given away. Intervals in "
        "the Parquet table are over rows (bootstrap), and those of chance over permuted labels"
    )

    def on(self, attacked: AttackedRun) -> Iterator[Measured]:
        """Attack with each client, each tensor that it has received from the server, and each method."""
        views, models = attacked.run.views(), attacked.models
        clients = self.clients(attacked)
        need_classes(models.data.task)
        labels = truth_of(models.data.labels["train"][torch.from_numpy(views.rows)], models.data.task).numpy()
        classes = 2 if models.data.task is BINARY else models.data.outputs
        own = {"completion": models.learners.clients}
        if "untrained" in self.method:
            own["untrained"] = models.protocol.learners(models.setting, attacked.run.seed).clients
        for client in clients:
            received = [
                (view.path.split("/", 2)[2], view)
                for view in views.of_receiver(party_name(client))
                if is_gradient(view)
            ]
            for method in self.method:
                if method in own:
                    h = _embeddings(own[method][client])[torch.from_numpy(views.rows)]
                    everywhere = np.arange(len(views.rows))
                    yield self._measured(attacked, client, "own model", method, h, everywhere, labels, classes)
                    continue
                for name, view in received:
                    rows = np.flatnonzero(view.received)
                    try:
                        yield self._measured(attacked, client, name, method, view.values, rows, labels, classes)
                    except ValueError as error:
                        attacked.remarks.append(f"{name} of {party_name(client)}: {error}")

    def _measured(
        self,
        attacked: AttackedRun,
        client: int,
        view: str,
        method: Method,
        values: Tensor,
        rows: Indices,
        labels: Classes,
        classes: int,
    ) -> Measured:
        x, y = numbers(values[torch.from_numpy(rows)]), labels[rows]
        bits = generator(attacked.run.seed, client, f"attack.label_inference/{view}/{method}")
        known, others = known_rows(y, classes, self.known, generator(attacked.run.seed, client, "attack.known_labels"))
        scores, truth = class_scores(x, y[known], known, classes, method)[others], y[others]
        judge = partial(auc if classes == 2 else balanced_accuracy, scores)
        value = judge(truth)
        spread = spread_of(lambda chosen: judge(truth[chosen], chosen), len(truth), bits)
        chance = by_chance(lambda order: judge(truth[order]), len(truth), bits)
        return Measured(
            "auc" if classes == 2 else "balanced_accuracy", value, party_name(client),
            {"view": view, "method": method}, *spread, 1 / classes, *chance,
        )  # fmt: skip


def is_gradient(view: PartyView) -> bool:
    """Return whether a client may have received it for a step: from the server, real, and no party's embedding."""
    passed_on = view.name == "server" or view.name.startswith("client-")
    return view.sender == "server" and not passed_on and view.values.dtype.is_floating_point


def known_rows(labels: Classes, classes: int, known: int, bits: np.random.Generator) -> tuple[Indices, Indices]:
    """Choose ``known`` rows of each class, and return them and the others. Raises ``ValueError`` for too few."""
    order = bits.permutation(len(labels))
    chosen = [order[labels[order] == each][:known] for each in range(classes)]
    counts = np.bincount(labels, minlength=classes)
    if counts.min() <= known:
        raise ValueError(
            f"only {counts.min()} recorded rows of a class have arrived, and {known} are known; "
            "allowed: more recorded rows (record: {views: …}), or fewer known ones"
        )
    together = np.concatenate(chosen)
    return together, np.setdiff1d(np.arange(len(labels)), together)


def class_scores(x: Floats, y: Classes, known: Indices, classes: int, method: Method) -> Floats:
    """Return for every row of ``x`` (rows, inputs) a score for each class: (rows, classes).

    ``y`` are the classes of the rows ``known``; every class is among them.
    """
    if method in ("completion", "untrained"):
        return _head(scaled(x, known), y, known)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    if method == "norm":
        means = np.stack([length[known][y == each].mean() for each in range(classes)])
        return -np.abs(length - means) if classes > 2 else _along(length, means)
    unit = np.divide(x, length, out=np.zeros_like(x), where=length > 0)
    return np.stack([unit @ unit[known][y == each].mean(0) for each in range(classes)], 1)


def _along(length: Floats, means: Floats) -> Floats:
    """Score two classes by length: one is longer."""
    towards = length * np.sign(means[1] - means[0])
    return np.concatenate([-towards, towards], axis=1)


def _head(x: Floats, y: Classes, known: Indices) -> Floats:
    from sklearn.exceptions import ConvergenceWarning  # slow to import
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        scores: Floats = LogisticRegression(max_iter=1000).fit(x[known], y).predict_log_proba(x)
    return scores


def auc(scores: Floats, truth: Classes, rows: Indices | slice = slice(None)) -> float:
    """Return the area under the ROC curve of class 1 against class 0; 0.5 if one of them is absent."""
    from scipy.stats import rankdata  # slow to import

    ranks, ones = rankdata((scores[:, 1] - scores[:, 0])[rows]), int((truth == 1).sum())
    if not 0 < ones < len(truth):
        return 0.5
    return float((ranks[truth == 1].sum() - ones * (ones + 1) / 2) / (ones * (len(truth) - ones)))


def balanced_accuracy(scores: Floats, truth: Classes, rows: Indices | slice = slice(None)) -> float:
    """Return the mean over the classes that are there of the share of their rows with the highest score for it."""
    hits = (scores.argmax(1)[rows] == truth).astype(float)
    counts = np.bincount(truth)
    return float((np.bincount(truth, hits)[counts > 0] / counts[counts > 0]).mean())


def _embeddings(learner: object) -> Tensor:
    """Return what a client's model makes of all training rows, (rows, width)."""
    operation = learner.embed_split("train")  # type: ignore[attr-defined]
    operation.run()
    h: Tensor = operation.result.value
    return h
