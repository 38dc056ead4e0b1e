"""Attacks on finished runs: on the embeddings that clients upload, on the models that runs left."""

from vflsim.attacks.base import Attack, AttackedRun, Measured
from vflsim.attacks.evaluate import Evaluation, evaluate, evaluation_tables, save
from vflsim.attacks.table import ATTACKS, chosen

__all__ = [
    "ATTACKS",
    "Attack",
    "AttackedRun",
    "Evaluation",
    "Measured",
    "chosen",
    "evaluate",
    "evaluation_tables",
    "save",
]
