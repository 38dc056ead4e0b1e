"""The two parties of logistic regression on shares: all that one of them knows of weights and errors is random."""

from __future__ import annotations

from functools import partial
from typing import Any

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.protocols.he_lr.learning import RegressionParty, StepRule, columns_of
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.vocabulary.on_demand import Tensor, dtype, torch


class SharingParty(RegressionParty):
    """Has a ``share`` of its own weights, and one of the ``other`` party's. ``w`` is what evaluation has opened."""

    def __init__(self, rule: StepRule, setting: Setting, party: int) -> None:
        super().__init__(rule, setting, party)
        self.peer = setting.clients[0] if party == SERVER else SERVER
        self.peer_columns = columns_of(setting, self.peer)[1]

    def remembered(self, name: str) -> Tensor:
        """Return weights or shares. First shares add up to 0; sharing them takes no time here."""
        if name not in self.kept and name != "w":
            mine = name == "share"
            drawn = self.drawn(self.party if mine else self.peer, "shares", self.columns if mine else self.peer_columns)
            self.kept[name] = drawn if mine else -drawn
        return super().remembered(name)

    def encrypt_share(self) -> Operation[Handle[Tensor]]:
        """Encrypt the share of the other party's weights."""
        rows = self.peer_columns
        return self.encrypted(
            "encrypt_share", rows, lambda: self.rule.rounded(self.remembered("other")), encrypted=rows
        )

    def score_share(self, batch: Batch, received: Handle[Tensor]) -> Tensor:
        """Return the party's share of z: X times its share of w, its mask, and what it has decrypted."""
        own = self.training_table[batch.tensor()] @ self.remembered("share")
        return own + self.mask("scores", batch) + received.value

    def encrypt_score_share(self, batch: Batch, received: Handle[Tensor]) -> Operation[Handle[Tensor]]:
        """Client: return [[its share of z]]."""
        values = partial(self.score_share, batch, received)
        rows = len(batch)
        return self.encrypted("encrypt_scores", rows, lambda: self.rule.rounded(values()), [received], encrypted=rows)

    def error(self, batch: Batch, received: Handle[Tensor], scores: Handle[Tensor]) -> Operation[Handle[Tensor]]:
        """Server: return [[e]] = 1/2 + (z_0 + [[z_1]])/4 − y, by the client's key."""

        def values() -> Tensor:
            return 0.5 + (self.score_share(batch, received) + self.clear(scores)) / 4 - self.targets(batch)

        rows = len(batch)
        return self.encrypted("residuals", rows, values, [received, scores], multiplied=rows, added=rows)

    def client_error(self, batch: Batch, error: Handle[Tensor]) -> Operation[Handle[Tensor]]:
        """Server: return [[e − its own share]], the client's share, by the client's key."""
        rows = len(batch)

        def values() -> Tensor:
            return self.clear(error) - self.rule.rounded(self.mask("residuals", batch))

        return self.encrypted("client_residuals", rows, values, [error], added=rows, encrypted=rows)

    def server_error(self, batch: Batch) -> Operation[Handle[Tensor]]:
        """Server: return [[its own share of e]], which it draws."""
        rows = len(batch)
        return self.encrypted(
            "server_residuals", rows, lambda: self.rule.rounded(self.mask("residuals", batch)), encrypted=rows
        )

    def share_step(self, batch: Batch, other: Handle[Tensor], error: Handle[Tensor]) -> Operation[Any]:
        """Step with both shares: ``other`` is that of the other party's gradient. ``error`` is [[e]] at the server.

        At the client it is the client's share of e, which multiplies its own features in the clear.
        """
        client = self.party != SERVER

        def update() -> None:
            own = self.mask("gradient", batch)
            if client:
                own = own + self.training_table[batch.tensor()].T @ error.value
            for name, sums in (("share", own), ("other", other.value)):
                self.kept[f"{name}_before"] = self.remembered(name)
                self.kept[name] = self.rule.stepped(self.remembered(name), sums / len(batch))
            self.kept["steps"] = self.steps + 1

        return self.stepping(batch, update, [other, error] if client else [other], None if client else error)

    # --- evaluation -----------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """The party's steps so far."""
        steps: int = self.kept.get("steps", 0)
        return steps

    def tell(self) -> Operation[dict[str, Handle[Tensor]]]:
        """Client: tell the share of the server's weights, and after how many steps."""
        share = self.promise(self.peer_columns, self.outputs, dtype=dtype("float64"))
        steps = self.promise(1, dtype=dtype("int64"))

        def run() -> None:
            share.set(self.remembered("other").clone())
            steps.set(torch.tensor([self.steps]))

        return self.operation("tell_share", run, {"share": share, "steps": steps})

    def open(self, share: Handle[Tensor], steps: Handle[Tensor] | None = None) -> Operation[Handle[Tensor]]:
        """Add up the shares of the party's weights, and tell that of the other's.

        The server goes back to where the client is, which may have its last step before it.
        """
        told = self.promise(self.peer_columns, self.outputs, dtype=dtype("float64"))

        def run() -> None:
            ago = "" if steps is None or int(steps.value) == self.steps else "_before"
            self.kept["w"] = self.remembered(f"share{ago}") + share.value
            told.set(self.remembered(f"other{ago}").clone())

        return self.operation("open_shares", run, told, inputs=[share, *([] if steps is None else [steps])])
