import random

import numpy as np
import pytest
import torch

from vflsim.learning.models.build import drawing_from, generators_of


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
