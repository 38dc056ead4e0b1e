"""The inputs of a run's times: draws, sizes and rates of every party.

Sizes and FLOPs come from the learners' real operations and from the codec.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from vflsim.learning.batches import Batch
from vflsim.recurrences.acts import Acts, MakeActs, no_acts, split_acts
from vflsim.recurrences.pauses import Pauses
from vflsim.recurrences.probes import Probe
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timed import Timed
from vflsim.recurrences.timetable import Timetable
from vflsim.setting import Algorithm, Setting
from vflsim.streams import SERVER
from vflsim.timing.arrivals import ActivationProcess
from vflsim.timing.base import Floats
from vflsim.world.messages import Gradient
from vflsim.world.wire import specs_of


class TimedWorld:
    """All parties of one run. ``clients`` are the participants; ``empty`` is the size of a message without tensors.

    ``before`` and ``round`` are what all parties do before the first round, and in each round. ``server`` is the
    server's learner, ``pauses`` are the clients' outages.

    Example::

        world = TimedWorld(Synchronous(), setting, seed=0)
        world.clients.tolist(), world.length(0)  # ([1, 2, 3, 4], 20)
    """

    def __init__(
        self,
        protocol: Algorithm,
        setting: Setting,
        seed: int,
        acts: MakeActs = split_acts,
        before: MakeActs = no_acts,
    ) -> None:
        learners = protocol.learners(setting, seed)
        self.server = learners.server
        clients = list(learners.clients)
        self.setting, self.seed = setting, seed
        self.clients = np.array(clients, np.int32)
        self.sequence = protocol.batch_plan().batches(setting.data.rows, setting.training, seed)
        self._batches = self.sequence.sizes()
        first: dict[Any, int] = {}  # of clients with the same model and shape of features, which have the same costs
        alike = [first.setdefault(setting.alike(client), place) for place, client in enumerate(clients)]

        batches = list(self._batches)
        if setting.training.batches == "own":  # messages name the rows of a batch that only one party knows
            batches = [replace(batch, origin=1) for batch in batches]

        def made(make: MakeActs, batch: Batch) -> dict[int, Acts]:
            firsts = [(place, client) for place, client in enumerate(clients) if alike[place] == place] or [(0, SERVER)]
            return {place: make(learners.server, learners.clients, client, batch) for place, client in firsts}

        table = Timetable(setting, seed, clients)
        self.before: Timed = table.timed([Probe(made(before, batch), alike, setting.codec) for batch in batches])
        self.round: Timed = table.timed([Probe(made(acts, batch), alike, setting.codec) for batch in batches])
        self.pauses = Pauses(setting, seed, clients)
        self.empty = setting.codec.size_of(specs_of(Gradient(round=0)))

    @cached_property
    def metered(self) -> bool:
        """Whether a party says what it draws, so that spans are needed."""
        timings = self.setting.timings
        return any(timings[party].power is not None for party in (SERVER, *self.clients.tolist()))

    def kind_of(self, rounds: Ints) -> Ints:
        """Return the kind of each round's batch, by its size: mostly 0 for a full one, 1 for the last of an epoch."""
        return self.sequence.sizes_of(rounds)

    def length(self, number: int) -> int:
        """Return the rows of the batch of round ``number``."""
        return self.sequence.length(number)

    def lengths(self, kinds: Ints) -> Ints:
        """Return the rows of batches of these kinds."""
        lengths: Ints = np.array([len(batch) for batch in self._batches])[kinds]
        return lengths

    def activations(self) -> list[ActivationProcess | None]:
        """Return a new activation process of every client, None where it begins at once."""
        timings = self.setting.timings
        return [timings[client].activation.process(self.seed, client) for client in self.clients.tolist()]


def running(start: float, seconds: Floats) -> Floats:
    """Return the running sums of ``start`` and ``seconds`` (n,), added one by one from the left."""
    sums: Floats = np.add.accumulate(np.concatenate([[start], seconds]))
    return sums[1:]
