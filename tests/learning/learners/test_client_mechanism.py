"""A client whose embeddings go through a mechanism before anybody sees them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vflsim.errors import NonFiniteError
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.learning.models.build import mixes_rows, seeded
from vflsim.learning.optimizers import Sgd
from vflsim.learning.privacy.mechanisms import Gaussian
from vflsim.streams import generator

ROWS, FEATURES, WIDTH, CLIP = 12, 5, 3, 0.65
NOISY = Gaussian(clip=CLIP, delta=1e-5, noise_multiplier=0.5)


@dataclass
class Message:
    value: Any


def batch(*ids: int, index: int = 0) -> Batch:
    return Batch(index, np.array(ids, dtype=np.int64))


def gradient(values: Tensor) -> Message:
    handle: Handle[Tensor] = Handle(tuple(values.shape), values.dtype)
    handle.set(values)
    return Message(handle)


def drawn(rows: int, dtype: torch.dtype, seed: int = 1) -> Tensor:
    return torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def parts(mechanism: Gaussian | None, dtype: torch.dtype = torch.float64) -> ClientParts:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh())

    features: Mapping[Any, Tensor] = {"train": drawn(ROWS, dtype), "test": drawn(4, dtype, 2)}
    build_it = partial(seeded, build, 7, dtype)
    return ClientParts(3, features, build_it, Sgd(lr=0.5), WIDTH, batch=4, mechanism=mechanism, seed=9)


@pytest.fixture
def client() -> ClientLearner:
    return ClientLearner(parts(NOISY))


def value(operation: Any) -> Tensor:
    operation.run()
    return operation.result.value


def clipped(h: Tensor) -> Tensor:
    """The textbook's clip: h / max(1, ‖h‖ / C)."""
    return h / torch.clamp(h.norm(dim=1, keepdim=True) / CLIP, min=1)


def noise(kind: str, index: int, rows: int) -> Tensor:
    bits = generator(9, 3, f"mechanism.{kind}/{index}").bit_generator
    return NOISY.noise((rows, WIDTH), torch.float64, bits)


def test_what_is_uploaded_is_the_clipped_embedding_plus_noise(client: ClientLearner) -> None:
    features = client.parts.features["train"]
    for index, ids in enumerate([(3, 1, 8), (0, 2)]):
        released = value(client.embed(batch(*ids, index=index)))
        with torch.no_grad():
            h = client.model(features[list(ids)])
        assert torch.allclose(released, clipped(h) + noise("embed", index, len(ids)), atol=1e-15)
    with torch.no_grad():
        h = client.model(features)
    assert 0 < (h.norm(dim=1) > CLIP).sum() < ROWS
    whole = clipped(h)
    assert torch.allclose(value(client.answer(batch(0, 5))), whole[[0, 5]] + noise("answer", 0, 2), atol=1e-15)
    first = value(client.embed_split("train", "first_fill"))
    assert torch.allclose(first, whole + noise("first_fill", 0, ROWS), atol=1e-15)


def test_evaluations_are_clipped_without_noise_and_count_as_no_release(client: ClientLearner) -> None:
    evaluated = value(client.embed_split("test"))
    with torch.no_grad():
        assert torch.allclose(evaluated, clipped(client.model(client.parts.features["test"])), atol=1e-15)
    assert client.releases is not None
    assert client.releases.counts.sum() == 0


@pytest.mark.parametrize("between", [False, True], ids=["kept graph", "new forward pass"])
def test_the_step_goes_through_the_clip_and_treats_the_noise_as_a_constant(
    client: ClientLearner, between: bool
) -> None:
    ids, received = [0, 5, 7], drawn(3, torch.float64, 5)[:, :WIDTH]
    w = [tensor.detach().clone().requires_grad_() for tensor in client.model.parameters()]
    h = torch.tanh(client.parts.features["train"][ids] @ w[0].T + w[1])
    expected = torch.autograd.grad((clipped(h) * received).sum(), w)
    client.embed(batch(*ids)).run()
    if between:
        client.embed(batch(1, 2, index=1)).run()
    client.client_step(batch(*ids), gradient(received)).run()
    for before, slope, after in zip(w, expected, client.model.parameters(), strict=True):
        assert torch.allclose(after, before - 0.5 * slope, atol=1e-15)


def test_stepping_again_draws_no_noise_and_releases_nothing(client: ClientLearner) -> None:
    client.embed(batch(0, 5)).run()
    for _ in range(2):
        client.client_step(batch(0, 5), gradient(torch.ones(2, WIDTH, dtype=torch.float64))).run()
    assert client.releases is not None
    assert client.releases.counts.sum() == 2
    ahead, alone = client.embed(batch(1)), ClientLearner(client.parts)
    alone.model.load_state_dict(client.model.state_dict())
    alone.embed(batch(0, 5)).begin()
    assert torch.equal(value(ahead), value(alone.embed(batch(1))))


def test_noise_follows_the_order_in_which_embeddings_were_begun_not_that_in_which_they_run() -> None:
    one, other = ClientLearner(parts(NOISY)), ClientLearner(parts(NOISY))
    first, second = one.embed(batch(0, 1)), one.embed(batch(2, 3))
    late, early = other.embed(batch(0, 1)), other.embed(batch(2, 3))
    for operation in (first, second, late, early):
        operation.begin()
    assert torch.equal(value(second), value(early))
    assert torch.equal(value(first), value(late))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hardly_any_noise_and_a_wide_clip_change_next_to_nothing(dtype: torch.dtype) -> None:
    quiet = Gaussian(clip=100.0, delta=1e-5, noise_multiplier=1e-12)
    plain, wide = ClientLearner(parts(None, dtype)), ClientLearner(parts(quiet, dtype))
    one, other = (value(client.embed(batch(0, 5, 7))) for client in (plain, wide))
    assert one.dtype == other.dtype == dtype
    assert torch.allclose(one, other, atol=1e-8 if dtype == torch.float64 else 1e-6)
    for client in (plain, wide):
        client.client_step(batch(0, 5, 7), gradient(torch.ones(3, WIDTH, dtype=dtype))).run()
    assert all(map(torch.equal, plain.model.parameters(), wide.model.parameters()))


def test_an_embedding_that_is_not_finite_ends_the_run(client: ClientLearner) -> None:
    features = {**client.parts.features, "train": torch.full((ROWS, FEATURES), torch.nan, dtype=torch.float64)}
    with pytest.raises(NonFiniteError):
        ClientLearner(replace(client.parts, features=features)).embed(batch(0)).run()


def test_the_cost_is_that_of_the_model_alone(client: ClientLearner) -> None:
    assert client.embed(batch(0, 1)).flops() == ClientLearner(parts(None)).embed(batch(0, 1)).flops()


@pytest.mark.parametrize(
    ("layer", "mixes"),
    [(nn.BatchNorm1d(FEATURES), True), (nn.LayerNorm(FEATURES), False), (nn.Dropout(), False), (nn.Tanh(), False)],
    ids=lambda case: type(case).__name__,
)
def test_models_whose_rows_depend_on_each_other_are_told_apart(layer: nn.Module, mixes: bool) -> None:
    module = nn.Sequential(layer, nn.Linear(FEATURES, WIDTH)).eval()
    before = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    assert mixes_rows(module, (FEATURES,)) is mixes
    assert not module.training
    assert all(torch.equal(tensor, before[key]) for key, tensor in module.state_dict().items())


def test_batch_normalisation_over_pixels_mixes_rows_too() -> None:
    assert mixes_rows(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), (1, 5, 5))
    assert not mixes_rows(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()), (1, 5, 5))
