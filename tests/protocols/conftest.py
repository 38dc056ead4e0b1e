import pytest
import torch
from plain_training import LEARNING

torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other


@pytest.fixture(params=[15, pytest.param(LEARNING, marks=pytest.mark.slow)])
def many(request: pytest.FixtureRequest) -> int:
    """How many rounds of a protocol are compared with plain training."""
    rounds: int = request.param
    return rounds
