"""The parties of encrypted logistic regression. Operations on ciphertexts take the times of the scheme's table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

from vflsim.codecs.encryption import Paillier, opened, sealed
from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import Handle, Operation, set_loss
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.staleness import Staleness
from vflsim.protocols.solving import closest
from vflsim.setting import Setting
from vflsim.streams import SERVER, generator
from vflsim.vocabulary.on_demand import Tensor, dtype, functional as F, torch

MASK = 64.0
"""The bound of residuals' masks and of first shares, and the least of others; a deployment's fill the plaintext."""
_BITS = {"gradient": 36, "scores": 51}
"""The bits of other masks: they hide sums over rows, and of shares that gradients' masks have made larger."""


@dataclass(frozen=True, slots=True)
class StepRule:
    """What all parties know. A ciphertext holds one number, a multiple of 2^-``fraction_bits``."""

    scheme: Paillier
    fraction_bits: int
    learning_rate: float
    ridge: float
    seed: int

    def rounded(self, x: Tensor) -> Tensor:
        """Return the closest fixed-point numbers."""
        return torch.round(x.double() * 2.0**self.fraction_bits) / 2.0**self.fraction_bits

    def stepped(self, w: Tensor, gradient: Tensor) -> Tensor:
        """Return ``w`` after a step."""
        return w - self.learning_rate * (gradient + self.ridge * w)


def columns_of(setting: Setting, party: int) -> tuple[int, int]:
    """Return how many features a party has, and how many weights an output: the server has that of the intercept."""
    holds = party != SERVER or setting.data.active is not None
    width = prod(setting.feature_shape_of(party)) if holds else 0
    return width, width + (party == SERVER)


class RegressionParty(PartyLearner):
    """Has weights ``w`` (columns, outputs) of its features; at the server, the last column is that of the intercept."""

    def __init__(self, rule: StepRule, setting: Setting, party: int) -> None:
        super().__init__(setting.data.parts(party, setting.training, rule.seed))
        self.rule, self.outputs, self.clients = rule, setting.data.outputs, setting.clients
        self.width, self.columns = columns_of(setting, party)
        self.staleness = Staleness(setting.clients if party == SERVER else (), setting.data.rows)

    def table(self, split: Split) -> Tensor:
        """Return the features of a split in fixed point, and ones at the server, (rows, columns)."""
        own = [self.rule.rounded(self.features(split).flatten(1))] if self.width else []
        ones = [torch.ones(len(self.labels(split)), 1, dtype=torch.float64)] if self.party == SERVER else []
        return torch.cat([*own, *ones], 1)

    @cached_property
    def training_table(self) -> Tensor:
        """The table of the training rows."""
        return self.table("train")

    def targets(self, batch: Batch) -> Tensor:
        """Return 0 or 1 for every row and output: of several classes, each against the rest."""
        y = self.y(batch)
        return (F.one_hot(y, self.outputs) if self.outputs > 1 else y.reshape(-1, 1)).double()

    def drawn(self, party: int, what: str, rows: int) -> Tensor:
        """Return a mask or a share that a party draws, (rows, outputs)."""
        draw = generator(self.rule.seed, party, f"he_lr/{what}")
        most = max(MASK, 2.0 ** (_BITS.get(what.partition("/")[0], 0) - self.rule.fraction_bits))
        return torch.from_numpy(draw.uniform(-most, most, (rows, self.outputs)))

    def mask(self, what: str, batch: Batch) -> Tensor:
        """Return the party's mask of ``what`` (scores, gradient or residuals) about a batch."""
        rows = self.columns if what == "gradient" else len(batch)
        return self.drawn(self.party, f"{what}/{batch.index}", rows)

    # --- ciphertexts ----------------------------------------------------------------------------------------------

    def ciphertexts(self, rows: int) -> Handle[Tensor]:
        """Promise ciphertexts of (rows, outputs) numbers."""
        return self.promise(rows, self.outputs * self.rule.scheme.ciphertext_bytes, dtype=dtype("uint8"))

    def clear(self, received: Handle[Tensor]) -> Tensor:
        """Return the numbers in ciphertexts, (rows, outputs)."""
        return torch.from_numpy(opened(received.value.numpy(), self.outputs))

    def encrypted(
        self, kind: str, rows: int, values: Callable[[], Tensor], inputs: Sequence[Handle[Tensor]] = (), **many: float
    ) -> Operation[Handle[Tensor]]:
        """Return an operation with (rows, outputs) numbers as ciphertexts: the work on them is so ``many`` rows."""
        result = self.ciphertexts(rows)
        seconds = self.rule.scheme.seconds(**{name: self.outputs * each for name, each in many.items()})

        def run() -> None:
            result.set(torch.from_numpy(sealed(values().numpy(), result.shape[1])))

        return self.operation(kind, run, result, inputs=inputs, rows=rows, seconds=seconds)

    def decrypt(self, *received: Handle[Tensor]) -> Operation[tuple[Handle[Tensor], ...]]:
        """Decrypt messages."""
        result = tuple(self.promise(each.shape[0], self.outputs, dtype=dtype("float64")) for each in received)

        def run() -> None:
            for promised, each in zip(result, received, strict=True):
                promised.set(self.clear(each))

        seconds = self.rule.scheme.seconds(decrypted=self.outputs * sum(each.shape[0] for each in received))
        return self.operation("decrypt", run, result, inputs=received, seconds=seconds)

    def product(
        self, what: Literal["scores", "gradient"], batch: Batch, received: Handle[Tensor]
    ) -> Operation[Handle[Tensor]]:
        """Return [[X v − mask]] of [[v]], or [[Xᵀ v − mask]]: products with features, sums, and an encrypted mask."""
        rows = len(batch) if what == "scores" else self.columns

        def values() -> Tensor:
            x, v = self.training_table[batch.tensor()], self.clear(received)
            return (x if what == "scores" else x.T) @ v - self.mask(what, batch)

        columns, width = len(batch) * self.columns, len(batch) * self.width
        return self.encrypted(
            f"masked_{what}", rows, values, [received], multiplied=width, added=columns, encrypted=rows
        )

    # --- a batch, with a coordinator ------------------------------------------------------------------------------

    def own_scores(self, batch: Batch) -> Tensor:
        """Return u = X w of a batch."""
        return self.training_table[batch.tensor()] @ self.remembered("w")

    def encrypt_scores(self, batch: Batch) -> Operation[Handle[Tensor]]:
        """Return [[u/4]]."""
        rows = len(batch)
        return self.encrypted(
            "encrypt_scores", rows, lambda: self.rule.rounded(self.own_scores(batch) / 4), encrypted=rows
        )

    def residuals(self, batch: Batch, received: Sequence[Handle[Tensor]]) -> Operation[Handle[Tensor]]:
        """Return [[e]] = Σ [[u_m/4]] + u_0/4 + 1/2 − y."""

        def values() -> Tensor:
            own = self.rule.rounded(self.own_scores(batch) / 4 + 0.5 - self.targets(batch))
            return sum(map(self.clear, received), start=own)

        return self.encrypted("residuals", len(batch), values, received, added=len(batch) * len(received))

    def step(self, batch: Batch, sums: Handle[Tensor], residuals: Handle[Tensor] | None = None) -> Operation[Any]:
        """Take the mask off the gradient's sums over rows, and step."""

        def update() -> None:
            gradient = (sums.value + self.mask("gradient", batch)) / len(batch)
            self.kept["w"] = self.rule.stepped(self.remembered("w"), gradient)

        return self.stepping(batch, update, [sums], residuals)

    def solved(self, batch: Batch, sums: Handle[Tensor]) -> Tensor:
        """Return what the party can tell of rows from its own gradients: e, or z/4 at the server, which has the labels.

        X_mᵀ e is an equation for each of its features: rows' e come to the closest ones to those so far that solve it.
        """
        x, rows = self.training_table[batch.tensor()], batch.tensor()
        known = 0.5 - self.targets(batch) if self.party == SERVER else torch.zeros(len(batch), self.outputs).double()
        guess: Tensor = self.kept.setdefault("guess", torch.zeros(len(self.training_table), self.outputs).double())
        guess[rows] = closest(guess[rows], x.T, sums.value + self.mask("gradient", batch) - x.T @ known)
        return guess[rows]

    def stepping(
        self,
        batch: Batch,
        update: Callable[[], None],
        inputs: Sequence[Handle[Tensor]],
        residuals: Handle[Tensor] | None,
    ) -> Operation[Any]:
        """Return a client's step, or the server's, which takes the loss before it from ``residuals``, in the clear."""
        flops, loss = 4.0 * self.columns * self.outputs, Handle[float]()
        if residuals is None:
            return self.operation(
                "client_step", update, None, inputs=inputs, rows=len(batch), cost=lambda: flops, counts="update"
            )

        def run() -> None:
            z = 4 * (self.clear(residuals) + self.targets(batch) - 0.5)
            set_loss(loss, self.loss(z.to(self.dtype), batch))
            update()

        return self.operation(
            "server_step", run, loss, inputs=[*inputs, residuals], rows=len(batch), cost=lambda: flops, counts="round",
            commit=lambda: self.staleness.complete([(batch, self.clients)], loss),
        )  # fmt: skip

    # --- evaluation, and what it keeps ----------------------------------------------------------------------------

    def scored(self, split: Split) -> Tensor:
        """Return X w of all rows of a split, (rows, outputs)."""
        return self.table(split) @ self.remembered("w")

    def embed_split(self, split: Split) -> Operation[Handle[Tensor]]:
        """Score all rows of a split by the party's own features: (rows, outputs)."""
        rows, width = len(self.features(split)), self.width
        result = self.promise(rows, self.outputs, dtype=dtype("float64"))
        flops = 2.0 * rows * width * self.outputs
        return self.operation("evaluate", lambda: result.set(self.scored(split)), result, rows=rows, cost=lambda: flops)

    def evaluate(self, split: Split, answers: Sequence[Any]) -> Operation[Handle[dict[str, float]]]:
        """Add up the scores of all parties, and compare them with the labels."""
        result: Handle[dict[str, float]] = Handle()
        inputs, rows = [answer.value for answer in answers], len(self.labels(split))

        def run() -> None:
            total = sum((each.value for each in inputs), start=self.scored(split))
            result.set(self.scores(total.to(self.dtype), split))

        return self.operation("evaluate", run, result, inputs=inputs, rows=rows, cost=lambda: float(rows))

    def remembered(self, name: str) -> Tensor:
        """Return weights that the party keeps, 0 at first."""
        self.kept.setdefault(name, torch.zeros(self.columns, self.outputs, dtype=torch.float64))
        kept: Tensor = self.kept[name]
        return kept

    def weights(self) -> dict[str, Tensor]:
        """Return the party's weights."""
        return {"w": self.remembered("w")}

    def outlines(self) -> dict[str, Tensor]:
        """Return ``weights`` without their values."""
        return {name: tensor.to("meta") for name, tensor in self.weights().items()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load what ``weights`` returned."""
        self.kept.update({name: tensor.clone() for name, tensor in weights.items()})
