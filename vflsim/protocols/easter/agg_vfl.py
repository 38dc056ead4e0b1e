"""AggVFL: parties with whole models, whose predictions are aggregated (a baseline of EASTER)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from torch import Tensor

from vflsim.protocols.answering import Answering
from vflsim.protocols.base import CheckContext, Protocol
from vflsim.protocols.capabilities import Predicting
from vflsim.protocols.easter.nets import PREDICTORS, need_features
from vflsim.protocols.easter.whole import WholeActive, WholeParty
from vflsim.protocols.traits import Traits
from vflsim.protocols.vim import Fdml
from vflsim.protocols.vim.learning.whole import Combine
from vflsim.setting import ClientsMade, Learners, ServerPrediction, Setting, prediction_of
from vflsim.world.node import Node


class AggVfl(Predicting, Answering, Protocol):
    """Round t: clients send their predictions of B(t), the active party aggregates them with its own and returns the
    gradients; every party steps its two nets. There is no trained model on top.

    Example: ``{kind: agg_vfl, combine: sum}``
    """

    kind: Literal["agg_vfl"] = "agg_vfl"
    combine: Combine = "mean"
    """The prediction is the ``mean`` of all parties' predictions, or their ``sum``."""
    traits: ClassVar[Traits] = PREDICTORS

    async def server(self, node: Node[WholeActive]) -> None:
        """Combine the predictions; send each client ∂ℓ/∂o_k."""
        await Fdml().server(node)

    async def client(self, node: Node[WholeParty]) -> None:
        """Send o_k of B(t); step along the gradient."""
        await Fdml().client(node)

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for a server without features."""
        super().check(context)
        need_features(context)

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make parties with whole models."""
        clients = ClientsMade(WholeParty, setting.clients, lambda client: WholeParty(setting, client, seed))
        return Learners(WholeActive(setting, seed, self.combine), clients)

    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        """Return the combined predictions of all parties as a function of embeddings."""
        active: WholeActive = learners.server
        return prediction_of(active, active.combined, lambda split: active.whole(active.features(split)))

    def answer(self, learners: Learners[Any, Any], embeddings: Mapping[int, Tensor | None]) -> Tensor:
        """Combine the active party's prediction with those that came."""
        active: WholeActive = learners.server
        return active.combined([*embeddings.values()])

    def own(self, learners: Learners[Any, Any]) -> Tensor:
        """Return the active party's prediction from its own features."""
        active: WholeActive = learners.server
        return active.whole(active.features("test"))
