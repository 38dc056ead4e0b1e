"""A client alone: built from its own parts, its operations run by hand."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vflsim.errors import NonFiniteError
from vflsim.learning.batches import Batch
from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.learning.models.build import seeded
from vflsim.learning.optimizers import Sgd

ROWS, FEATURES, WIDTH = 12, 5, 3


@dataclass
class Message:
    value: Any


def gradient(values: Tensor) -> Message:
    from vflsim.learning.execution.operations import Handle

    handle: Handle[Tensor] = Handle(tuple(values.shape), values.dtype)
    handle.set(values)
    return Message(handle)


def batch(*ids: int, index: int = 0) -> Batch:
    return Batch(index, np.array(ids, dtype=np.int64))


@pytest.fixture
def features() -> dict[str, Tensor]:
    made = torch.Generator().manual_seed(1)
    return {
        split: torch.randn(rows, FEATURES, generator=made, dtype=torch.float64)
        for split, rows in {"train": ROWS, "validation": 0, "test": 4}.items()
    }


@pytest.fixture
def client(features: dict[str, Tensor]) -> ClientLearner:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh())

    return ClientLearner(
        ClientParts(3, features, partial(seeded, build, 7, torch.float64), Sgd(lr=0.5), WIDTH, batch=4)
    )


def weights(client: ClientLearner) -> list[Tensor]:
    return [w.detach().clone() for w in client.model.parameters()]


def embedding(w: list[Tensor], x: Tensor) -> Tensor:
    return torch.tanh(x @ w[0].T + w[1])


def test_embedding_a_batch_promises_its_shape_and_gives_the_models_output(client: ClientLearner, features) -> None:
    operation = client.embed(batch(3, 1, 8))
    assert (operation.kind, operation.party, operation.counts) == ("embed", 3, None)
    assert operation.result.shape == (3, WIDTH)
    assert operation.nbytes == 3 * WIDTH * 8
    operation.run()
    assert torch.allclose(operation.result.value, embedding(weights(client), features["train"][[3, 1, 8]]))
    assert not operation.result.value.requires_grad


def test_a_step_goes_down_the_received_gradient_at_the_uploaded_parameters(client: ClientLearner, features) -> None:
    rows, received = [0, 5], torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]], dtype=torch.float64)
    w = [tensor.requires_grad_() for tensor in weights(client)]
    expected = torch.autograd.grad((embedding(w, features["train"][rows]) * received).sum(), w)
    client.embed(batch(*rows)).run()
    step = client.client_step(batch(*rows), gradient(received))
    assert step.counts == "update"
    step.run()
    for before, slope, after in zip(w, expected, client.model.parameters(), strict=True):
        assert torch.allclose(after, before - 0.5 * slope, atol=1e-15)


def test_a_batch_embedded_in_between_leads_to_a_new_forward_pass(client: ClientLearner, features) -> None:
    received = torch.ones(2, WIDTH, dtype=torch.float64)
    w = [tensor.requires_grad_() for tensor in weights(client)]
    expected = torch.autograd.grad(embedding(w, features["train"][[0, 5]]).sum(), w)
    client.embed(batch(0, 5)).run()
    client.embed(batch(1, 2, index=1)).run()
    client.client_step(batch(0, 5), gradient(received)).run()
    for before, slope, after in zip(w, expected, client.model.parameters(), strict=True):
        assert torch.allclose(after, before - 0.5 * slope, atol=1e-15)


def test_a_second_gradient_for_a_batch_is_taken_at_the_present_parameters(client: ClientLearner, features) -> None:
    received = torch.ones(2, WIDTH, dtype=torch.float64)
    client.embed(batch(0, 5)).run()
    client.client_step(batch(0, 5), gradient(received)).run()
    w = [tensor.requires_grad_() for tensor in weights(client)]
    expected = torch.autograd.grad(embedding(w, features["train"][[0, 5]]).sum(), w)
    client.client_step(batch(0, 5), gradient(received)).run()
    for before, slope, after in zip(w, expected, client.model.parameters(), strict=True):
        assert torch.allclose(after, before - 0.5 * slope, atol=1e-15)


def test_answers_and_evaluations_leave_the_step_under_way_alone(client: ClientLearner, features) -> None:
    received = torch.ones(2, WIDTH, dtype=torch.float64)
    alone = ClientLearner(client.parts)
    for learner, disturbed in ((alone, False), (client, True)):
        learner.embed(batch(0, 5)).run()
        if disturbed:
            answer = learner.answer(batch(1, 2, index=1))
            answer.run()
            assert torch.allclose(answer.result.value, embedding(weights(client), features["train"][[1, 2]]))
            learner.embed_split("test").run()
        learner.client_step(batch(0, 5), gradient(received)).run()
    assert all(map(torch.equal, weights(client), weights(alone)))


def test_the_embeddings_of_a_split_are_those_of_all_its_rows_in_evaluation_mode(
    client: ClientLearner, features
) -> None:
    operation = client.embed_split("test")
    assert operation.result.shape == (4, WIDTH)
    assert operation.kind == "evaluate"
    assert operation.units == 1  # 4 rows, batches of 4
    operation.run()
    assert not client.model.training
    assert torch.allclose(operation.result.value, embedding(weights(client), features["test"]))
    first = client.embed_split("train", "first_fill")
    assert (first.kind, first.units) == ("first_fill", 3)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_an_error(client: ClientLearner, value: float) -> None:
    client.embed(batch(0)).run()
    with pytest.raises(NonFiniteError, match="gradient received is not finite"):
        client.client_step(batch(0), gradient(torch.full((1, WIDTH), value, dtype=torch.float64))).run()


def test_the_cost_is_that_of_the_real_model_and_grows_with_the_rows(client: ClientLearner) -> None:
    two, four = client.embed(batch(0, 1)), client.embed(batch(0, 1, 2, 3))
    assert two.flops() == 2 * 2 * FEATURES * WIDTH
    assert four.flops() == 2 * two.flops()
    step = client.client_step(batch(0, 1), gradient(torch.zeros(2, WIDTH, dtype=torch.float64)))
    assert step.flops() == 2 * 2 * FEATURES * WIDTH  # the gradient of the weights; the features need none


def test_nothing_is_built_before_it_is_needed(client: ClientLearner) -> None:
    client.embed(batch(0, 1))
    assert not client.embedding.made


def test_rows_that_a_client_lacks_are_uploaded_as_zeros(client: ClientLearner) -> None:
    held = {"train": torch.ones(ROWS, 1, dtype=torch.bool), "test": torch.ones(4, 1, dtype=torch.bool)}
    held["train"][[1, 5]] = False
    held["test"][2] = False
    lacking = ClientLearner(replace(client.parts, present=held))
    few = batch(3, 1, 8)
    for whole, part, absent in (
        (client.embed(few), lacking.embed(few), [1]),
        (client.answer(few), lacking.answer(few), [1]),
        (client.embed_split("train", "first_fill"), lacking.embed_split("train", "first_fill"), [1, 5]),
        (client.embed_split("test"), lacking.embed_split("test"), [2]),
    ):
        whole.run()
        part.run()
        expected = whole.result.value.clone()
        expected[absent] = 0
        assert torch.equal(part.result.value, expected)
        assert part.nbytes == whole.nbytes
        assert part.flops() == whole.flops()
