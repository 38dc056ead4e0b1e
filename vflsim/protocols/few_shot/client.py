"""A client that trains by itself, on labels that it guesses (FixMatch)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation, check_finite
from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.learning.learners.inputs import Received
from vflsim.streams import torch_seed
from vflsim.vocabulary.on_demand import Tensor, nn, torch


class LocalTraining(NamedTuple):
    """How a client trains: the protocol's keys of these names."""

    epochs: int
    unlabelled: int
    weight: float
    threshold: float
    masked: float
    noise: float


class FewShotClient(ClientLearner):
    """Trains its embedding with a classifier of its own, on labels that it guesses."""

    def __init__(self, parts: ClientParts, keys: LocalTraining, classes: int) -> None:
        super().__init__(parts)
        self.keys, self.classes = keys, classes
        self.head = self.add_model("head", partial(nn.Linear, self.width, classes), parts.optimizer, (self.width,))

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        """Train on aligned rows with the clusters of their gradients for labels."""
        received: Handle[Tensor] = gradient.value

        def labelled() -> tuple[Tensor, Tensor]:
            check_finite(received.value)
            self.kept["clusters"] = clusters_of(received.value, self.classes, torch_seed(self.seed, self.party, "k"))
            return batch.tensor(received.value.device), self.kept["clusters"]

        return self._training(batch, received, labelled)

    def train_again(self, batch: Batch, labels: Received) -> Operation[None]:
        """Train with the server's guesses, and with the classes of clusters that follow from them."""
        received: Handle[Tensor] = labels.value

        def labelled() -> tuple[Tensor, Tensor]:
            guesses, others = received.value.long().cpu(), self.others(batch).cpu()
            rows, classes = others[guesses >= 0], guesses[guesses >= 0]
            with torch.no_grad():
                cluster = self.head(self.embedding(self.features("train")[rows.to(received.value.device)])).argmax(1)
            counts = torch.zeros(self.classes, self.classes)
            counts.index_put_((cluster.cpu(), classes), torch.ones(len(rows)), accumulate=True)
            clusters: Tensor = self.kept["clusters"].cpu()
            named = (counts.sum(1) > 0)[clusters]
            aligned = batch.tensor()[named], counts.argmax(1)[clusters[named]]
            return (
                torch.cat([aligned[0], rows]).to(received.value.device),
                torch.cat([aligned[1], classes]).to(received.value.device),
            )

        return self._training(batch, received, labelled)

    def embed_others(self, batch: Batch) -> Operation[Handle[Tensor]]:
        """Embed the rows that are not aligned, (rows, embedding)."""
        rows = len(self.features("train")) - len(batch)
        result = self.promise(rows, self.width)

        def run() -> None:
            with torch.no_grad():
                result.set(self.embedding(self.features("train")[self.others(batch)]))

        cost, units = lambda: self.embedding.forward_flops(rows), rows / self.parts.batch
        return self.operation("embed", run, result, rows=rows, units=units, cost=cost)

    def others(self, batch: Batch) -> Tensor:
        """Return the rows that are not aligned, ascending."""
        train = self.features("train")
        return torch.from_numpy(np.setdiff1d(np.arange(len(train)), batch.ids)).to(train.device)

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.parts.seed

    def _training(
        self, batch: Batch, received: Handle[Tensor], labelled: Callable[[], tuple[Tensor, Tensor]]
    ) -> Operation[None]:
        size = min(self.parts.batch, len(batch))
        steps, more = self.keys.epochs * math.ceil(len(batch) / size), self.keys.unlabelled * size

        def run() -> None:
            rows, classes = labelled()
            others = self.others(batch)
            draw = torch.Generator().manual_seed(torch_seed(self.seed, self.party, f"few_shot/{batch.index}"))
            for _ in range(steps if len(rows) else 0):
                chosen = torch.randint(len(rows), (size,), generator=draw).to(rows.device)
                total = nn.functional.cross_entropy(self._classes(rows[chosen], draw), classes[chosen])
                if more and len(others):
                    total = total + self.keys.weight * self._consistency(
                        others[torch.randint(len(others), (more,), generator=draw).to(rows.device)], draw
                    )
                self.descend(total, self.embedding, self.head)

        def cost() -> float:
            models = self.embedding, self.head
            each = sum(model.training_flops(size + more) + model.forward_flops(more) for model in models)
            return steps * each

        units = steps * (size + more) / self.parts.batch
        operation = self.operation("client_step", run, None, inputs=[received], rows=len(batch), units=units, cost=cost)
        operation.counts = "update"
        return operation

    def _classes(self, rows: Tensor, draw: torch.Generator, noise: float = 0.0) -> Tensor:
        every = self.features("train")
        x, mean = every[rows], every.mean(0)
        if self.keys.masked:
            x = torch.where((torch.rand(x.shape, generator=draw) < self.keys.masked).to(x.device), mean, x)
        if noise:
            x = x + noise * every.std(0) * torch.randn(x.shape, generator=draw, dtype=x.dtype).to(x.device)
        return self.head(self.embedding(x))

    def _consistency(self, rows: Tensor, draw: torch.Generator) -> Tensor:
        with torch.no_grad():
            sure, classes = torch.softmax(self._classes(rows, draw), 1).max(1)
        each = nn.functional.cross_entropy(self._classes(rows, draw, self.keys.noise), classes, reduction="none")
        return (each * (sure >= self.keys.threshold)).mean()


def clusters_of(gradients: Tensor, classes: int, seed: int) -> Tensor:
    """Return the cluster of each row of ``gradients``, (rows,) of int64, by k-means with the best of ten starts."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    x = gradients.detach().double().cpu().numpy()
    scale = max(float(abs(x).max()), 1e-300)  # k-means stops early on values that are tiny all over
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # rows may have fewer gradients than there are classes
        labels = KMeans(classes, n_init=10, random_state=seed % 2**32).fit_predict(x / scale)
    return torch.from_numpy(labels.astype("int64")).to(gradients.device)
