"""An operation that is made and dropped changes nothing: of no party, of no kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from everything import everything
from torch import Tensor, nn

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.learning.learners.server import ServerLearner, ServerParts
from vflsim.learning.models.aggregates import MeanAggregate
from vflsim.learning.models.build import seeded
from vflsim.learning.optimizers import Sgd
from vflsim.learning.privacy.mechanisms import Gaussian
from vflsim.learning.tasks import task_of


@dataclass(eq=False)
class Parcel:
    sender: int
    batch: Batch | None
    value: Any


def parcel(sender: int, batch: Batch | None, rows: int, width: int = 3) -> Parcel:
    handle: Handle[Tensor] = Handle((rows, width), torch.float32)
    handle.set(torch.ones(rows, width))
    return Parcel(sender, batch, handle)


def batch(*ids: int, index: int = 0) -> Batch:
    return Batch(index, np.array(ids, dtype=np.int64))


def client() -> ClientLearner:
    features = {"train": torch.ones(8, 2), "validation": torch.ones(0, 2), "test": torch.ones(3, 2)}
    mechanism = Gaussian(clip=1.0, delta=1e-5, noise_multiplier=0.5)
    build = lambda: seeded(lambda: nn.Linear(2, 3), 1, torch.float32)  # noqa: E731
    made = ClientLearner(ClientParts(1, features, build, Sgd(lr=1), 3, batch=4, mechanism=mechanism))
    made.embed(batch(4, 5)).run()
    return made


def server() -> ServerLearner:
    labels = {"train": torch.zeros(8, dtype=torch.int64), "test": torch.zeros(3, dtype=torch.int64)}
    build = lambda: seeded(lambda: nn.Linear(3, 2), 1, torch.float32)  # noqa: E731
    task = task_of("multiclass")
    made = ServerLearner(
        ServerParts((1, 2), (3, 3), labels, build, Sgd(lr=1), MeanAggregate(), task, 4, torch.float32, table=True)
    )
    step = made.server_step([parcel(1, batch(0, 1), 2)])
    step.run()
    assert step.commit is not None
    step.commit()
    return made


CLIENT: dict[str, Callable[[ClientLearner], Operation[Any]]] = {
    "embed": lambda learner: learner.embed(batch(0, 1)),
    "answer": lambda learner: learner.answer(batch(0, 1)),
    "client_step": lambda learner: learner.client_step(batch(4, 5), parcel(0, None, 2)),
    "evaluate": lambda learner: learner.embed_split("test"),
    "first_fill": lambda learner: learner.embed_split("train", "first_fill"),
}
SERVER: dict[str, Callable[[ServerLearner], Any]] = {
    "server_step": lambda learner: learner.server_step([parcel(2, batch(1, 2), 2)], [parcel(1, batch(1, 2), 2)]),
    "fill": lambda learner: learner.fill([parcel(1, None, 8)]),
    "evaluate": lambda learner: learner.evaluate("test", [parcel(1, None, 3), parcel(2, None, 3)]),
    "too_old": lambda learner: learner.too_old([parcel(2, batch(1, 2), 2)], 0, "client_age"),
    "too_old_rows": lambda learner: learner.too_old([parcel(2, batch(1, 2), 2)], 0, "row_age"),
}


@pytest.mark.parametrize("kind", CLIENT)
def test_a_clients_operation_that_is_made_changes_nothing(kind: str) -> None:
    learner = client()
    before = everything(learner)
    operation = CLIENT[kind](learner)
    assert everything(learner) == before
    operation.begin()
    operation.run()
    assert (everything(learner) != before) == (kind != "evaluate" or learner.model.training is False)


@pytest.mark.parametrize("kind", SERVER)
def test_a_servers_operation_that_is_made_changes_nothing(kind: str) -> None:
    learner = server()
    before = everything(learner)
    SERVER[kind](learner)
    assert everything(learner) == before
