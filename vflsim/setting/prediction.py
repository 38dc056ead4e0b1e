"""The server's prediction as a function of received embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vflsim.learning.batches import Split
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.server import ServerLearner
from vflsim.setting.learners import Learners


@dataclass(frozen=True, slots=True)
class ServerPrediction:
    """The server's prediction from fresh embeddings, as in evaluation. It is differentiable in every embedding.

    ``predict`` takes embeddings of the same rows in party order, (rows, width) each, the server's own first if it holds
    features, and returns (rows, outputs). ``own`` embeds the server's features of all rows of a split. ``modules`` are
    the server's models, in evaluation mode whenever these are called.

    Example::

        ServerPrediction(predict=lambda embeddings: sum(embeddings), own=None, modules=()).own is None  # True
    """

    predict: Callable[[Sequence[Tensor]], Tensor]
    own: Callable[[Split], Tensor] | None
    modules: tuple[nn.Module, ...]


def prediction_of(
    server: PartyLearner, predict: Callable[[Sequence[Tensor]], Tensor], own: Callable[[Split], Tensor] | None = None
) -> ServerPrediction:
    """Return the prediction of a server with these functions."""
    return ServerPrediction(predict, own, tuple(model.module for model in server.models.values()))


def split_prediction(learners: Learners[Any, Any]) -> ServerPrediction:
    """Return the prediction of plain split training. Raises ``ValueError`` for another server.

    Example::

        predict = split_prediction(split_learners(setting, seed=0)).predict
        predict([torch.zeros(5, 6, dtype=torch.float64)] * 4).shape  # torch.Size([5, 10])
    """
    server = learners.server
    if not isinstance(server, ServerLearner):
        raise ValueError(
            "its server is not that of split training; allowed: protocols that say how they predict from embeddings "
            "(Protocol.prediction)"
        )
    return prediction_of(server, server.predict, None if server.embedding is None else server.own_embedding)
