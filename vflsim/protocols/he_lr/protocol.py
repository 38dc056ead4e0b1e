"""Vertical logistic regression on ciphertexts, as industry runs it: with a coordinator, or on shares without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from vflsim.codecs.encryption import Paillier, in_the_clear
from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.inputs import in_client_order
from vflsim.learning.tasks import Auto, BinaryCrossEntropy, CrossEntropy
from vflsim.protocols.base import CheckContext, Protocol, Traits, UnsuitableError
from vflsim.protocols.he_lr.learning import RegressionParty, StepRule
from vflsim.protocols.he_lr.sharing import SharingParty
from vflsim.setting import ClientsMade, Learners, ServerPrediction, Setting, prediction_of
from vflsim.streams import SERVER, party_name
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.vocabulary.quantities import Count, NonNegativeNumber, PositiveNumber
from vflsim.world.messages import Message
from vflsim.world.node import Node


@dataclass(slots=True, eq=False)
class EncryptedShare(Message):
    """[[the sender's share of the receiver's weights]], (columns, bytes)."""

    kind: ClassVar[str] = "enc_share"
    rowless: ClassVar[frozenset[str]] = frozenset({""})


@dataclass(slots=True, eq=False)
class MaskedScores(Message):
    """[[X v − mask]] of the receiver's share v of the sender's weights, (batch, bytes)."""

    kind: ClassVar[str] = "masked_scores"
    rowless: ClassVar[frozenset[str]] = frozenset({""})


@dataclass(slots=True, eq=False)
class EncryptedScores(Message):
    """A client's [[X w/4]], or its [[share of all scores]], (batch, bytes)."""

    kind: ClassVar[str] = "enc_scores"
    rowless: ClassVar[frozenset[str]] = frozenset({""})


@dataclass(slots=True, eq=False)
class EncryptedResiduals(Message):
    """[[e]], or two shares of it: ``mine`` of the client and ``theirs`` of the server, (batch, bytes)."""

    kind: ClassVar[str] = "enc_residuals"
    rowless: ClassVar[frozenset[str]] = frozenset({"", "mine", "theirs"})


@dataclass(slots=True, eq=False)
class MaskedGradient(Message):
    """[[Xᵀ e − mask]] of the sender's features, (columns, bytes)."""

    kind: ClassVar[str] = "masked_gradient"
    rowless: ClassVar[frozenset[str]] = frozenset({""})


@dataclass(slots=True, eq=False)
class OpenedGradient(Message):
    """What the coordinator has decrypted, with the client's mask on it, (columns, outputs)."""

    kind: ClassVar[str] = "opened_gradient"
    rowless: ClassVar[frozenset[str]] = frozenset({""})


@dataclass(slots=True, eq=False)
class OpenedShare(Message):
    """The ``share`` of the receiver's weights, for an evaluation, (columns, outputs), and a client's ``steps``."""

    kind: ClassVar[str] = "opened_share"
    rowless: ClassVar[frozenset[str]] = frozenset({"share", "steps"})


class HeLr(Protocol):
    """Logistic regression on Paillier's ciphertexts, a mini-batch a round. The gradient is of the Taylor loss.

    With e = 1/2 + z/4 − y and z = Σ X_m w_m, party m steps by w_m ← w_m − η (X_mᵀ e / B + λ w_m). The server is the
    guest, with labels, intercept and its features; clients are hosts. Several classes are regressions of one against
    the rest, in the same messages. Weights begin at 0; models and optimisers of the scenario are not used. [[·]] is
    encrypted, and every mask r is new.

    ``coordinator`` (Hardy et al. 2017; FATE's hetero-LR, without its shortcut for one host):

    1. Clients send [[X_m w_m / 4]]. The server sends all of them the sum [[e]].
    2. Each party multiplies [[e]] by its features, and adds an encrypted mask. The coordinator decrypts
       X_mᵀ e − r_m, and returns it. Masks are those of Yang et al. (2019); FATE has none.

    The coordinator has the key. **Here it works at the server's site**: on its processor and behind its link, and the
    server's own gradient needs no message. A deployment needs somebody else there, since the key opens X_m w_m.

    ``sshe`` (Chen et al. 2021; FATE's hetero-SSHE-LR), the server and one client, each with a key: both have a share
    of both weights.

    1. Each sends [[its share of the other's weights]], and returns the product with its own features, less a mask. So
       they have shares z_0 and z_1. The client sends [[z_1]].
    2. The server computes [[e]] by the client's key, draws its share e_0, and sends [[e − e_0]] and, by its own key,
       [[e_0]].
    3. The server sends [[X_0ᵀ e − r_0]], the client [[X_1ᵀ e_0 − r_1]]. Both step on all shares.

    The server sends its product when it has stepped. Evaluations open the weights. **Values pass in the clear inside
    the simulator**; ciphertexts are a cost. Rounding is real: features, and numbers before they are encrypted, are
    multiples of 2^-``fraction_bits``.

    The papers leave open who randomises sums of ciphertexts (here the mask's encryption), and the intercept's place.
    Left out: sending keys and first shares, encrypted losses (the loss reported is seen in the clear), packing,
    sparse features, and the cubic sigmoid of Chen et al.

    Examples: ``{kind: he_lr, learning_rate: 0.5, ridge: 0.01, fraction_bits: 23, encryption: {kind: paillier, key:
    1024}}``, ``{kind: he_lr, form: sshe, host: 2}``
    """

    kind: Literal["he_lr"] = "he_lr"
    form: Literal["coordinator", "sshe"] = "coordinator"
    """Whether a coordinator has the key, or two parties have shares and a key each."""
    host: Count | None = None
    """The client of the form ``sshe``; others take no part. By default client 1."""
    learning_rate: PositiveNumber = 0.1
    """η of all parties."""
    ridge: NonNegativeNumber = 0.0
    """λ: the penalty on weights, the intercept's included."""
    fraction_bits: Annotated[int, Field(ge=4, le=40)] = 23
    """The bits after the point of numbers in ciphertexts, and of features."""
    encryption: Paillier = Paillier()
    """The scheme: its key, and times of your own. A ciphertext holds one number."""
    traits: ClassVar[Traits] = Traits(
        waits_for_all=True,
        rounds_correspond=True,
        active_features=True,
        mechanism=False,
        shows_uploads=False,
        only_embeddings_up=False,
        uploads_nothing="clients upload ciphertexts, and no embedding",
        refuses_absent_rows="a score is a sum over the features of all parties",
        in_the_clear=True,
        runs_on_cpu=True,
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.host is not None and self.form != "sshe":
            raise ValueError(f"host: {self.host} is for form: sshe; with a coordinator, all clients take part")
        if self.encryption.packed != 1:
            raise ValueError(f"encryption.packed: {self.encryption.packed}, and each number is multiplied; allowed: 1")
        return self

    # --- with a coordinator ---------------------------------------------------------------------------------------

    async def server(self, node: Node[Any]) -> None:
        """Guest: the residuals of each batch, its own gradient, and the coordinator's work."""
        for k in node.rounds():
            await (self._shared_guest if self.form == "sshe" else self._guest)(node, node.batch(k), k)

    async def client(self, node: Node[Any]) -> None:
        """Host: its scores, and its gradient."""
        for k in node.rounds():
            await node.activated()
            await (self._shared_host if self.form == "sshe" else self._host)(node, node.batch(k), k)

    async def _guest(self, node: Node[Any], batch: Batch, k: int) -> None:
        scores = in_client_order(await node.gather("enc_scores", senders=node.clients, round=k))
        residuals = await node.compute(node.learner.residuals(batch, [each.value for each in scores]))
        for client in node.clients:
            await node.send(client, EncryptedResiduals(value=residuals, round=k))
        mine = await node.compute(node.learner.product("gradient", batch, residuals))
        masked = in_client_order(await node.gather("masked_gradient", senders=node.clients, round=k))
        own, *others = await node.compute(node.learner.decrypt(mine, *(each.value for each in masked)))
        node.derive("scores", batch, [own], partial(node.learner.solved, batch, own))
        await node.compute(node.learner.step(batch, own, residuals))
        for message, gradient in zip(masked, others, strict=True):
            await node.send(message.sender, OpenedGradient(value=gradient, round=k))

    async def _host(self, node: Node[Any], batch: Batch, k: int) -> None:
        scores = await node.compute(node.learner.encrypt_scores(batch))
        await node.upload("server", EncryptedScores(value=scores, round=k))
        residuals = await node.recv("enc_residuals", round=k)
        masked = await node.compute(node.learner.product("gradient", batch, residuals.value))
        await node.upload("server", MaskedGradient(value=masked, round=k))
        gradient = await node.recv("opened_gradient", round=k)
        (sums,) = gradient.carried.values()
        node.derive("residuals", batch, [sums], partial(node.learner.solved, batch, sums))
        await node.compute(node.learner.step(batch, gradient.value))

    # --- on shares ------------------------------------------------------------------------------------------------

    async def _shared_guest(self, node: Node[Any], batch: Batch, k: int) -> None:
        learner, (client,) = node.learner, node.clients
        share = await node.compute(learner.encrypt_share())
        (theirs,) = await node.gather("enc_share", senders=node.clients, round=k)
        await node.send(client, EncryptedShare(value=share, round=k))
        masked = await node.compute(learner.product("scores", batch, theirs.value))
        (products,) = await node.gather("masked_scores", senders=node.clients, round=k)
        await node.send(client, MaskedScores(value=masked, round=k))
        (product,) = await node.compute(learner.decrypt(products.value))
        node.derive("shares", batch, [product])
        (scores,) = await node.gather("enc_scores", senders=node.clients, round=k)
        error = await node.compute(learner.error(batch, product, scores.value))
        shares = {
            "mine": await node.compute(learner.client_error(batch, error)),
            "theirs": await node.compute(learner.server_error(batch)),
        }
        await node.send(client, EncryptedResiduals(tensors=shares, round=k))
        own = await node.compute(learner.product("gradient", batch, error))
        (gradients,) = await node.gather("masked_gradient", senders=node.clients, round=k)
        (gradient,) = await node.compute(learner.decrypt(gradients.value))
        await node.compute(learner.share_step(batch, gradient, error))
        await node.send(client, MaskedGradient(value=own, round=k))

    async def _shared_host(self, node: Node[Any], batch: Batch, k: int) -> None:
        learner = node.learner
        await node.upload("server", EncryptedShare(value=await node.compute(learner.encrypt_share()), round=k))
        theirs = await node.recv("enc_share", round=k)
        masked = await node.compute(learner.product("scores", batch, theirs.value))
        await node.upload("server", MaskedScores(value=masked, round=k))
        products = await node.recv("masked_scores", round=k)
        (product,) = await node.compute(learner.decrypt(products.value))
        scores = await node.compute(learner.encrypt_score_share(batch, product))
        await node.upload("server", EncryptedScores(value=scores, round=k))
        residuals = await node.recv("enc_residuals", round=k)
        (error,) = await node.compute(learner.decrypt(residuals["mine"]))
        node.derive("shares", batch, [product, error], lambda: torch.cat([product.value, error.value], 1))
        own = await node.compute(learner.product("gradient", batch, residuals["theirs"]))
        await node.upload("server", MaskedGradient(value=own, round=k))
        gradients = await node.recv("masked_gradient", round=k)
        (gradient,) = await node.compute(learner.decrypt(gradients.value))
        await node.compute(learner.share_step(batch, gradient, error))

    async def evaluate(self, node: Node[Any], splits: Sequence[Split], number: int) -> Mapping[Split, Handle[Any]]:
        """Server: open the weights of shares, and add up the scores of all parties."""
        if self.form == "sshe":
            told = await node.recv("opened_share", round=number)
            share = await node.compute(node.learner.open(told["share"], told["steps"]))
            await node.send(told.sender, OpenedShare(tensors={"share": share}, round=number))
        return await super().evaluate(node, splits, number)

    async def answer_evaluation(self, node: Node[Any], splits: Sequence[Split], number: int) -> None:
        """Client: open the weights of shares, and score the rows."""
        if self.form == "sshe":
            share = await node.compute(node.learner.tell())
            await node.upload("server", OpenedShare(tensors=share, round=number))
            told = await node.recv("opened_share", round=number)
            await node.compute(node.learner.open(told["share"]))
        await super().answer_evaluation(node, splits, number)

    # --- facts ----------------------------------------------------------------------------------------------------

    def participants(self, clients: int, symbols: Mapping[str, float]) -> list[int]:
        """Return all clients, or the host of shares."""
        return [self.host or 1] if self.form == "sshe" else super().participants(clients, symbols)

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the parties."""
        kind = SharingParty if self.form == "sshe" else RegressionParty
        rule = StepRule(self.encryption, self.fraction_bits, self.learning_rate, self.ridge, seed)
        clients = ClientsMade(kind, setting.clients, partial(kind, rule, setting))
        return Learners(kind(rule, setting, SERVER), clients)

    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        """Return the sum of all parties' scores, of weights opened."""
        server: RegressionParty = learners.server

        def predict(scores: Sequence[Tensor]) -> Tensor:
            total = sum(scores[1:], start=scores[0])
            return (total if server.width else total + server.remembered("w")).to(server.dtype)

        return prediction_of(server, predict, server.scored if server.width else None)

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for another task or loss, a codec, a host that is not there, or lost work."""
        super().check(context)
        if not isinstance(context.loss, Auto | CrossEntropy | BinaryCrossEntropy | None):
            raise UnsuitableError("loss", f"{context.loss.kind} is not logistic; allowed: auto, or leave loss out")
        if not all(context.codec.towards(receiver).lossless for receiver in (SERVER, 1)):
            raise UnsuitableError(
                "codec",
                "parties of he_lr upload ciphertexts and send masked numbers, which no codec changes, and "
                f"{context.codec.kind} is for floating-point numbers; allowed: plain",
            )
        if self.host is not None and self.host > context.clients:
            raise ValueError(f"host: {self.host} of {context.clients} clients; allowed: 1 to {context.clients}")
        setting = context.setting
        if setting is None:
            return
        if setting.data.task.name == "regression":
            raise ValueError("he_lr separates classes, and the labels are numbers; allowed: data with classes")
        if setting.data.coded_shapes:
            raise ValueError(
                "he_lr multiplies features; allowed: data without categorical columns, or with encoding: one_hot"
            )
        if lost := setting.crashing:
            raise ValueError(
                f"{party_name(lost[0])} would lose its part of a round in a crash (interrupted: lost); allowed: "
                "interrupted: resumed"
            )

    def describe(self, setting: Setting) -> str:
        """Say what ciphertexts cost, and that nothing is encrypted."""
        outputs = setting.data.outputs
        against = f"{outputs} regressions, one class against the rest; " if outputs > 1 else ""
        return f"{against}{in_the_clear(self.encryption)}"
