"""Histograms of gradients, the best splits of nodes, and the way of rows through trees, in NumPy.

A tree is a complete binary one: node k of a level has the children 2k and 2k + 1. A node without a split sends all
rows to the left. The nodes of all levels are numbered level by level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vflsim.timing.floats import Floats

Ints = NDArray[np.int64]


class SplitRule(NamedTuple):
    """What decides a split: regularisation λ of leaves, the least gain γ, and the least Hessian of a child."""

    ridge: float
    least_gain: float
    least_hessian: float


class LevelSplits(NamedTuple):
    """For each node of a level the feature and the last bin that goes left, both -1 where a node has no split."""

    features: Ints
    bins: Ints


def bin_codes(x: Floats, edges: Floats) -> Ints:
    """Return the bin of every value (n, d): how many of its feature's ``edges`` (d, bins - 1) are below it."""
    columns = [np.searchsorted(edge, column, side="left") for edge, column in zip(edges, x.T, strict=True)]
    return np.stack(columns, 1).astype(np.int64) if columns else np.empty(x.shape, np.int64)


def quantile_edges(x: Floats, bins: int) -> Floats:
    """Return the upper edges of all bins but the last (d, bins - 1): quantiles of the training rows (n, d)."""
    edges: Floats = np.quantile(x, np.arange(1, bins) / bins, axis=0).T
    return edges


def histogram(codes: Ints, nodes: Ints, values: Floats, count: int, bins: int) -> Floats:
    """Return the sums of ``values`` (n, v) of the rows in each node, feature and bin: (count, d, bins, v)."""
    features, wide = codes.shape[1], values.shape[1]
    places = ((nodes[:, None] * features + np.arange(features)) * bins + codes).ravel()
    size = count * features * bins
    sums = [np.bincount(places, np.repeat(column, features), size) for column in values.T]
    return np.stack(sums, 1).reshape(count, features, bins, wide).astype(np.float64, copy=False)


def best_splits(sums: Floats, growth: SplitRule) -> LevelSplits:
    """Return the split of largest gain of each node, from the histograms (nodes, features, bins, 2c) of all features.

    The gain is ½ Σ (G_l² / (H_l + λ) + G_r² / (H_r + λ) − G² / (H + λ)) − γ, over the outputs (XGBoost Eq. 7). Of equal
    ones the first counts.
    """
    outputs = sums.shape[3] // 2
    left = sums.cumsum(2)[:, :, :-1]
    whole = sums.sum(2)[:, :, None]
    scores = [_score(side, outputs, growth.ridge) for side in (left, whole - left, whole)]
    gains = 0.5 * (scores[0] + scores[1] - scores[2]) - growth.least_gain
    hessians = [side[..., outputs:].sum(3) for side in (left, whole - left)]
    gains[(hessians[0] < growth.least_hessian) | (hessians[1] < growth.least_hessian)] = -np.inf
    flat = gains.reshape(len(gains), -1)
    best = flat.argmax(1)
    features, bins = np.divmod(best, gains.shape[2])
    split = flat[np.arange(len(flat)), best] > 0
    return LevelSplits(np.where(split, features, -1), np.where(split, bins, -1))


def _score(side: Floats, outputs: int, ridge: float) -> Floats:
    scores: Floats = (side[..., :outputs] ** 2 / (side[..., outputs:] + ridge)).sum(3)
    return scores


def goes_right(codes: Ints, nodes: Ints, splits: LevelSplits) -> NDArray[np.bool_]:
    """Return which rows (n,) go right at their node of a level; those of nodes without a split go left."""
    features, bins = splits.features[nodes], splits.bins[nodes]
    return (features >= 0) & (codes[np.arange(len(nodes)), features] > bins)


def shown_nodes(right: Sequence[NDArray[np.bool_]]) -> NDArray[np.float32]:
    """Return 1 for each node below the root that a row is in, else 0, (n, 2 + 4 + …), from who goes right, level by
    level (n,)."""
    nodes, levels = np.zeros(len(right[0]), np.int64), []
    for level, went in enumerate(right, 1):
        nodes = 2 * nodes + went
        levels.append(np.eye(2**level, dtype=np.float32)[nodes])
    return np.hstack(levels)


def leaves_of(nodes: Ints, values: Floats, count: int, ridge: float, rate: float) -> Floats:
    """Return the leaves' weights −G / (H + λ) times the rate, (count, c)."""
    sums = np.stack([np.bincount(nodes, column, count) for column in values.T], 1)
    outputs = sums.shape[1] // 2
    weights: Floats = -rate * sums[:, :outputs] / (sums[:, outputs:] + ridge)
    return weights


def packed_bits(flags: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return flags, the last axis packed into bytes."""
    packed: NDArray[np.uint8] = np.packbits(flags, axis=-1)
    return packed


def unpacked_bits(packed: NDArray[np.uint8], count: int) -> NDArray[np.bool_]:
    """Invert ``packed_bits`` for ``count`` flags along the last axis."""
    return np.unpackbits(packed, axis=-1, count=count).astype(bool)
