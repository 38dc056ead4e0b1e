"""The learners of a coded run."""

from __future__ import annotations

from typing import Any

from vflsim.protocols.fedvs.learning.client import CodedClientLearner
from vflsim.protocols.fedvs.learning.plan import CodingPlan
from vflsim.protocols.fedvs.learning.server import CodedServerLearner
from vflsim.protocols.fedvs.learning.shares import CodedSum, HeldData, HeldModel, ModelSecret
from vflsim.protocols.fedvs.learning.stack import stack_coded
from vflsim.setting import Learners, Setting, client_parts, server_parts


def coded_learners(setting: Setting, plan: CodingPlan, seed: int) -> Learners[CodedServerLearner, CodedClientLearner]:
    """Make the learners of a coded run, whose parties agree on ``plan``."""
    clients: dict[int, CodedClientLearner] = {}
    for client in setting.clients:
        model = setting.models[client - 1]
        assert model.powers is not None, "checked when the scenario was loaded"
        clients[client] = CodedClientLearner(client_parts(setting, client, seed), plan, model.powers, model.biased)
    server, lazy = CodedServerLearner(server_parts(setting, seed), plan), (HeldData, HeldModel, CodedSum, ModelSecret)
    return Learners(server, clients, _stack, lazy)


def _stack(setting: Setting, learners: Learners[Any, Any]) -> list[str]:
    """Compute all clients together."""
    stack_coded(learners.clients, setting.data.joint, setting.data.columns)
    return []
