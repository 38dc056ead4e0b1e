"""What a scenario says of its runs before they are computed: the shapes of weights, and the bytes of messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import final

import numpy as np
import torch

from vflsim.codecs.frame import Spec, frame_bytes
from vflsim.errors import VflsimError
from vflsim.protocols.base import Protocol
from vflsim.protocols.defaults import exchanges_of
from vflsim.results.read import Results, StoredRun
from vflsim.results.store.write import SCENARIO, SEED, WEIGHTS
from vflsim.results.verify.frames import SHOWN, Frames, Rows, each
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.load import rooted_document_of, validate
from vflsim.scenario.models import Scenario
from vflsim.scenario.own_modules import code_of
from vflsim.scenario.resolve import setting
from vflsim.setting import Setting
from vflsim.streams import SERVER, party_name
from vflsim.tracing.exchanges import Exchanges

_HEADER = frame_bytes(())
"""The bytes of a message without any content."""
_LISTED = 6
"""Different sizes of a message that a sentence lists."""


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
        self._exchanges: dict[str, Exchanges] = {}
        self._bytes: dict[tuple[str, int, int], Mapping[str, frozenset[int]]] = {}
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

    def protocol(self, name: str) -> Protocol:
        """Return a protocol of the scenario, which must be at hand."""
        return self._loaded[0].protocols[name].protocol

    def weights(self, name: str) -> Mapping[str, Spec] | None:
        """Return the shape and dtype of every weight that a run of a protocol leaves, by ``party.parameter``."""
        resolved = self.setting(name)
        if resolved is None:
            return None
        if name not in self._shapes:
            learners = self.protocol(name).learners(resolved, 0)
            self._shapes[name] = {
                f"{party_name(party)}.{key}": Spec(tuple(tensor.shape), tensor.dtype)
                for party, learner in ((SERVER, learners.server), *learners.clients.items())
                for key, tensor in learner.outlines().items()
            }
        return self._shapes[name]

    def problems(self, run: StoredRun, frames: Frames) -> Iterator[str]:
        """Yield a sentence for every message of known content that has other bytes than the codec gives it."""
        if frames.events is None:
            return
        transfers = frames.of("transfer.")
        short = transfers.names("outcome").are("done") & (transfers["bytes"] < _HEADER)
        yield from each(transfers, short, f"has fewer bytes than the header of a message, {_HEADER}")
        resolved = self.setting(run.info.protocol)
        if resolved is None:
            return
        parties = {party_name(party): party for party in (SERVER, *resolved.clients)}
        for (kind, party, peer), own in transfers.groups("kind", "party", "peer"):
            if party not in parties or peer not in parties:
                continue
            sizes = self._sizes(run.info.protocol, resolved, parties[party], parties[peer])
            if written := sizes.get(kind.removeprefix("transfer.")):
                yield from _of_other_sizes(transfers.where(own), written)

    def _sizes(self, name: str, resolved: Setting, sender: int, receiver: int) -> Mapping[str, frozenset[int]]:
        """Return the bytes that each kind of message between two parties may have, as far as its content is known."""
        if (name, sender, receiver) not in self._bytes:
            protocol, sizes = self.protocol(name), defaultdict[str, set[int]](set)
            if name not in self._exchanges:
                self._exchanges[name] = exchanges_of(protocol, resolved)
            batches = protocol.batch_plan().batches(resolved.data.rows, resolved.training, 0)
            for rows in {batches.length(0), batches.length(-1)}:
                for kind, contents in self._exchanges[name].contents(sender, receiver, rows).items():
                    sizes[kind] |= {content.nbytes(resolved.codec, receiver) for content in contents}
            self._bytes[name, sender, receiver] = {kind: frozenset(each) for kind, each in sizes.items()}
        return self._bytes[name, sender, receiver]

    @cached_property
    def _loaded(self) -> tuple[Scenario, ScenarioData]:
        document = rooted_document_of(self._results.folder / SCENARIO)
        if code_of(document.raw):
            raise ValueError("its scenario names modules, which verify does not import")
        scenario = validate(document)
        return scenario, ScenarioData(scenario)


def _of_other_sizes(transfers: Rows, written: frozenset[int]) -> Iterator[str]:
    """Yield a sentence for the messages of one kind whose bytes are none of those ``written``, or more if cut short."""
    sizes, done = transfers["bytes"], transfers.names("outcome").are("done")
    wrong = np.where(done, ~np.isin(sizes, [*written]), sizes > max(written))
    if not wrong.any():
        return
    said = ", ".join(map(str, sorted(written))) if len(written) <= _LISTED else f"{min(written)} to {max(written)}"
    for value in np.unique(sizes[wrong])[:SHOWN]:
        yield from each(transfers, wrong & (sizes == value), f"has {value} bytes, and the codec writes {said}")


def weight_problems(run: StoredRun, expected: Mapping[str, Spec] | None) -> Iterator[str]:
    """Yield a sentence for every weight that the run cannot have left; ``expected`` are the scenario's, if known.

    Raises ResultsError if the file is damaged.
    """
    weights, seed = run.weights(), run.weights_seed()
    if seed != str(run.seed):
        yield f"{WEIGHTS}: {SEED} is {seed or 'absent'}, and the run's is {run.seed}"
    if run.info.timing_only:
        if weights:
            yield f"{WEIGHTS}: has {next(iter(weights))}, and timing alone leaves no weights"
        return
    yield from islice(_strange(run, weights, expected), SHOWN)


def _strange(run: StoredRun, weights: Mapping[str, torch.Tensor], expected: Mapping[str, Spec] | None) -> Iterator[str]:
    parties = {party_name(party) for party in (SERVER, *run.info.participants)}
    for name, tensor in weights.items():
        if name.partition(".")[0] not in parties:
            yield f"{WEIGHTS}: {name} is of no party of the run"
        if not run.failed and tensor.is_floating_point() and not (finite := tensor.isfinite()).all():
            value = tensor[~finite].flatten()[0].item()
            yield f"{WEIGHTS}: {name} has the value {value}, and must be finite: the run {run.info.status}"
        if expected is not None and name in expected and expected[name] != (tuple(tensor.shape), tensor.dtype):
            wanted = _described(*expected[name])
            yield f"{WEIGHTS}: {name} is {_described(tuple(tensor.shape), tensor.dtype)}, the scenario's is {wanted}"
    if expected is not None:
        for name in () if run.failed else expected.keys() - weights.keys():
            yield f"{WEIGHTS}: {name} is missing, which the scenario's models have"
        for name in weights.keys() - expected.keys():
            yield f"{WEIGHTS}: {name} is none of the weights of the scenario's models"


def _described(shape: tuple[int, ...], dtype: torch.dtype) -> str:
    return f"{str(dtype).removeprefix('torch.')} of shape {shape}"
