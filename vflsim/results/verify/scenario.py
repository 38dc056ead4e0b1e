"""What a scenario says of its runs before they are computed, and rules about ``run.json`` that follow from it."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any, final

import numpy as np
import pandas as pd
import torch

from vflsim.books import BYTES
from vflsim.codecs.frame import Spec, frame_bytes
from vflsim.errors import VflsimError
from vflsim.learning.privacy.accounting import Released
from vflsim.protocols.base import Protocol
from vflsim.protocols.blinded import MISSING_MASKS
from vflsim.protocols.capabilities import exchanges_of, local_steps_of
from vflsim.results.facts import BlindingFacts, NetworkFacts
from vflsim.results.read import Results, StoredRun
from vflsim.results.store.folder import SCENARIO, SEED, WEIGHTS
from vflsim.results.store.pages import RunInfo
from vflsim.results.store.run import SHOWN
from vflsim.results.store.schema import read_table
from vflsim.results.verify.frames import ROUNDING, Frames, are, each
from vflsim.scenario.load import rooted_document_of, validate
from vflsim.scenario.models import Scenario
from vflsim.scenario.own_modules import code_of
from vflsim.scenario.resolve import ScenarioData, setting
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
        transfers = frames.of("transfer.")
        short = are(transfers, "outcome", "done") & (transfers["bytes"] < _HEADER)
        yield from each(transfers, short, f"has fewer bytes than the header of a message, {_HEADER}")
        resolved = self.setting(run.info.protocol)
        if resolved is None:
            return
        parties = {party_name(party): party for party in (SERVER, *resolved.clients)}
        for names, some in transfers.groupby(["kind", "party", "peer"], observed=True, sort=False):
            kind, party, peer = map(str, names)
            if party not in parties or peer not in parties:
                continue
            sizes = self._sizes(run.info.protocol, resolved, parties[party], parties[peer])
            if written := sizes.get(kind.removeprefix("transfer.")):
                yield from _of_other_sizes(some, written)

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


def _of_other_sizes(transfers: pd.DataFrame, written: frozenset[int]) -> Iterator[str]:
    """Yield a sentence for the messages of one kind whose bytes are none of those ``written``, or more if cut short."""
    sizes, done = transfers["bytes"].to_numpy(), are(transfers, "outcome", "done")
    wrong = np.where(done, ~np.isin(sizes, [*written]), sizes > max(written))
    if not wrong.any():
        return
    expected = ", ".join(map(str, sorted(written))) if len(written) <= _LISTED else f"{min(written)} to {max(written)}"
    for value in np.unique(sizes[wrong])[:SHOWN]:
        yield from each(transfers, wrong & (sizes == value), f"has {value} bytes, and the codec writes {expected}")


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


_NOISE = ("sensitivity", "sigma", "delta")
_BITS_A_BYTE = 8


def page_problems(run: StoredRun, frames: Frames, scenario: ByScenario) -> Iterator[str]:
    """Yield a sentence for each number of a run's page that its tables, or its scenario, contradict."""
    info, resolved = run.info, scenario.setting(run.info.protocol)
    pairs = [*_of_tables(run, resolved)]
    if resolved is not None:
        pairs += _of_scenario(info, resolved, scenario.protocol(info.protocol))
    for what, stored, expected in pairs:
        if stored is not None and not _equal(stored, expected):
            yield f"run.json: {what} is {stored}, and must be {expected}"
    for what, value, least, most in _bounds(info, frames):
        if not least <= value <= most:
            yield f"run.json: {what} is {value:g}, and must be from {least:g} to {most:g}"
    strangers = {
        "crashing": info.crashing,
        "stalled": tuple(each.client for each in info.stalled),
        "heavy_tail.clients": () if info.heavy_tail is None else info.heavy_tail.clients,
    }
    for what, clients in strangers.items():
        if other := sorted({*clients} - {*info.participants}):
            yield f"run.json: {what} has clients {other}, which do not take part in the run"


def _of_tables(run: StoredRun, resolved: Setting | None) -> Iterator[tuple[str, Any, Any]]:
    """Yield what a number belongs to, the number, and what it follows to be."""
    info = run.info
    if info.codec is not None:
        yield "codec.saturated", info.codec.saturated, sum(info.codec.parties.values())
    if info.blinding is not None:
        rows = _missing_masks(run)
        yield "blinding.rounds_missing", info.blinding.rounds_missing, len(rows)
        lacked = Counter(client for row in rows for client in row["clients"])
        yield "blinding.lacked", info.blinding.lacked, dict(sorted(lacked.items()))
        if resolved is not None and resolved.blinded_sum is not None:
            again = BlindingFacts.of(resolved.blinded_sum, rows)
            for name in ("bits", "fraction", "largest"):
                yield f"blinding.{name}", getattr(info.blinding, name), getattr(again, name)


def _of_scenario(info: RunInfo, resolved: Setting, protocol: Protocol) -> Iterator[tuple[str, Any, Any]]:
    yield "participants", info.participants, tuple(resolved.clients)
    links = [timing.link for timing in resolved.timings]
    yield "network", info.network, NetworkFacts.of(resolved.network, links, resolved.transport)
    if not info.timing_only:
        labels = resolved.data.labels.items()
        yield "rows", info.rows, {split: len(values) for split, values in labels if len(values)}
        yield from _of_noise(info, resolved)
    if info.conditions is not None:
        yield "conditions.features_in_data", info.conditions.features_in_data, resolved.data.joint["train"].shape[1]
        yield "conditions.local_steps", info.conditions.local_steps, local_steps_of(protocol, resolved)


def _of_noise(info: RunInfo, resolved: Setting) -> Iterator[tuple[str, Any, Any]]:
    facts, mechanism = info.privacy, resolved.mechanism
    if facts is None or mechanism is None:
        return
    for name in _NOISE:
        yield f"privacy.{name}", getattr(facts, name), getattr(mechanism, name)
    yield "privacy.noise_multiplier", facts.noise_multiplier, mechanism.sigma / mechanism.sensitivity
    yield "privacy.clip", facts.clip, getattr(mechanism, "clip", facts.clip)
    yield "privacy.layer_noise", facts.layer_noise, mechanism.inner_noise
    yield "privacy.epsilon_release", facts.epsilon_release, mechanism.epsilon_after(1)
    yield "privacy.epsilon_client", facts.epsilon_client, mechanism.epsilon_after(facts.rows_released)
    if not mechanism.secret:
        yield "privacy.epsilon_run", facts.epsilon_run, mechanism.epsilon_after(facts.releases)
        yield "privacy.mu_run", facts.mu_run, mechanism.mu_of(Released(most=facts.releases))


def _bounds(info: RunInfo, frames: Frames) -> Iterator[tuple[str, float, float, float]]:
    """Yield what a number belongs to, the number, and the ends of its range."""
    rounds, ended = info.counts.get("rounds", 0), frames.end
    if len(frames.metrics):
        sent = sum(int(frames.metrics[name].to_numpy()[-1]) for name in BYTES)
        if info.codec is not None and not frames.cut:
            yield "codec.elements", info.codec.elements, info.codec.saturated, _BITS_A_BYTE * sent
    for client in info.stalled:
        yield "stalled.since_s", client.since_s, 0, ended
        yield "stalled.round", client.round, -1, rounds
        yield "stalled.rounds", client.rounds, 1, rounds
    if info.privacy is not None:
        yield "privacy.rows_released", info.privacy.rows_released, info.privacy.releases, math.inf
        yield "privacy.batches", info.privacy.batches or 0, 0, info.privacy.rows_released
    if info.conditions is not None:
        yield "conditions.features", info.conditions.features, 0, info.conditions.features_in_data


def _missing_masks(run: StoredRun) -> list[Mapping[str, Any]]:
    path = run.folder / f"{MISSING_MASKS}.parquet"
    if not path.is_file():
        return []
    rows: list[Mapping[str, Any]] = read_table(path, MISSING_MASKS).to_pylist()
    return rows


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=ROUNDING)
    return bool(one == other)
