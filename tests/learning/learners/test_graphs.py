"""Forward passes that wait for their gradient: what they return of the tensors that another party sent."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from vflsim.learning.batches import Batch
from vflsim.learning.learners.inputs import PartyParts
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.optimizers import Sgd

ROWS, WIDTH = 6, 4
BATCH = Batch(0, torch.arange(ROWS).numpy())
X = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
SENT = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
SLOPE = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


class Predictor(PartyLearner):
    """A head on what another party has sent, at a party that holds features of its own."""

    def __init__(self) -> None:
        super().__init__(PartyParts(party=1, dtype=torch.float64, batch=3, features={"train": X, "test": X}))
        self.head = self.add_model("head", lambda: nn.Linear(WIDTH, 2), Sgd(lr=0.5), inputs=(WIDTH,))
        self.graph = self.add_graph("predicted", self._predicted, self.head, features=False)

    def _predicted(self, sent: Tensor, chosen: Tensor) -> Tensor:
        return self.head(sent)[chosen]


CHOSEN = torch.arange(ROWS)


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_backward_pass_returns_the_gradients_of_what_was_received(interrupted: bool) -> None:
    party = Predictor()
    weight = party.head.module.weight.detach().clone()
    party.graph.forward(BATCH, SENT, CHOSEN)
    if interrupted:
        state = {name: tensor.clone() for name, tensor in party.state().items()}
        party = Predictor()
        party.load(state)
    of_sent, of_chosen = party.graph.backward(BATCH, SLOPE)
    assert torch.allclose(of_sent, SLOPE @ weight, rtol=0, atol=1e-14)
    assert of_chosen is None  # numbers of rows have no gradient
    assert torch.allclose(party.head.module.weight, weight - 0.5 * SLOPE.T @ SENT, rtol=0, atol=1e-14)
    assert not SENT.requires_grad  # it is another party's


def test_an_evaluation_takes_its_rows_in_mini_batches_and_other_work_one() -> None:
    party = Predictor()
    kinds = {"evaluate": ROWS / 3, "embed": 1.0}
    for kind, units in kinds.items():
        assert party.operation(kind, lambda: None, None, rows=ROWS).units == units
        assert party.operation(kind, lambda: None, None, rows=ROWS, units=7.0).units == 7.0
