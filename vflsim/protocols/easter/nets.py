"""A party with an embedding net and a prediction net; and the check that the active party has features."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from vflsim.learning.learners.party import PartyLearner
from vflsim.protocols.base import CheckContext
from vflsim.protocols.traits import Traits
from vflsim.setting import Setting
from vflsim.streams import SERVER

PREDICTORS = Traits(
    waits_for_all=True,
    rounds_correspond=True,
    active_features=True,
    predictors=True,
    party_scores=True,
    mechanism=False,
    refuses_absent_rows="every party predicts every row",
)
"""Rounds in which every party trains a prediction net of its own."""


class TwoNets(PartyLearner):
    """Holds h(θ, D), of ``models.client`` or ``models.active``, and p(θ, E), of ``models.predictor`` or
    ``models.server``. One optimiser rule trains both."""

    def __init__(self, setting: Setting, party: int, seed: int) -> None:
        super().__init__(setting.data.parts(party, setting.training, seed, blinded_sum=setting.blinded_sum))
        model, shape = setting.embedding_model_of(party), setting.feature_shape_of(party)
        self.width, self.outputs, rule = model.embedding, setting.data.outputs, setting.optimizer_of(party)
        embed, predict = (
            partial(model.build, shape),
            partial(setting.predictor_of(party).build, self.width, self.outputs),
        )
        # These orders give the initial weights of a split network: bottoms, top, and the active party's bottom.
        if party != SERVER:
            self.embedding = self.add_model("embedding", embed, rule)
        self.predictor = self.add_model("predictor", predict, rule, inputs=(self.width,))
        if party == SERVER:
            self.embedding = self.add_model("embedding", embed, rule)

    def whole(self, x: Tensor) -> Tensor:
        """Predict from the party's own features alone: p(h(x)), (rows, outputs)."""
        return self.predictor(self.embedding(x))

    def flops(self, kind: str, rows: int) -> float:
        """Count the FLOPs of an embedding, a prediction, or the backward passes of a step."""
        if kind in ("embed", "predict"):
            return (self.embedding if kind == "embed" else self.predictor).forward_flops(rows)
        return self.embedding.backward_flops(rows) + self.predictor.backward_flops(rows)


def need_features(context: CheckContext) -> None:
    """Raise ``ValueError`` if the active party holds no features."""
    if context.active is None:
        raise ValueError(
            "the active party has an embedding net, and the server holds no features; "
            "set partition.active: true and models.active"
        )
