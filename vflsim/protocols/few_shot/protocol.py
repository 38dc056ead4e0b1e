"""One-shot and few-shot VFL (Sun et al. 2023): clients guess labels from one gradient, and train by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from vflsim.learning.batches import BatchSequence
from vflsim.learning.models.shapes import TableShape
from vflsim.learning.training import Training
from vflsim.protocols.base import ROUNDS, CheckContext, Protocol, Traits, replace
from vflsim.protocols.few_shot.client import FewShotClient, LocalTraining
from vflsim.protocols.few_shot.server import FewShotServer
from vflsim.setting import BatchPlan, Learners, Setting, client_parts, server_parts
from vflsim.streams import SHARED, generator, party_name
from vflsim.vocabulary.quantities import Count
from vflsim.world.messages import Embedding, Gradient, Message
from vflsim.world.node import Node


@dataclass(slots=True, eq=False)
class OtherEmbeddings(Message):
    """A client's embeddings of its training rows that are not aligned, (rows, embedding)."""

    kind: ClassVar[str] = "other_embeddings"
    rowless: ClassVar[frozenset[str]] = frozenset({""})


@dataclass(slots=True, eq=False)
class PseudoLabels(Message):
    """The server's guesses of the classes of these rows, (rows,) of int16; −1: it is not sure."""

    kind: ClassVar[str] = "pseudo_labels"
    ordered: ClassVar[bool] = True
    rowless: ClassVar[frozenset[str]] = frozenset({""})


class AlignedRows(BatchSequence):
    """The same rows again and again: a sample of the training rows, which all parties know to be theirs."""

    def __init__(self, rows: int, aligned: int, training: Training, seed: int) -> None:
        super().__init__(rows, training.model_copy(update={"batch": aligned, "batches": "shared"}), seed, SHARED)
        self.per_epoch, self._last = 1, self.size

    def _drawn(self, epoch: int) -> Any:
        return generator(self.seed, SHARED, "few_shot/aligned").permutation(self.rows)


class FewShot(Protocol):
    """One-shot and few-shot VFL (Sun et al., ICCV 2023, arXiv 2303.16270): clients upload two or three times in all.

    1. Clients upload embeddings H_m of the ``aligned`` rows. The server returns ∂ℓ/∂H_m, taken at its first weights.
    2. Client m groups the rows of ∂ℓ/∂H_m by k-means into as many clusters as there are classes. It trains by
       FixMatch on aligned rows with clusters for labels, and on its other rows without: ℓ_s + λ_u ℓ_u.
    3. Clients upload H_m again; the server trains its model on them. With two ``exchanges`` this is the end.
    4. Few-shot has three ``exchanges``: in 3, clients upload embeddings H_u of their other rows, too. The server
       estimates what party j would have of them, softmax(H_u H_mᵀ / √d) H_j. Where the model and a classifier of H_u
       alone agree, both with at least ``threshold``, it returns the class. Clients train again, and 3 follows.

    FixMatch on tables: α(x) replaces a share ``masked`` of a row's features by their means, A(x) = α(x) + ``noise`` ·
    deviation · N(0, I). ℓ_u is the cross entropy of A(x) with the class of α(x), where that has ``threshold``.

    Not in what we have read of the paper: the shares above, and the optimisers, which are the scenario's. Clusters have
    no names, so in later trainings an aligned row has the class that most labelled rows of its cluster have. All rows
    are at all parties here; what is not ``aligned`` counts as known to one party alone.

    Examples: ``{kind: few_shot, aligned: 256}``, ``{kind: few_shot, aligned: 64, exchanges: 3, epochs: 20,
    server_epochs: 50, unlabelled: 7, weight: 1, threshold: 0.95, masked: 0.2, noise: 0.1}``
    """

    kind: Literal["few_shot"] = "few_shot"
    aligned: Count = 256
    """The rows that parties share. No other row ever meets another party's."""
    exchanges: Annotated[int, Field(ge=2)] = 2
    """How often clients upload: 2 is one-shot, 3 few-shot."""
    epochs: Count = 10
    """A client's passes over the aligned rows in each training."""
    server_epochs: Count = 20
    """The server's passes over the aligned rows after each upload but the first."""
    unlabelled: Annotated[int, Field(ge=0)] = 7
    """Rows without a label for each labelled row of a step (FixMatch's μ)."""
    weight: Annotated[float, Field(ge=0)] = 1.0
    """λ_u, the weight of rows without a label."""
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.95
    """The least probability of a guess that counts."""
    masked: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """The share of a row's features that are replaced by their means."""
    noise: Annotated[float, Field(ge=0)] = 0.1
    """The noise on the other view of a row, in standard deviations of the feature."""
    traits: ClassVar[Traits] = replace(
        ROUNDS, mechanism=False, only_embeddings_up=False,
        refuses_absent_rows="its clients train on all their rows, and know which are aligned",
    )  # fmt: skip

    async def server(self, node: Node[FewShotServer]) -> None:
        """Answer the first embeddings by gradients; then train on those that come, and guess labels in between."""
        for k in node.rounds():
            embeddings = await node.gather("embedding", senders=node.clients, round=k)
            if k and k + 1 < self.exchanges:
                others = await node.gather("other_embeddings", senders=node.clients, round=k)
                labels = await node.compute(node.learner.guess(embeddings, others))
                for client in node.clients:
                    await node.send(client, PseudoLabels(value=labels[client], round=k))
                continue
            step = await node.compute(node.learner.server_step(embeddings))
            if k:
                node.finish("all exchanges are done")
                return
            for embedding in embeddings:
                await node.send(embedding.sender, Gradient(value=step.gradient_for(embedding), round=k))

    async def client(self, node: Node[FewShotClient]) -> None:
        """Upload the aligned rows; train on what comes back."""
        for k in node.rounds():
            await node.activated()
            batch = node.batch(k)
            h = await node.compute(node.learner.answer(batch, "embed"))
            await node.upload("server", Embedding(batch, h, round=k))
            if k and k + 1 < self.exchanges:
                others = await node.compute(node.learner.embed_others(batch))
                await node.upload("server", OtherEmbeddings(value=others, round=k))
                labels = await node.recv("pseudo_labels", round=k)
                await node.compute(node.learner.train_again(batch, labels))
            else:
                gradient = await node.recv("gradient", round=k)
                await node.compute(node.learner.client_step(batch, gradient))

    # --- facts ----------------------------------------------------------------------------------------------------

    @property
    def most_rounds(self) -> int:
        """The uploads of a client. A trace ends before them: it sees rounds that repeat."""
        return self.exchanges

    def batch_plan(self) -> BatchPlan:
        """Return rounds about the aligned rows."""
        return BatchPlan(make=lambda rows, *of: AlignedRows(rows, min(self.aligned, rows), *of))

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make clients with a classifier of their own, and a server that trains in one go."""
        classes = max(2, setting.data.outputs)
        local = LocalTraining(**{key: getattr(self, key) for key in LocalTraining._fields})
        clients = {m: FewShotClient(client_parts(setting, m, seed), local, classes) for m in setting.clients}
        server = FewShotServer(server_parts(setting, seed), self.server_epochs, self.threshold, seed)
        return Learners(server, clients)

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for a task without classes, for categories' codes, and for too few aligned rows."""
        super().check(context)
        setting = context.setting
        if setting is None:
            return
        task, classes = setting.data.task.name, max(2, setting.data.outputs)
        if task not in ("multiclass", "binary"):
            raise ValueError(f"clients guess classes, and the task is {task}; allowed: classes as labels")
        if not classes <= self.aligned <= setting.data.rows:
            raise ValueError(
                f"aligned: {self.aligned} rows, of {setting.data.rows} training rows with {classes} classes; "
                f"allowed: {classes} to {setting.data.rows}"
            )
        coded = [m for m in setting.clients if isinstance(setting.data.shapes[m - 1], TableShape)]
        if coded:
            raise ValueError(
                f"{party_name(coded[0])} has categories, whose codes have no mean; allowed: data.encoding: one_hot"
            )

    def describe(self, setting: Setting) -> str:
        """Say how many rows are aligned, how often clients upload, and what they learn."""
        share = self.aligned / setting.data.rows
        uploads = f"{self.aligned:,} aligned rows ({share:.0%}); {self.exchanges} uploads a client in all"
        return f"{uploads}; clusters of the gradient can show a client the classes of aligned rows"
