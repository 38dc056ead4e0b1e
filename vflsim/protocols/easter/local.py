"""The active party alone (EASTER's baseline *Local*)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from vflsim.learning.batches import Split
from vflsim.learning.execution.operations import Handle
from vflsim.protocols.base import CheckContext, Protocol
from vflsim.protocols.capabilities import OwnEvaluation, Predicting, Selective
from vflsim.protocols.easter.nets import need_features
from vflsim.protocols.easter.whole import WholeActive
from vflsim.protocols.evaluation import Scores
from vflsim.protocols.traits import Traits
from vflsim.setting import Learners, ServerPrediction, Setting, prediction_of
from vflsim.world.node import ClientNode, Node


class Local(Predicting, Selective, OwnEvaluation, Protocol):
    """Round t: the active party steps its two nets on B(t) of its own features. No client takes part.

    Example: ``{kind: local}``
    """

    kind: Literal["local"] = "local"
    traits: ClassVar[Traits] = Traits(
        rounds_correspond=True,
        active_features=True,
        predictors=True,
        mechanism=False,
        refuses_absent_rows="the server predicts every row from its own features",
        uploads_nothing="no client takes part, so the server gets no embedding from anybody",
    )

    def participants(self, clients: int, symbols: Mapping[str, float]) -> list[int]:
        """Return no client."""
        return []

    async def server(self, node: Node[WholeActive]) -> None:
        """Take a step in each round."""
        for t in node.rounds():
            await node.compute(node.learner.server_step([], node.batch(t)))

    async def client(self, node: ClientNode) -> None:
        """Do nothing; there are no clients."""

    async def evaluate(
        self, node: Node[WholeActive], splits: Sequence[Split], number: int
    ) -> dict[Split, Handle[Scores]]:
        """Return loss and metrics of the active party's predictions."""
        return {split: await node.compute(node.learner.evaluate(split, [])) for split in splits}

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for a server without features."""
        super().check(context)
        need_features(context)

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the active party."""
        return Learners(WholeActive(setting, seed), {})

    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        """Return the active party's prediction from its own features."""
        active: WholeActive = learners.server
        return prediction_of(active, active.combined, lambda split: active.whole(active.features(split)))
