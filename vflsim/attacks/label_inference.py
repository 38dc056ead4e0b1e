"""Inference of labels by a client, from the gradients that it has received and from its own model."""

import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Annotated, ClassVar, Literal, TypeAlias, final, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from vflsim.attacks.base import AttackedRun, Measured, need_classes, truth_of
from vflsim.attacks.probing import AttackOfClients, Indices, by_chance, numbers, scaled, spread_of
from vflsim.learning.tasks import BINARY
from vflsim.protocol import generator, party_name, torch_seed
from vflsim.results.store.views import PartyView
from vflsim.timing.floats import Floats
from vflsim.vocabulary.quantities import Quantity

Method: TypeAlias = Literal["sign", "norm", "clusters", "cosine", "completion", "untrained"]
_UNAIDED = ("sign", "norm", "clusters")
"""Methods that need no labels."""
Classes: TypeAlias = NDArray[np.int64]


@final
class LabelInference(AttackOfClients):
    """A client infers the labels of training rows; it knows none of them, or those of a few rows of each class.

    From the gradients that it has received last, without any label: ``sign`` takes those by logits, (rows, classes),
    whose one negative element is the row's class: ∂ℓ/∂o = softmax(o) − onehot(y). ``norm`` takes their lengths (two
    classes: the rarer one has the longer ones, Li et al. 2022), ``clusters`` groups their directions.

    With a few labels: ``norm`` and ``cosine`` take the class whose known gradients are as long, or point the same way
    (Li et al. 2022, and for several classes the nearest mean). ``completion`` puts a head, logistic regression on the
    known rows, on the client's own trained model (Fu et al. 2022, without semi-supervision); ``untrained`` does so on
    its initial model: what features alone give away.
    """

    kind: Literal["label_inference"] = "label_inference"
    method: Annotated[tuple[Method, ...], Field(min_length=1)] = get_args(Method)
    """How labels are inferred."""
    known: Annotated[tuple[Annotated[int, Quantity(at_least=0, whole=True)], ...], Field(min_length=1)] = (0, 4)
    """Rows of each class whose labels the client knows; methods that cannot do without any begin at 1."""
    title: ClassVar[str] = "label inference by a client"
    measures: ClassVar[Mapping[str, str]] = {"auc": "AUC", "balanced_accuracy": "balanced accuracy"}
    drawn: ClassVar[tuple[str, ...]] = ("auc", "balanced_accuracy")
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"auc": (0, 1), "balanced_accuracy": (0, 1)}
    note: ClassVar[str] = (
        "on recorded rows whose labels the client does not know: AUC for two classes (chance 0.5), balanced accuracy "
        "for more (chance 1 / classes). Clusters have the names that suit them best, for their chance level, too. What "
        "completion finds beyond untrained, training has given away. Intervals in the Parquet table are over "
        "rows (bootstrap), and those of chance over permuted labels"
    )

    def on(self, attacked: AttackedRun) -> Iterator[Measured]:
        """Attack with each client, each tensor that it has received from the server, and each method."""
        views, models = attacked.run.views(), attacked.models
        clients = self.clients(attacked)
        need_classes(models.data.task)
        labels = truth_of(models.data.labels["train"][torch.from_numpy(views.rows)], models.data.task).numpy()
        classes = 2 if models.data.task.name == BINARY.name else models.data.outputs
        own = {"completion": models.learners.clients}
        if "untrained" in self.method:
            own["untrained"] = models.protocol.learners(models.setting, attacked.run.seed).clients
        for client in clients:
            received = [
                (view.path.split("/", 2)[2], view)
                for view in views.of_receiver(party_name(client))
                if is_gradient(view)
            ]
            for method, known in product(self.method, self.known):
                if method in own and known:
                    h = _embeddings(own[method][client])[torch.from_numpy(views.rows)]
                    everywhere = np.arange(len(views.rows))
                    yield self._measured(attacked, client, "own model", method, known, h, everywhere, labels, classes)
                if method in own:
                    continue
                for name, view in received:
                    rows = np.flatnonzero(view.received)
                    if not applies(method, known, view.values, classes) or not len(rows):
                        continue
                    try:
                        yield self._measured(attacked, client, name, method, known, view.values, rows, labels, classes)
                    except ValueError as error:
                        attacked.remarks.append(f"{name} of {party_name(client)}: {error}")

    def _measured(
        self,
        attacked: AttackedRun,
        client: int,
        view: str,
        method: Method,
        count: int,
        values: Tensor,
        rows: Indices,
        labels: Classes,
        classes: int,
    ) -> Measured:
        seed, x, y = attacked.run.seed, numbers(values[torch.from_numpy(rows)]), labels[rows]
        bits = generator(seed, client, f"attack.label_inference/{view}/{method}")
        known, others = known_rows(y, classes, count, generator(seed, client, "attack.known_labels"))
        truth = y[others]
        if method in _UNAIDED and not count:
            place = torch_seed(seed, client, f"attack.clusters/{view}") % 2**32
            scores = unaided_scores(x, np.bincount(labels, minlength=classes), method, place)
        else:
            scores = class_scores(x, y[known], known, classes, method)[others]
        judge = partial(auc if classes == 2 else balanced_accuracy, scores)
        if method == "clusters":  # which cluster is which class stays open: the best names for these rows
            judge = partial(named_accuracy, scores)
        value = judge(truth)
        spread = spread_of(lambda chosen: judge(truth[chosen], chosen), len(truth), bits)
        chance = by_chance(lambda order: judge(truth[order]), len(truth), bits)
        return Measured(
            "auc" if classes == 2 and method != "clusters" else "balanced_accuracy", value, party_name(client),
            {"view": view, "method": method, "known": count}, *spread,
            sum(chance) / 2 if method == "clusters" else 1 / classes, *chance,
        )  # fmt: skip


def is_gradient(view: PartyView) -> bool:
    """Return whether a tensor may serve a client's step: it comes from the server, is real, and is no embedding."""
    passed_on = view.name == "server" or view.name.startswith("client-")
    return view.sender == "server" and not passed_on and view.values.dtype.is_floating_point


def applies(method: Method, known: int, values: Tensor, classes: int) -> bool:
    """Return whether a method is defined for these gradients and so many known rows of each class."""
    if method == "sign":
        return not known and values.flatten(1).shape[1] == (1 if classes == 2 else classes)
    if method == "clusters":
        return not known
    return bool(known) or (method == "norm" and classes == 2)


def known_rows(labels: Classes, classes: int, known: int, bits: np.random.Generator) -> tuple[Indices, Indices]:
    """Choose ``known`` rows of each class, and return them and the others. Raises ``ValueError`` for too few."""
    order = bits.permutation(len(labels))
    chosen = [order[labels[order] == each][:known] for each in range(classes)]
    counts = np.bincount(labels, minlength=classes)
    if known and counts.min() <= known:
        raise ValueError(
            f"only {counts.min()} recorded rows of a class have arrived, and {known} are known; "
            "allowed: more recorded rows (record: {views: …}), or fewer known ones"
        )
    together = np.concatenate(chosen)
    return together, np.setdiff1d(np.arange(len(labels)), together)


def unaided_scores(x: Floats, counts: Classes, method: Method, seed: int) -> Floats:
    """Return scores of classes for every row of ``x`` (rows, inputs), without any labels: (rows, classes).

    ``counts`` are the rows of each class, whose order alone is used: which of two classes is the rarer one.
    """
    if method == "sign":  # the gradient by a single logit is σ(o) − y
        return -x if x.shape[1] > 1 else np.concatenate([x, -x], axis=1)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    if method == "norm":
        return _along(length, -counts.astype(float))
    from sklearn.cluster import KMeans  # slow to import

    unit = np.divide(x, length, out=np.zeros_like(x), where=length > 0)
    groups = KMeans(len(counts), n_init=10, random_state=seed).fit_predict(unit)
    one_hot: Floats = np.eye(len(counts))[groups]
    return one_hot


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
    """Score two classes by the length of gradients: those of one class are longer."""
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


def named_accuracy(scores: Floats, truth: Classes, rows: Indices | slice = slice(None)) -> float:
    """Return the balanced accuracy of clusters, each of which has the name that makes it largest."""
    from scipy.optimize import linear_sum_assignment  # slow to import

    classes, groups = scores.shape[1], scores.argmax(1)[rows]
    together = np.zeros((classes, classes))
    np.add.at(together, (groups, truth), 1.0)
    counts = together.sum(0)
    shares = np.divide(together, counts, out=np.zeros_like(together), where=counts > 0)
    return float(shares[linear_sum_assignment(shares, maximize=True)].sum() / (counts > 0).sum())


def _embeddings(learner: object) -> Tensor:
    """Return the outputs of a client's model for all training rows, (rows, width)."""
    operation = learner.embed_split("train")  # type: ignore[attr-defined]
    operation.run()
    h: Tensor = operation.result.value
    return h
