"""VIMADMM-J: ADMM with whole models at the clients (VIM Alg. 3)."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from vflsim.protocols.vim.heads import WholeModels
from vflsim.protocols.vim.learning.joint import JointAdmmClient, JointAdmmServer
from vflsim.protocols.vim.learning.stack import stack_whole
from vflsim.protocols.vim.learning.whole import whole_clients
from vflsim.protocols.vim.vimadmm import Admm
from vflsim.setting import Learners, Setting


class VimAdmmJ(WholeModels, Admm):
    """Round t: clients send logits of B(t), the server updates z and λ, clients take ``local_steps`` of W_k and θ_k.

    The server's updates are Eq. 17 and 18; it sends λ and s^k (Eq. 19); clients step W_k (Eq. 20) and θ_k (Eq. 21).
    A round sends b d_c numbers up and 2 b d_c down for each client.

    Example: ``{kind: vimadmm_j, rho: 2, local_steps: 20, exclude: 3}``
    """

    kind: Literal["vimadmm_j"] = "vimadmm_j"

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make clients with heads of their own, and a server that keeps λ and z of every training row."""
        make = partial(JointAdmmClient, rho=self.rho)
        return Learners(JointAdmmServer(setting, self.rho), whole_clients(setting, seed, make), stack_whole)
