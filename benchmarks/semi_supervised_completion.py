"""Does semi-supervised training find more labels than a head on the rows with known labels (model completion)?

Every client knows the labels of four recorded rows of each class, and the features of all its training rows. It has
its own trained model, or its initial one. Balanced accuracy on the other recorded rows, mean over clients, by seed:

- `head`: logistic regression on the known rows' embeddings (`completion` of the attack `label_inference`);
- `spreading`: label spreading over the embeddings of all training rows (Zhou et al. 2004), the best of three widths;
- `self-training`: the head, refitted with the rows of which it is sure (.9);
- `MixMatch`: head and model trained further on known and other rows (Berthelot et al. 2019, which Fu et al. 2022 use),
  without augmentation, which a table does not have; begun at the head; the best of three weights.

"The best" is chosen by the labels that are sought: it flatters the attacker.

Run: vflsim run scenarios/leakage_protocols.yaml
     python benchmarks/semi_supervised_completion.py results/leakage_protocols --protocol synchronous --protocol vimadmm
"""

from __future__ import annotations

import argparse
import copy
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from torch import Tensor, nn
from torch.nn import functional

import vflsim
from vflsim.attacks.base import truth_of
from vflsim.attacks.label_scores import balanced_accuracy, known_rows
from vflsim.streams import generator

KNOWN, STEPS, ROWS = 4, 1500, 64
SHARPENING, MIXING, RATE, DECAY = 0.8, 0.75, 0.002, 0.99
WIDTHS, WEIGHTS = (3.0, 10.0, 30.0), (1.0, 25.0, 75.0)
Numbers = NDArray[np.float64]
Classes = NDArray[np.int64]


def mixmatch(
    x: Tensor, known: Classes, labels: Classes, network: nn.Module, weight: float, bits: np.random.Generator
) -> Numbers:
    """Train a network on known and other rows, and return the scores of all rows by its running mean."""
    unknown, goal = np.setdiff1d(np.arange(len(x)), known), functional.one_hot(torch.from_numpy(labels)).float()
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    mean = [each.detach().clone() for each in network.parameters()]
    for step in range(STEPS):
        chosen = bits.integers(len(known), size=ROWS)
        guessed = x[bits.choice(unknown, ROWS)]
        with torch.no_grad():
            sharp = network(guessed).softmax(1) ** (1 / SHARPENING)
        inputs = torch.cat([x[known[chosen]], guessed])
        truth = torch.cat([goal[chosen], sharp / sharp.sum(1, keepdim=True)])
        partner, share = bits.permutation(2 * ROWS), bits.beta(MIXING, MIXING, size=(2 * ROWS, 1))
        part = torch.from_numpy(np.maximum(share, 1 - share)).float()
        out = network(part * inputs + (1 - part) * inputs[partner])
        truth = part * truth + (1 - part) * truth[partner]
        supervised = -(truth[:ROWS] * out[:ROWS].log_softmax(1)).sum(1).mean()
        consistent = (out[ROWS:].softmax(1) - truth[ROWS:]).square().mean()
        optimizer.zero_grad()
        (supervised + weight * min(1.0, 2 * step / STEPS) * consistent).backward()
        optimizer.step()
        with torch.no_grad():
            for kept, now in zip(mean, network.parameters(), strict=True):
                kept.lerp_(now, 1 - DECAY)
    with torch.no_grad():
        for kept, now in zip(mean, network.parameters(), strict=True):
            now.copy_(kept)
        scores: Numbers = network(x).double().numpy()
    return scores


def completed(model: nn.Module, x: Tensor, known: Classes, labels: Classes, seed: int) -> Iterator[tuple[str, Numbers]]:
    """Yield scores (rows, classes) of every method; a method with several settings comes several times."""
    with torch.no_grad():
        h = model(x).double().numpy()
    h = (h - h.mean(0)) / h.std()
    head = LogisticRegression(max_iter=1000).fit(h[known], labels)
    yield "head", head.predict_log_proba(h)
    marked = np.full(len(h), -1)
    marked[known] = labels
    some = h[:400]
    middle = np.median(np.square(some[:, None] - some).sum(-1))
    for width in WIDTHS:
        spreading = LabelSpreading(kernel="rbf", gamma=width / middle, max_iter=200).fit(h, marked)
        yield "spreading", spreading.label_distributions_
    trained = SelfTrainingClassifier(LogisticRegression(max_iter=1000), threshold=0.9).fit(h, marked)
    yield "self-training", trained.predict_proba(h)
    with torch.no_grad():
        embedded = model(x[known]).double().numpy()
    raw = LogisticRegression(max_iter=1000).fit(embedded, labels)
    for weight in WEIGHTS:
        last = nn.Linear(embedded.shape[1], len(raw.classes_))
        with torch.no_grad():
            last.weight.copy_(torch.from_numpy(raw.coef_))
            last.bias.copy_(torch.from_numpy(raw.intercept_))
        network = nn.Sequential(copy.deepcopy(model), last).requires_grad_()
        yield "MixMatch", mixmatch(x, known, labels, network, weight, np.random.default_rng(seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="results of scenarios/leakage_protocols.yaml")
    parser.add_argument("--protocol", action="append", required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = vflsim.open_results(options.results)
    for name in options.protocol:
        for seed in sorted({run.seed for run in results.runs}):
            models, rows = results.model(name, seed), results.run(name, seed).views().rows
            clients = models.learners.clients
            initial = models.protocol.learners(models.setting, seed).clients
            labels = truth_of(models.data.labels["train"], models.data.task).numpy()
            for which, learners in (("trained", clients), ("initial", initial)):
                found: dict[str, list[float]] = {}
                for client, learner in learners.items():
                    chosen, _ = known_rows(
                        labels[rows], models.data.outputs, KNOWN, generator(seed, client, "attack.known_labels")
                    )
                    known, x = rows[chosen], models.data.features[client - 1]["train"].flatten(1).float()
                    sought, best = np.setdiff1d(rows, known), dict[str, float]()
                    for method, scores in completed(learner.model, x, known, labels[known], seed):
                        value = balanced_accuracy(scores[sought], labels[sought])
                        best[method] = max(value, best.get(method, 0.0))
                    for method, value in best.items():
                        found.setdefault(method, []).append(value)
                line = "  ".join(f"{method} {np.mean(values):.3f}" for method, values in found.items())
                print(f"{name} seed {seed} {which}: {line}", flush=True)


if __name__ == "__main__":
    main()
