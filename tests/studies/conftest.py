from collections.abc import Iterator

import pytest
import torch

from vflsim.simulation.checkpoints import Keeper

torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other


@pytest.fixture(scope="module")
def by_events() -> Iterator[None]:
    """Checkpoints after every 20 events, or every round of a program, instead of by the clock."""

    def plan(keeper: Keeper) -> None:
        if keeper._course is None:
            keeper.request()
        else:
            keeper._course.world.visit(keeper._visit, max(0, keeper._kept_at) + 20)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Keeper, "_plan", plan)
        yield
