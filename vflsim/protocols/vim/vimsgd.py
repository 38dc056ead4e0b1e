"""VIMSGD: linear heads at the server, trained by gradients (VIM Alg. 2)."""

from __future__ import annotations

from typing import Any, Literal

from vflsim.learning.learners.server import ServerLearner
from vflsim.protocols.vim.heads import LinearHeads
from vflsim.protocols.vim.learning.heads import HeadsFirstServer
from vflsim.setting import Learners, Setting, server_parts, split_clients


class VimSgd(LinearHeads):
    """Round t: clients embed B(t), the server steps its heads, clients step on gradients through the new heads.

    The server updates all W_k (Eq. 12–13) and sends ∇_{h^k} ℓ (Eq. 14), along which clients update θ_k (Eq. 15–16).

    Example: ``{kind: vimsgd, gradient_heads: old, exclude: 3}``
    """

    kind: Literal["vimsgd"] = "vimsgd"
    gradient_heads: Literal["new", "old"] = "new"
    """The heads at which the clients' gradients are taken: those after the round's step, as in Alg. 2, or those before
    it, as in the authors' program and in ``synchronous`` training."""

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the clients of split training, and a server that may update its heads first."""
        clients = split_clients(setting, seed)
        server = HeadsFirstServer if self.gradient_heads == "new" else ServerLearner
        return Learners(server(server_parts(setting, seed)), clients)
