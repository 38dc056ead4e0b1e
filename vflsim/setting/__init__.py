"""Resolved settings of one protocol of a scenario, and its learners."""

from vflsim.setting.learners import (
    ClientsMade,
    Learners,
    ServerPrediction,
    SplitLearners,
    client_parts,
    linear_heads,
    prediction_of,
    server_parts,
    split_clients,
    split_learners,
    split_prediction,
    stack_split_learners,
)
from vflsim.setting.resolved import BatchPlan, Setting, shared_batches

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
    "shared_batches",
    "split_clients",
    "split_learners",
    "split_prediction",
    "stack_split_learners",
]
