"""Embeddings of test rows in the plane, by t-SNE (van der Maaten and Hinton 2008; VIM Fig. 4 and 6)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vflsim.explaining.heads import HeadedModels
from vflsim.streams import SHARED, generator, party_name

PERPLEXITY = 30.0
"""The default of scikit-learn; less where there are few rows."""
TOGETHER = "all clients"
"""The name of all participants' embeddings side by side."""


def planes(models: HeadedModels, order: list[int], rows: int) -> pd.DataFrame:
    """Map embeddings of up to ``rows`` test rows, drawn by a fixed seed, to the plane.

    Those of the most and the least important client (the first and the last of ``order``), and of all side by side.
    Columns: embedding, row, label, x, y; labels are names of classes, or values, as text.
    """
    labels = models.data.labels["test"]
    chosen = np.sort(generator(0, SHARED, "tsne").permutation(len(labels))[:rows])
    at = torch.from_numpy(chosen)
    ends = list(dict.fromkeys((order[0], order[-1])))
    shown = {party_name(client): models.embedding(client, at) for client in ends}
    if len(order) > 1:
        shown[TOGETHER] = torch.cat([models.embedding(client, at) for client in models.heads], dim=1)
    names = models.data.class_names
    values = labels[at].flatten().tolist()
    label = [names[int(value)] if names else f"{value:g}" for value in values]
    frames = [
        pd.DataFrame({"embedding": name, "row": chosen, "label": label}).join(plane(h)) for name, h in shown.items()
    ]
    return pd.concat(frames, ignore_index=True)


def plane(h: Tensor) -> pd.DataFrame:
    """Map rows (rows, d) to the plane: columns x and y."""
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(h) - 1) / 3)
    # Not init="pca": it divides by the deviation, and crashes where a model gives all rows the same embedding.
    points = TSNE(perplexity=perplexity, init="random", random_state=0).fit_transform(h.double().numpy())
    return pd.DataFrame(points.astype(np.float64), columns=["x", "y"])
