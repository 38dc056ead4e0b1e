"""FDML: whole models at the clients, trained by gradients (Hu et al. 2019b; the baseline of VIM Sec. 3.3)."""

from __future__ import annotations

from typing import Any, Literal

from vflsim.protocols.vim.heads import WholeModels
from vflsim.protocols.vim.learning.stack import stack_whole
from vflsim.protocols.vim.learning.whole import Combine, LogitsServer, WholeClient, whole_clients
from vflsim.setting import Learners, Setting


class Fdml(WholeModels):
    """Round t: clients send logits of B(t), the server returns the gradient of the loss by the logits, clients step.

    They update W_k and θ_k along gradients at the old values of both. A round sends b d_c numbers up and b d_c down for
    each client.

    Example: ``{kind: fdml, combine: mean, exclude: 3}``
    """

    kind: Literal["fdml"] = "fdml"
    combine: Combine = "sum"
    """The prediction is the ``sum`` of the clients' logits, or their ``mean``."""

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make clients with heads of their own, and a server without a model."""
        clients = whole_clients(setting, seed, WholeClient)
        return Learners(LogitsServer(setting, self.combine), clients, stack_whole)
