"""Laws of the stages of a coded round, by the rules of ``docs/timing.md``."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vflsim.analysis.stages import Stages, Turn, Unanalysable, law_of
from vflsim.coding.lagrange import LagrangeCode
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle
from vflsim.protocols.fedvs.keys import coding_plan
from vflsim.protocols.fedvs.plan import flops
from vflsim.setting import Learners, Setting
from vflsim.streams import SERVER, SHARED, party_name
from vflsim.timing.compute import ComputeModel, Flops, OperationCost
from vflsim.timing.delays import Constant
from vflsim.timing.delays.sums import total
from vflsim.timing.floats import Floats
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import maximum
from vflsim.vocabulary.on_demand import torch
from vflsim.world.messages import Gradient

if TYPE_CHECKING:
    from vflsim.protocols.fedvs.keys import CodedKeys


class CodedStages(Stages):
    """Lower and (``slow``) upper bounds of every stage of a coded round.

    The bounds are equal if no message waits for a link and shares arrive at once. Slow stages start when the last
    client has sent its shares: by then the links hold no message of the previous round.
    """

    def __init__(self, protocol: CodedKeys, setting: Setting) -> None:
        super().__init__(protocol, setting)
        self.protocol = protocol
        if self.protocol.sharers is not None:
            raise Unanalysable("the sum of a round goes over those who share first: uploads depend on shares")
        self.plan = coding_plan(protocol, setting, seed=0)
        self._leftovers: dict[Turn, float] = {}
        self._passing: dict[tuple[int, Turn], Law] = {}

    def coded(self, segments: int, masks: int) -> CodedStages:
        """Return a copy with another code. Raises ValueError if batches cannot be cut into ``segments``."""
        if self._by_flops:
            _ = self._learners  # the same for every code
        stages = copy(self)
        stages._leftovers, stages._passing = {}, {}
        stages.__dict__.pop("turns", None)
        stages.protocol = stages._algorithm = self.protocol.model_copy(update={"K": segments, "T": masks})
        code = LagrangeCode(self.plan.quantiser.field, segments, masks, len(self.clients))
        stages.plan = replace(self.plan, code=code)
        _ = stages.turns
        return stages

    # --- stages, in their order -----------------------------------------------------------------------------------

    def sharing(self, client: int, turn: Turn, slow: bool = False) -> Law:
        """Return the law from the end of a server step until this client sends its shares.

        It adds latency and transfer of the gradient, client step, activation, making the shares, sharing delay.
        """
        timing, rows = self._timings[client], self.rows(turn.before)[slow]
        factor = self.protocol.sharing_factor(self.plan)
        return total([
            *self._latency(SERVER, client),
            Point(self.return_seconds(client, turn, slow)),
            self._compute(client, "client_step", rows),
            self._activation(client),
            self._operation(client, "share_model", self.plan.model_sharing_products(client)),
            law_of(timing.upload_delay, f"the upload delay of {party_name(client)}", factor),
        ])  # fmt: skip

    def passing(self, client: int, turn: Turn) -> Law:
        """Return the law of the longest way of this client's shares to its peers, as an upper bound."""
        if (client, turn) not in self._passing:
            moving, traffic = self._shares_moving(self._crowd)[self.plan.places[client]], 0.0
            if self._network.queued:
                moving, traffic = np.zeros_like(moving), self._traffic(turn)
            ways = [
                total([*self._latency(client, peer), Point(float(seconds))])
                for peer, seconds in zip(self.clients, moving, strict=True)
                if peer != client
            ]
            self._passing[client, turn] = total([maximum(ways), Point(traffic)])
        return self._passing[client, turn]

    def answering(self, client: int, turn: Turn, slow: bool = False) -> Law:
        """Return the law from the arrival of all shares to that of this client's coded embedding.

        It adds coded embedding, upload delay, latency and transfer.
        """
        timing, products = self._timings[client], self.plan.coded_embedding_products
        return total([
            self._operation(client, "coded_embed", products(turn.now), products(self.plan.batch_places)),
            law_of(timing.upload_delay, f"the upload delay of {party_name(client)}"),
            *self._latency(client, SERVER),
            Point(self.upload_seconds(client, turn, slow)),
        ])  # fmt: skip

    def stepping(self, turn: Turn, slow: bool = False) -> Law:
        """Return the law of decoding and server step. A sampled time covers both."""
        products = self.plan.decoding_products(turn.now)
        return total([
            self._compute(SERVER, "decode", 0, units=0.0, flops=flops(products)),
            self._compute(SERVER, "server_step", self.rows(turn.now)[slow]),
        ])  # fmt: skip

    def data_sharing(self, client: int) -> Law:
        """Return the law of making the shares of this client's data."""
        return self._operation(client, "share_data", self.plan.data_sharing_products(client))

    def data_passing(self) -> float:
        """Bound the seconds from the sending of the last client's data shares until all clients have all data shares.

        Infinite if latencies are unbounded.
        """
        rows = self.plan.segment_rows
        latency = max(
            maximum([total(self._latency(client, peer)) for peer in self.clients if peer != client]).support[1]
            for client in self.clients
        )
        moving = self._shares_moving(self._crowd, rows)
        if self._network.queued:
            return latency + self._queued(moving)
        return latency + float(moving.max())

    # --- messages -------------------------------------------------------------------------------------------------

    def rows(self, places: int) -> tuple[int, int]:
        """Return the fewest and most training rows of a batch of ``places`` per segment: some rows may be padding."""
        whole, padded = self.plan.segments * self.plan.segment_rows, np.zeros(self.plan.segment_rows, np.int64)
        np.add.at(padded, np.arange(self.plan.rows, whole) % self.plan.segment_rows, 1)
        padded.sort()
        every = self.plan.segments * places
        return every - int(padded[-places:].sum()), every - int(padded[:places].sum())

    def return_seconds(self, client: int, turn: Turn, slow: bool) -> float:
        """Bound the transfer of a gradient to a client from below or (``slow``) above, with waits for links."""
        shape, dtype = (self.rows(turn.before)[slow], self.plan.embedding), self._training.torch_dtype
        size = self._codec.towards(client).size(shape, dtype)
        if not self._network.queued:
            return self._seconds(size, SERVER, client, self._crowd if slow else 1)
        alone = {each: self._seconds(size, SERVER, each) for each in self.clients}
        late = self._left_over(turn)
        if self._orderly and not late:  # gradients move in client order
            return math.fsum(seconds for each, seconds in alone.items() if each <= client)
        return math.fsum(alone.values()) + late if slow else alone[client]

    def upload_seconds(self, client: int, turn: Turn, slow: bool) -> float:
        """Return the transfer time of a coded embedding, with (``slow``) the longest waits for links."""
        if not slow or not self._network.queued:
            return self._uploading(client, turn.now, self._crowd if slow else 1)
        return self._all_uploads(turn.now)

    def _uploading(self, client: int, places: int, crowd: int = 1) -> float:
        size = self._codec.size((places, self.plan.embedding), self._element)
        return self._seconds(size, client, SERVER, crowd)

    def _all_uploads(self, places: int) -> float:
        return math.fsum(self._uploading(client, places) for client in self.clients)

    def _seconds(self, size: int, sender: int, receiver: int, crowd: int = 1) -> float:
        return 8 * size * crowd / min(self._rate(sender, "up"), self._rate(receiver, "down"))

    @property
    def _element(self) -> torch.dtype:
        return self.plan.quantiser.field.wire_dtype

    @property
    def _crowd(self) -> int:
        """The most messages that share a link: shares, and a gradient or uploads."""
        return self._network.crowd(len(self.clients))

    def _shares_moving(self, crowd: int = 1, rows: int = 0) -> Floats:
        """Return the seconds to transfer a share from each client to each other: of models, or of ``rows`` of data."""
        up = np.array([self._rate(client, "up") for client in self.clients])
        down = np.array([self._rate(client, "down") for client in self.clients])
        sizes = [
            self._codec.size((self.plan.columns[client], self.plan.embedding), self._element)
            if not rows
            else self._codec.size((rows, self.plan.columns[client]), self._element)
            for client in self.clients
        ]
        seconds: Floats = 8.0 * crowd * np.array(sizes)[:, None] / np.minimum(up[:, None], down[None, :])
        np.fill_diagonal(seconds, 0.0)
        return seconds

    def _traffic(self, turn: Turn) -> float:
        """Bound the seconds that all shares of a round need on ``fifo`` links after their latency."""
        waits = self._queued(self._shares_moving())
        return waits + (0.0 if self._orderly else self._all_uploads(max(turn.before, turn.now)))

    def _queued(self, moving: Floats) -> float:
        """Bound the duration of queues of such transfers (M, M), by sender and receiver.

        While a share waits, its sender sends another, or its receiver receives another: a share is through when all of
        its row and of its column are, at the latest.
        """
        return float((moving.sum(axis=1)[:, None] + moving.sum(axis=0) - moving).max())

    @cached_property
    def _orderly(self) -> bool:
        """Whether messages sent at one instant enter the lines at one instant, in the same order."""
        laws = {self._timings[client].link.latency for client in self.clients}
        return len(laws) == 1 and isinstance(laws.pop(), Constant) and self._network.latency is None

    def _left_over(self, turn: Turn) -> float:
        """Bound a gradient's wait for shares of the previous round: zero if all arrive before any upload can."""
        if turn not in self._leftovers:
            soonest = sorted(self.answering(client, turn).support[0] for client in self.clients)
            under_way = max(self.passing(client, turn).support[1] for client in self.clients)
            in_time = soonest[self.plan.threshold - 1] >= under_way
            self._leftovers[turn] = 0.0 if in_time else self._traffic(turn)
        return self._leftovers[turn]

    # --- computation ----------------------------------------------------------------------------------------------

    def _operation(self, client: int, kind: str, products: float, full: float | None = None) -> Law:
        """Return the law of an operation of ``products`` multiplications; ``full`` (of a full batch) scales samples."""
        units = self.plan.units(client, products if full is None else full)
        return self._compute(client, kind, 0, units=units, flops=flops(products))

    @cached_property
    def _by_flops(self) -> bool:
        return any(isinstance(timing.compute, ComputeModel) for timing in self._timings)

    @cached_property
    def _learners(self) -> Learners[Any, Any]:
        return self._algorithm.learners(self.setting, 0)

    def _compute(
        self, party: int, kind: str, rows: int, units: float = 1.0, flops: float | None = None
    ) -> Law:  # fmt: skip
        count = partial(self._flops, party, kind, rows)
        if flops is not None:
            model = self._model(party, kind)
            if isinstance(model, ComputeModel) and not isinstance(model, Flops):
                what = f"the compute model of {party_name(party)} ({model.kind}) may look at more than FLOPs"
                raise Unanalysable(what)
            count = partial(float, flops)
        return self._lasting(party, OperationCost(kind, rows, units, count))

    def _flops(self, party: int, kind: str, rows: int) -> float:
        batch = Batch(0, np.arange(rows) % self._data.rows, SHARED)
        decoded: Handle[Any] = Handle((rows, self.plan.embedding), self._training.torch_dtype)
        if party == SERVER:
            server: Any = self._learners.server
            return float(server.coded_step(batch, decoded, self.clients, self.clients).flops())
        step = self._learners.clients[party].client_step(batch, Gradient(batch, decoded))
        return float(step.flops())
