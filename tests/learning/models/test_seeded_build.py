"""Models built from a seed, and code from outside that draws from it."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from vflsim.learning.models import build
from vflsim.learning.models.build import Draft, drawing_from, generators_of, least_batch, seeded, weights_of
from vflsim.learning.models.client import CLIENT_MODELS, CnnClient, MlpClient
from vflsim.learning.models.server import SERVER_MODELS, LogisticServer, MlpServer
from vflsim.setting.learners import draft_of

MODEL = MlpClient(embedding=4, hidden=(8,))


def weights(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def built(seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return weights(seeded(lambda: MODEL.build((5,)), seed, dtype))


def test_weights_follow_from_the_seed() -> None:
    first = built(7)
    torch.rand(3)
    assert torch.equal(first, built(7))
    assert not torch.equal(first, built(8))


def test_weights_are_those_of_plain_pytorch() -> None:
    expected = built(2**63 - 1)
    with torch.random.fork_rng():
        torch.manual_seed(2**63 - 1)
        assert torch.equal(expected, weights(MODEL.build((5,))))


def test_the_global_generator_is_untouched() -> None:
    before = torch.get_rng_state()
    built(7)
    assert torch.equal(before, torch.get_rng_state())


def test_the_global_generator_is_untouched_even_by_a_failure() -> None:
    def failing() -> nn.Module:
        torch.rand(1)
        raise ValueError("no")

    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="no"):
        seeded(failing, 7, torch.float32)
    assert torch.equal(before, torch.get_rng_state())


def test_double_precision_starts_from_the_numbers_of_single_precision() -> None:
    single, double = built(7), built(7, torch.float64)
    assert double.dtype == torch.float64
    assert torch.equal(single.double(), double)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batch_normalisation_needs_two_rows(dtype: torch.dtype) -> None:
    plain, normalised = (MlpServer(hidden=(8,), batch_norm=norm) for norm in (False, True))
    assert least_batch(seeded(lambda: plain.build(5, 3), 0, dtype), (5,)) == 1
    assert least_batch(seeded(lambda: normalised.build(5, 3), 0, dtype), (5,)) == 2
    assert least_batch(LogisticServer().build(3, 3), (3,)) == 1
    assert least_batch(nn.Flatten(), (3,)) == 1


def test_batch_normalisation_of_images_is_content_with_one_row() -> None:
    shape = (1, 6, 6)
    module = nn.Sequential(nn.BatchNorm2d(1), CnnClient(embedding=4, channels=(3,)).build(shape))
    assert least_batch(module, shape) == 1


def test_looking_for_the_least_batch_changes_nothing() -> None:
    module = MlpServer(hidden=(8,), batch_norm=True).build(5, 3).eval()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    least_batch(module, (5,))
    assert not module.training
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())


def test_equal_drafts_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def draft(*shape: int) -> Draft:
        return Draft(MlpClient(embedding=4, hidden=(9,)), (shape,))

    assert weights_of(draft(11)) == ((11 + 1) * 9 + (9 + 1) * 4, 0)
    assert weights_of(draft(12)) == ((12 + 1) * 9 + (9 + 1) * 4, 0)
    monkeypatch.setattr(build, "drafted", None)  # counting again would fail
    assert weights_of(draft(11)) == ((11 + 1) * 9 + (9 + 1) * 4, 0)


EXAMPLES: dict[str, dict[str, object]] = {
    "cnn": {"channels": [4]},
    "mlp": {"hidden": [3]},
    "layers": {"layers": [5, "relu"]},
    "polynomial": {"degree": 2},
    "deepfm": {"factors": 2, "hidden": [3]},
    "wide_deep": {"factors": 2, "hidden": [3]},
    "vgg": {"side": 2, "channels": [4]},
    "module": {"path": "torch.nn:Linear"},
}


@pytest.mark.parametrize("kind", [*CLIENT_MODELS, *SERVER_MODELS], ids=lambda kind: kind.__name__)
def test_what_builds_a_model_is_known_by_its_value_unless_its_code_is_a_users(kind: type) -> None:
    name = kind.model_fields["kind"].default
    wanted = {"embedding": 4} if kind in CLIENT_MODELS else {}
    one, other = (draft_of(kind(**wanted, **EXAMPLES.get(name, {})), (8, 8)) for _ in range(2))
    assert (one == other) == (name != "module")
    assert len({one, other}) == (2 if name == "module" else 1)


def state() -> tuple[object, ...]:
    return torch.random.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


def test_global_generators_are_seeded_for_a_while_and_then_as_before() -> None:
    before = state()
    drawn = []
    for _ in range(2):
        with drawing_from(7):
            drawn.append((torch.rand(2).tolist(), np.random.rand(), random.random()))
    assert drawn[0] == drawn[1]
    assert state() == before


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_on_a_gpu_its_own_generator_is_seeded_too_and_put_back(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = [torch.Generator(), torch.Generator()]
    monkeypatch.setattr(torch.cuda, "default_generators", there)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    used = generators_of(torch.device(device))
    assert used == [torch.default_generator, there[1]]
    before = there[1].get_state().tolist()
    with drawing_from(7, torch.device(device)):
        assert there[1].initial_seed() == 7
    assert there[1].get_state().tolist() == before
    assert there[0].initial_seed() != 7
