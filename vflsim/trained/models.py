"""The models that a run left behind, and what clients send by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from vflsim.codecs import Codec
from vflsim.errors import ResultsError
from vflsim.learning.batches import Split
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.execution.operations import Handle
from vflsim.learning.states import under
from vflsim.results.read import JoinedResults, Results, StoredRun
from vflsim.results.store.manifest import stored_scenario
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData, setting
from vflsim.setting import ServerPrediction
from vflsim.streams import SERVER, party_name, stream_key
from vflsim.vocabulary.on_demand import load


class ThroughCodec(torch.autograd.Function):
    """A tensor on its way through a codec; the gradient comes back as the codec says, by default straight through."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, codec: Codec) -> Tensor:
        """Return what arrives."""
        ctx.save_for_backward(h)
        ctx.codec = codec
        return codec.through(h)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        """Convert the gradient of what arrives to that of what was sent."""
        (h,) = ctx.saved_tensors
        return ctx.codec.backward(gradients[0], h), None


@dataclass(frozen=True, slots=True)
class Wiring:
    """The way of embeddings to the server: through a codec, or, without one, as they are.

    A codec's random numbers follow from (seed, client, place): messages at other places have others.
    """

    codec: Codec | None
    seed: int

    def arrive(self, client: int, h: Tensor, place: str = "") -> Tensor:
        """Return what arrives of one message, (rows, width); differentiable."""
        if self.codec is None:
            return h
        key = stream_key(self.seed, client, f"codec.attack/{place}") & 2**64 - 1
        arrived: Tensor = ThroughCodec.apply(h, self.codec.keyed(key))  # type: ignore[no-untyped-call]
        return arrived

    def arrive_many(self, client: int, h: Tensor, place: str) -> Tensor:
        """Return what arrives of several messages, (messages, rows, width), one after the other: (… · rows, width)."""
        if self.codec is None or self.codec.elementwise:
            return self.arrive(client, h.flatten(0, 1), place)
        return torch.cat([self.arrive(client, each, f"{place}/{number}") for number, each in enumerate(h)])


@dataclass(frozen=True)
class Uploads:
    """The uploads of some rows: by client what is ``sent``, (rows, width), and the labels of the rows.

    ``own`` is the server's own embedding of these rows, None if it holds no features.
    """

    sent: Mapping[int, Tensor]
    own: Tensor | None
    labels: Tensor
    wiring: Wiring
    prediction: ServerPrediction

    @cached_property
    def received(self) -> dict[int, Tensor]:
        """What arrives of ``sent``, by client."""
        return {client: self.wiring.arrive(client, h) for client, h in self.sent.items()}

    def predict(self, received: Mapping[int, Tensor]) -> Tensor:
        """Return the server's prediction for the embeddings of all clients, (k · rows, outputs), differentiably.

        The embeddings may be those of all rows k times in a row: (k · rows, width) each.
        """
        parts = [received[client] for client in self.sent]
        if self.own is not None:
            times = len(parts[0]) // len(self.own) if parts else 1
            parts.insert(0, self.own.repeat(times, 1))
        return self.prediction.predict(parts)


@dataclass(frozen=True, slots=True)
class SplitAnswer:
    """What a client sends for all rows of a split, read like a message."""

    sender: int
    value: Handle[Tensor]
    batch: None = None


class TrainedModels:
    """The models of a run with its final weights, on the CPU, and the data to apply them to.

    ``weights`` are those of every party. ``embeddings()`` returns what every client sends for the rows of a split,
    ``predict()`` what the server predicts from it, ``score()`` the loss and the metrics of that prediction, and
    ``uploads()`` the prediction as a differentiable function of what arrives. ``data`` has features and labels,
    ``learners`` the parties' modules: ``learners.clients[3].model`` is a ``torch.nn.Module``.

    Raises ``ResultsError`` if the run failed, diverged or trained nothing, or if its weights or rows are not those of
    the scenario.
    """

    def __init__(self, run: StoredRun, scenario: Scenario, data: LoadedData) -> None:
        _refuse_untrained(run)
        load()
        self.run, self.data = run, data
        name = run.info.protocol
        self.protocol = scenario.protocols[name].protocol
        self.setting = setting(scenario, name, data)
        rows = {split: len(labels) for split, labels in data.labels.items() if len(labels)}
        if rows != run.info.rows:
            what = f"the data have changed since the run: rows were {run.info.rows}, and are {rows}"
            raise ResultsError(what, str(run.folder), remedy="run the scenario again")
        self.learners = self.protocol.learners(self.setting, run.seed)
        weights = run.weights()
        try:
            for party, learner in ((SERVER, self.learners.server), *self.learners.clients.items()):
                learner.load_weights(under(party_name(party), weights))
        except RuntimeError as error:
            what = f"the weights are not those of the scenario's models ({str(error).splitlines()[-1].strip()})"
            raise ResultsError(what, str(run.folder), remedy="run the scenario again") from error
        self._sent: dict[Split, Mapping[int, Tensor]] = {}

    @property
    def weights(self) -> dict[str, dict[str, Tensor]]:
        """The weights of every party: ``weights["client-1"]["0.weight"]``; without weights a party has none."""
        learners = {SERVER: self.learners.server, **self.learners.clients}
        return {party_name(party): learner.weights() for party, learner in learners.items()}

    @cached_property
    def prediction(self) -> ServerPrediction:
        """The server's prediction as a function of embeddings, in evaluation mode.

        Raises ``ValueError`` if the protocol has none, or if parties lack rows.
        """
        if self.data.present is not None:
            raise ValueError("parties lack rows, whose embeddings do not count; allowed: data.align: inner or exact")
        prediction = self.protocol.prediction(self.learners)
        for module in prediction.modules:
            module.eval()
        return prediction

    @property
    def codec(self) -> Codec | None:
        """The codec that the embeddings of an evaluation go through; None if they go as they are."""
        free = self.protocol.traits.evaluates_uncompressed and not self.setting.evaluation_takes_time
        codec = self.setting.codec.towards(SERVER)
        return None if free or codec.lossless else codec

    def answers(self, split: Split = "test") -> dict[int, SplitAnswer]:
        """Compute what every participant sends for the rows of a split, before the codec."""
        answers = {}
        for client, learner in self.learners.clients.items():
            operation = learner.embed_split(split)
            operation.run()
            answers[client] = SplitAnswer(client, operation.result)
        return answers

    def score(self, answers: Mapping[int, SplitAnswer] | None = None, split: Split = "test") -> dict[str, float]:
        """Compute the loss and the metrics of a split from the participants' answers (default: their own)."""
        answers = self.answers(split) if answers is None else answers
        operation = self.learners.server.evaluate(split, list(answers.values()))
        operation.run()
        scores: dict[str, float] = operation.result.value
        return scores

    def embeddings(self, split: Split = "test") -> Mapping[int, Tensor]:
        """Return what every participant sends for all rows of a split, before the codec: (rows, width) by client."""
        if split not in self._sent:
            self._sent[split] = {client: answer.value.value for client, answer in self.answers(split).items()}
        return self._sent[split]

    def predict(self, split: Split = "test", rows: Sequence[int] | Tensor | None = None) -> Tensor:
        """Return the server's prediction for some rows of a split (default: all), as in an evaluation: (rows, outputs).

        Outputs are logits of classes, or values. Raises ``ValueError`` as ``prediction`` does, ``ResultsError`` for a
        row or a split that the run does not have.
        """
        count = self.run.info.rows.get(split, 0)
        chosen = torch.arange(count) if rows is None else torch.as_tensor(rows)
        if not count:
            what = f"there are no rows of the split {split!r}"
            raise ResultsError(what, str(self.run.folder), ", ".join(self.run.info.rows))
        if outside := [row for row in chosen.tolist() if not 0 <= row < count]:
            what = f"there is no row {outside[0]} of the split {split!r}"
            raise ResultsError(what, str(self.run.folder), f"0 to {count - 1}")
        with torch.no_grad():
            uploads = self._uploads(chosen, split)
            return uploads.predict(uploads.received)

    def uploads(self, rows: Tensor, split: Split = "test") -> Uploads:
        """Return what the server gets for some rows of a split.

        Raises ``ValueError`` as ``prediction`` does, and if the server gets nothing.
        """
        if self.protocol.traits.uploads_nothing:
            raise ValueError(self.protocol.traits.uploads_nothing)
        return self._uploads(rows, split)

    def _uploads(self, rows: Tensor, split: Split) -> Uploads:
        prediction, server_embedding = self.prediction, None
        if prediction.own is not None:
            with torch.no_grad():
                server_embedding = prediction.own(split)[rows]
        return Uploads(
            sent={client: h[rows] for client, h in self.embeddings(split).items()},
            own=server_embedding,
            labels=self.data.labels[split][rows],
            wiring=Wiring(self.codec, self.run.seed),
            prediction=prediction,
        )


def trained_models(results: Results, protocol: str, seed: int) -> TrainedModels:
    """Rebuild the models of a run. Raises ``ResultsError`` without such a run, and as ``TrainedModels`` does."""
    run = results.run(protocol, seed)
    _refuse_untrained(run)
    scenario = stored_scenario(run.folder.parents[1], [run])
    return TrainedModels(run, scenario, ScenarioData(scenario).of(scenario.training_of(run.info.protocol)))


def _refuse_untrained(run: StoredRun) -> None:
    allowed = "a finished run that trained models"
    if run.info.timing_only:
        what, remedy = "the run has no weights: it simulated the timing alone", "run it without --timing-only"
        raise ResultsError(what, str(run.folder), allowed, remedy)
    if run.failed:
        raise ResultsError(f"the run {run.info.status}: {run.info.error}", str(run.folder), allowed)


# --- results ----------------------------------------------------------------------------------------------------------


class StudyResults(Results):
    """All runs of one scenario, and the models that they left."""

    def model(self, protocol: str, seed: int = 0) -> TrainedModels:
        """Rebuild the models of a run, with its weights, on the CPU.

        Raises ``ResultsError`` without such a run, and if it failed, diverged, or kept no weights.
        """

        return trained_models(self, protocol, seed)


class ComparedResults(StudyResults, JoinedResults):
    """The runs of several studies, and the models that they left."""
