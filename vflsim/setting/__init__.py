"""Resolved settings of one protocol of a scenario, and its learners."""

from vflsim.setting.batch_plan import BatchPlan
from vflsim.setting.learners import (
    ClientsMade,
    Learners,
    SplitLearners,
    client_parts,
    linear_heads,
    server_parts,
    split_clients,
    split_learners,
    stack_split_learners,
)
from vflsim.setting.prediction import ServerPrediction, prediction_of, split_prediction
from vflsim.setting.resolved import Setting

__all__ = [
    "BatchPlan",
    "ClientsMade",
    "Learners",
    "ServerPrediction",
    "Setting",
    "SplitLearners",
    "client_parts",
    "linear_heads",
    "prediction_of",
    "server_parts",
    "split_clients",
    "split_learners",
    "split_prediction",
    "stack_split_learners",
]
