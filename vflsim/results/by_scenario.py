"""What a scenario says of its runs before they are computed: the shapes of weights, and the bytes of messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import final

import numpy as np

from vflsim.codecs.frame import ONLY, Spec, frame_bytes
from vflsim.errors import VflsimError
from vflsim.results.frames import Frames, each
from vflsim.results.read import Results, StoredRun
from vflsim.results.write import SCENARIO
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.load import rooted_document_of, validate
from vflsim.scenario.models import Scenario
from vflsim.scenario.own_modules import code_of
from vflsim.scenario.resolve import setting
from vflsim.setting import Setting
from vflsim.streams import SERVER, party_name
from vflsim.world.messages import Answer, Embedding, FirstFill, Gradient, Query

_HEADER = frame_bytes(())
"""The bytes of a message without any content."""


@final
class ByScenario:
    """The scenario of results, for rules that need its models, data and codecs.

    ``unknown`` says why there is none: it names modules, which are not imported, or its data are not at hand.
    """

    def __init__(self, results: Results) -> None:
        self.unknown = ""
        self._scenario: Scenario | None = None
        self._settings: dict[str, Setting] = {}
        self._shapes: dict[str, Mapping[str, Spec]] = {}
        self._results = results

    def setting(self, name: str) -> Setting | None:
        """Resolve a protocol; None if the scenario, or its data, cannot be had."""
        if name not in self._settings and not self.unknown:
            try:
                scenario, data = self._loaded
                self._settings[name] = setting(scenario, name, data.of(scenario.training_of(name)))
            except (VflsimError, ValueError, LookupError) as error:
                self.unknown = str(error).splitlines()[0]
        return self._settings.get(name)

    def weights(self, name: str) -> Mapping[str, Spec] | None:
        """Return the shape and dtype of every weight that a run of a protocol leaves, by ``party.parameter``."""
        resolved = self.setting(name)
        if resolved is None:
            return None
        if name not in self._shapes:
            learners = self._loaded[0].protocols[name].protocol.learners(resolved, 0)
            self._shapes[name] = {
                f"{party_name(party)}.{key}": Spec(tuple(tensor.shape), tensor.dtype)
                for party, learner in ((SERVER, learners.server), *learners.clients.items())
                for key, tensor in learner.weights().items()
            }
        return self._shapes[name]

    def problems(self, run: StoredRun, frames: Frames) -> Iterator[str]:
        """Yield a sentence for every message of known shape that has other bytes than the codec gives it."""
        if frames.events is None:
            return
        transfers = frames.of("transfer.")
        whole = transfers[(transfers["outcome"] == "done").to_numpy()]
        yield from each(whole, whole["bytes"] < _HEADER, f"has fewer bytes than the header of a message, {_HEADER}")
        resolved = self.setting(run.info.protocol)
        if resolved is None:
            return
        for (kind, party, peer), own in whole.groupby(["kind", "party", "peer"], observed=True, sort=False):
            allowed = self._sizes(run, resolved, str(kind), str(party), str(peer))
            wrong = ~np.isin(own["bytes"].to_numpy(), sorted(allowed)) if allowed else np.zeros(len(own))
            sizes = ", ".join(map(str, sorted(allowed)))
            for value in own["bytes"][np.asarray(wrong, bool)].unique()[:1]:
                yield from each(own, wrong, f"has {value} bytes, and the codec writes {sizes}")

    def _sizes(self, run: StoredRun, resolved: Setting, kind: str, party: str, peer: str) -> set[int]:
        """Return the bytes that a message may have, from the shapes that it may have; empty if they are unknown."""
        scenario, name = self._loaded[0], run.info.protocol
        protocol = scenario.protocols[name].protocol
        up = peer == party_name(SERVER)
        client = next((m for m in resolved.clients if party_name(m) == (party if up else peer)), None)
        if client is None or SERVER not in (self._number(party), self._number(peer)):
            return set()
        codec = resolved.codec.towards(SERVER if up else client)
        batches = protocol.batches(resolved.data.rows, resolved.training, run.seed)
        lengths = {batches.size, batches.smallest}
        own = resolved.training.batches == "own"
        sizes = {codec.size(None, None, ids) for ids in ({0} | (lengths if own else set()))}
        word = kind.removeprefix("transfer.")
        if word == Query.kind and not up:
            return sizes
        if (word in (Embedding.kind, Answer.kind) and up) or (word == Gradient.kind and not up):
            dtype = resolved.uploaded if up else resolved.dtype
            found = set() if up else sizes
            for rows in lengths:
                exchange = protocol.exchange(resolved, client, rows)
                said = (exchange.up if up else exchange.down).get(ONLY)
                shapes = {(rows, resolved.models[client - 1].embedding), said}
                found |= {codec.size(shape, dtype, ids) for shape in shapes if shape for ids in (0, rows)[: 1 + own]}
            return found
        if word == FirstFill.kind and up:
            shape = resolved.data.rows, resolved.models[client - 1].embedding
            return {codec.size(shape, resolved.uploaded)}
        return set()

    def _number(self, party: str) -> int:
        return SERVER if party == party_name(SERVER) else -1

    @cached_property
    def _loaded(self) -> tuple[Scenario, ScenarioData]:
        document = rooted_document_of(self._results.folder / SCENARIO)
        if code_of(document.raw):
            raise ValueError("its scenario names modules, which verify does not import")
        scenario = validate(document)
        return scenario, ScenarioData(scenario)
