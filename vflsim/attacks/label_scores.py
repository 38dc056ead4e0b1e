"""How labels are inferred from numbers about rows, and how well: scores of classes, their accuracy."""

from __future__ import annotations

import warnings
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vflsim.attacks.probes import Indices, scaled
from vflsim.protocol import Floats

Method: TypeAlias = Literal["sign", "norm", "clusters", "cosine", "spreading", "regression", "completion", "untrained"]
HEADS = ("regression", "completion", "untrained")
"""Methods that fit a logistic regression."""
Classes: TypeAlias = NDArray[np.int64]
SHARPNESS, SPREAD = 40.0, 0.9
"""Of label spreading: how fast likeness falls with the angle, and the share of a row's label that its like decide."""


def applies(method: Method, aided: bool, width: int, classes: int) -> bool:
    """Return whether a method is defined for gradients of this width, with or without known rows of each class."""
    if method == "sign":
        return not aided and width == (1 if classes == 2 else classes)
    return method == "clusters" or aided or (method == "norm" and classes == 2)


def known_rows(labels: Classes, classes: int, known: int, bits: np.random.Generator) -> tuple[Indices, Indices]:
    """Choose ``known`` rows of each class, and return them and the others.

    Raises ``ValueError`` for too few: each class has others than the known rows, and there are as many rows as classes.
    """
    order = bits.permutation(len(labels))
    chosen = [order[labels[order] == each][:known] for each in range(classes)]
    counts = np.bincount(labels, minlength=classes)
    if known and counts.min() <= known:
        raise ValueError(
            f"only {counts.min()} recorded rows of a class have arrived, and {known} are known; "
            "allowed: more recorded rows (record: {views: …}), or fewer known ones"
        )
    if len(labels) < classes:
        raise ValueError(
            f"only {len(labels)} recorded rows have arrived, and there are {classes} classes; "
            "allowed: more recorded rows (record: {views: …})"
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
    scores: Floats = np.eye(len(counts))[_groups(x, len(counts), seed)]
    return scores


def class_scores(x: Floats, y: Classes, known: Indices, classes: int, method: Method, seed: int = 0) -> Floats:
    """Return for every row of ``x`` (rows, inputs) a score for each class: (rows, classes).

    ``y`` are the classes of the rows ``known``; every class is among them.
    """
    if method in HEADS:
        return _head(scaled(x, known), y, known)
    if method == "clusters":
        groups = _groups(x, classes, seed)
        together = np.zeros((classes, classes))
        np.add.at(together, (groups[known], y), 1.0)
        return np.eye(classes)[_names(together)[groups]]
    length = np.linalg.norm(x, axis=1, keepdims=True)
    if method == "norm":
        means = np.stack([length[known][y == each].mean() for each in range(classes)])
        return -np.abs(length - means) if classes > 2 else _along(length, means)
    unit = _unit(x)
    if method == "spreading":
        return _spread(unit, y, known, classes)
    return np.stack([unit @ unit[known][y == each].mean(0) for each in range(classes)], 1)


def _spread(unit: Floats, y: Classes, known: Indices, classes: int) -> Floats:
    """Let rows take the labels of those that point the same way, known or not (Zhou et al. 2004): (rows, classes)."""
    like = np.exp(SHARPNESS * (unit @ unit.T - 1))
    np.fill_diagonal(like, 0)
    root = 1 / np.sqrt(np.maximum(like.sum(1), np.finfo(float).tiny))
    said = np.zeros((len(unit), classes))
    said[known, y] = 1
    spread: Floats = np.linalg.solve(np.eye(len(unit)) - SPREAD * root[:, None] * like * root, said)
    return spread


def _unit(x: Floats) -> Floats:
    length = np.linalg.norm(x, axis=1, keepdims=True)
    unit: Floats = np.divide(x, length, out=np.zeros_like(x), where=length > 0)
    return unit


def _groups(x: Floats, number: int, seed: int) -> Classes:
    """Return the group of every row: k-means on directions, (rows,)."""
    from sklearn.cluster import KMeans  # slow to import
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer directions than classes
        groups: Classes = KMeans(number, n_init=10, random_state=seed).fit_predict(_unit(x))
    return groups


def _names(together: Floats) -> Classes:
    """Return for every group, a row of ``together``, the class that suits it best, each class once."""
    from scipy.optimize import linear_sum_assignment  # slow to import

    names: Classes = linear_sum_assignment(together, maximize=True)[1]
    return names


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
    classes, groups = scores.shape[1], scores.argmax(1)[rows]
    together = np.zeros((classes, classes))
    np.add.at(together, (groups, truth), 1.0)
    counts = together.sum(0)
    shares = np.divide(together, counts, out=np.zeros_like(together), where=counts > 0)
    return float(shares[np.arange(classes), _names(shares)].sum() / (counts > 0).sum())
