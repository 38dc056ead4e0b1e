"""The messages of clients with whole models, and of ADMM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vflsim.world.messages import Message


@dataclass(slots=True, eq=False)
class Logits(Message):
    """A client's part of the prediction for a batch, o^k = f(x; θ_k) W_k, shape (batch, d_c)."""

    kind: ClassVar[str] = "logits"
    ordered: ClassVar[bool] = True
    embedding: ClassVar[bool] = True


@dataclass(slots=True, eq=False)
class AdmmVariables(Message):
    """What a client's local steps need: ``duals`` λ (b, d_c), ``residuals`` s^k (b, d_c) and, unless the client holds
    it, its ``head`` W_k (d_f, d_c)."""

    kind: ClassVar[str] = "admm_variables"
    ordered: ClassVar[bool] = True
    rowless: ClassVar[frozenset[str]] = frozenset({"head"})
