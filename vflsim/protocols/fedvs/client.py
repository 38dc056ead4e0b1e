"""A client's side of coded training: share data and models, compute on shares, step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from vflsim.errors import NonFiniteError, WeightBoundError
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.learning.states import State, named, under
from vflsim.protocols.fedvs.plan import CodingPlan, SegmentedBatch, flops
from vflsim.protocols.fedvs.shares import (
    CodedSum,
    DataSecret,
    HeldData,
    HeldModel,
    ModelSecret,
    Sources,
    SystemWords,
    seeded_words,
)
from vflsim.streams import generator, party_name
from vflsim.vocabulary.on_demand import Tensor, nn, torch


@dataclass(slots=True)
class ShareWork:
    """An operation that shares a client's weights of a round."""

    place: int
    round: int


def expanded(features: Tensor, powers: int, bias: bool) -> Tensor:
    """Return X̂ = (x^{∘1}, …, x^{∘D}), with a column of ones for a bias: (rows, columns) of float64 (Eq. 1)."""
    x = features.flatten(1).double()
    columns, power = [x], x
    for _ in range(powers - 1):
        power = power * x
        columns.append(power)
    if bias:
        columns.append(torch.ones(len(x), 1, dtype=torch.float64))
    return torch.cat(columns, dim=1)


class CodedClientLearner(ClientLearner):
    """Makes the operations of one client of a coded run.

    The client's model is h = X̂ Ŵ with expanded features X̂ and stacked weights Ŵ (the biases b^i add up to one row). It
    trains on the rounded data X̂' = 2^{-l_x} X̄ (Sec. 5.2), straight through the rounding of the weights. Invariants:
    repeated shares of a round are equal; in a simulation they depend only on weights, seed and round; a client shares
    no weights whose sums could wrap.
    """

    def __init__(self, parts: ClientParts, plan: CodingPlan, powers: int, bias: bool) -> None:
        super().__init__(parts)
        self.plan = plan
        self._powers, self._bias = powers, bias
        self._place, self._columns = plan.places[parts.party], plan.columns[parts.party]
        self.words: Sources = seeded_words(plan.seed, parts.party)
        """Random words of the masks of its shares."""
        self.data_shares: dict[int, Handle[Any]] = {}
        """The received data shares by client, and this client's share of its own data."""
        self.given: Mapping[int, Handle[HeldData]] = {}
        """The shares of this client's data by receiver, once made."""
        self._keeps_secrets = False
        self._latest: ModelSecret | None = None

    @cached_property
    def data_secret(self) -> DataSecret:
        """X̄_n, made when first needed."""
        x = expanded(self.parts.features["train"], self._powers, self._bias)
        return DataSecret(self.plan, self.party, self._narrow(self.plan.quantiser.data(x)), self.words)

    @override
    def draw_secrets(self) -> None:
        """Have masks of the operating system's generator: the sums over shares do not depend on them."""
        super().draw_secrets()
        self.words = lambda _: SystemWords()
        self._keeps_secrets = True

    @property
    @override
    def serves_once(self) -> bool:
        return True

    def share_data(self) -> Operation[dict[int, Handle[HeldData]]]:
        """Make the shares of this client's data by receiver: each (n/K, columns) (Eq. 2)."""
        plan, shape = self.plan, (self.plan.segment_rows, self._columns)
        shares = {client: self._share(shape) for client in plan.clients}

        def run() -> None:
            for client, handle in shares.items():
                handle.set(HeldData(self.data_secret, plan.places[client]))

        def commit() -> None:
            self.given = shares
            self.data_shares[self.party] = shares[self.party]

        operation = self._operation_of("share_data", run, shares, plan.data_sharing_products(self.party))
        operation.commit = commit
        operation.inputs, operation.promises = (), tuple(shares.values())
        operation.nbytes = plan.rows * self._columns * 4
        return operation

    def keep(self, message: Any) -> None:
        """Keep a received data share."""
        self.data_shares[message.sender] = message.value

    def share_model(self, round_: int) -> Operation[dict[int, Handle[HeldModel]]]:
        """Make the shares of this client's weights of a round by receiver: each (columns, h) (Eq. 4).

        The operation raises WeightBoundError for weights whose sums might wrap.
        """
        plan, shape = self.plan, (self._columns, self.width)
        shares = {client: self._share(shape) for client in plan.clients}

        def run() -> None:
            weights = self._weights()
            self.check_weights(weights)
            self.give_shares(shares, round_, plan.quantiser.weights(weights, self.uniforms(round_)))

        operation = self._operation_of("share_model", run, shares, plan.model_sharing_products(self.party))
        if self.stack is not None:
            operation.kernel, operation.work = (
                self.stack.kernel("share_model", self._columns),
                ShareWork(self.place, round_),
            )
        operation.nbytes = 8 * self._columns * self.width
        operation.inputs, operation.promises = (), tuple(shares.values())
        return operation

    def coded_embed(self, batch: SegmentedBatch, models: Mapping[int, Handle[HeldModel]]) -> Operation[Handle[Any]]:
        """Compute H̃ = Σ_n X̃_n[B] W̃_n over the clients in ``models``, in client order: (|B|, h) (Eq. 5).

        The value is a lazy ``CodedSum``, which a simulation computes only if the server decodes with it.
        """
        data = {client: self.data_shares[client] for client in sorted(models)}
        result = self._share((len(batch.positions), self.width))

        def run() -> None:
            summands = tuple((data[client].value, models[client].value) for client in data)
            result.set(CodedSum(self.plan, batch, summands))

        full, products = map(self.plan.coded_embedding_products, (self.plan.batch_places, len(batch.positions)))
        operation = self._operation_of("coded_embed", run, result, products, full)
        operation.inputs, operation.promises = (*data.values(), *(models[client] for client in data)), (result,)
        return operation

    def client_step(self, batch: Batch, gradient: Any) -> Operation[None]:
        """Step Ŵ ← Ŵ − η X̂'ᵀ ∂ℓ/∂h_n with the gradient of the decoded embedding (Alg. 1, line 34)."""
        received: Handle[Tensor] = gradient.value

        def run() -> None:
            if not torch.isfinite(received.value).all():
                raise NonFiniteError("the gradient received is not finite")
            rows = self.data_secret.quantised[batch.tensor()]
            x = self.plan.quantiser.data_values(rows).to(received.value.dtype)
            self._put_gradients(x.T @ received.value)
            self.embedding.optimizer.step()

        return self._stepping(run, batch, received)

    # --- being interrupted ----------------------------------------------------------------------------------------

    @override
    def under_way(self) -> dict[str, Tensor]:
        """Return the latest shared model, too, and its masks: its shares may have to be sent again."""
        latest = self._latest
        if latest is None:
            return super().under_way()
        model = {"round": torch.tensor(latest.round), "quantised": latest.quantised, "masks": latest.masks()}
        return super().under_way() | named("shared", model)

    @override
    def unchanging(self) -> dict[str, Tensor]:
        """Return the masks of the data, and the shares of others' data, as soon as they are there."""
        others = {str(client): share.value for client, share in self.data_shares.items() if client != self.party}
        masks = {"masks": self.data_secret.masks()} if self.given else {}
        return super().unchanging() | named("data", masks | named("of", others))

    @override
    def take_up(self, under_way: State, send: Callable[[Any], None]) -> None:
        super().take_up(under_way, send)
        data, plan = under("data", under_way), self.plan
        if "masks" in data:
            self.data_secret.has(data["masks"])
            shares = {client: self._share((plan.segment_rows, self._columns)) for client in plan.clients}
            for client, handle in shares.items():
                handle.set(HeldData(self.data_secret, plan.places[client]))
            shares[self.party].set(shares[self.party].value.on_wire())
            self.given, self.data_shares[self.party] = shares, shares[self.party]
        for owner, share in under("of", data).items():
            handle = self.data_shares[int(owner)] = self._share((len(share), plan.columns[int(owner)]))
            handle.set(share)
        if shared := under("shared", under_way):
            self._latest = ModelSecret(plan, self.party, int(shared["round"]), shared["quantised"], self.words)
            self._latest.has(shared["masks"])

    # --- weights as one matrix ------------------------------------------------------------------------------------

    def _linears(self) -> list[nn.Linear]:
        return [module for module in self.model.modules() if isinstance(module, nn.Linear)]

    def _weights(self) -> Tensor:
        """Return Ŵ, (columns, h), float64: W^1 over W^2 …, over Σ b^i."""
        linears = self._linears()
        blocks = [linear.weight.detach().T.double() for linear in linears]
        if self._bias:
            blocks.append(torch.stack([linear.bias.detach().double() for linear in linears]).sum(0, keepdim=True))
        return torch.cat(blocks)

    def _put_gradients(self, gradient: Tensor) -> None:
        linears = self._linears()
        width = (self._columns - self._bias) // self._powers
        for block, linear in enumerate(linears):
            linear.weight.grad = gradient[block * width : (block + 1) * width].T.contiguous()
            if self._bias:
                linear.bias.grad = gradient[-1].clone()

    def check_weights(self, weights: Tensor) -> None:
        """Raise ``NonFiniteError`` or ``WeightBoundError`` for weights Ŵ that must not be shared."""
        largest, quantiser, bound = float(weights.abs().max()), self.plan.quantiser, self.plan.weight_bound
        if not math.isfinite(largest):
            raise NonFiniteError("a weight is not finite")
        if largest > bound:
            raise WeightBoundError(
                f"a weight of {party_name(self.party)} is {largest:.6g}, and weight_bound is "
                f"{bound:g}: with larger weights sums modulo p = {quantiser.field.p} could wrap "
                f"(data_bits {quantiser.data_bits}, weight_bits {quantiser.weight_bits})",
                allowed=f"weights from {-bound:g} to {bound:g}",
                remedy="raise weight_bound (which leaves fewer bits; many more with prime: 2^61-1), or lower the "
                "clients' learning rate",
            )

    def uniforms(self, round_: int) -> Tensor:
        """Draw the numbers that round the weights of a round: uniform in [0, 1), (columns, h), float64."""
        bits = generator(self.plan.seed, self.party, f"rounding/{round_}").bit_generator
        words = bits.random_raw(self._columns * self.width) >> np.uint64(11)
        return torch.from_numpy(words.astype(np.float64) * 2.0**-53).reshape(self._columns, self.width)

    def give_shares(self, shares: Mapping[int, Handle[HeldModel]], round_: int, quantised: Tensor) -> None:
        """Set the handles of the shares of a round's rounded weights; a live client shares the same ones once more."""
        secret = self._latest
        if secret is None or secret.round != round_:
            secret = ModelSecret(self.plan, self.party, round_, quantised, self.words)
        if self._keeps_secrets:
            self._latest = secret
        for client, handle in shares.items():
            handle.set(HeldModel(secret, self.plan.places[client]))

    def _narrow(self, quantised: Tensor) -> Tensor:
        """Convert to int32 if every value fits: half the memory."""
        return quantised.to(torch.int32) if self.plan.row_bounds[self.party] < 2**31 else quantised

    def _share(self, shape: tuple[int, int]) -> Handle[Any]:
        return Handle(shape, self.plan.quantiser.field.wire_dtype)

    def _operation_of(
        self, kind: str, run: Callable[[], None], result: Any, products: float, full: float | None = None
    ) -> Operation[Any]:
        """Make an operation of ``products`` multiplications, ``full`` of them for a full batch.

        FLOPs count ``products``; ``full`` scales sampled times, which do not shrink with the last batch.
        """
        units = self.plan.units(self.party, products if full is None else full)
        return Operation(kind, self.party, run, result, units=units, cost=lambda *_: flops(products))
