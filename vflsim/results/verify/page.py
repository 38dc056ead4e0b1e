"""Rules about the numbers of ``run.json``: those that follow from tables and from the scenario are computed again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow.parquet as pq

from vflsim.files import opened
from vflsim.learning.privacy.accounting import Released
from vflsim.protocols.base import Protocol
from vflsim.protocols.blinded import MISSING_MASKS
from vflsim.protocols.defaults import local_steps_of
from vflsim.results.facts import BlindingFacts, NetworkFacts
from vflsim.results.store.columns import check_columns
from vflsim.results.store.run import StoredRun
from vflsim.results.store.schema import RunInfo
from vflsim.results.verify.frames import ROUNDING, Frames
from vflsim.results.verify.scenario import ByScenario
from vflsim.setting import Setting

_NOISE = ("sensitivity", "sigma", "delta")
_BITS_A_BYTE = 8


def page_problems(run: StoredRun, frames: Frames, scenario: ByScenario) -> Iterator[str]:
    """Yield a sentence for each number of a run's page that its tables, or its scenario, contradict."""
    info, resolved = run.info, scenario.setting(run.info.protocol)
    pairs = [*_of_tables(run, resolved)]
    if resolved is not None:
        pairs += _of_scenario(info, resolved, scenario.protocol(info.protocol))
    for what, found, expected in pairs:
        if found is not None and not _equal(found, expected):
            yield f"run.json: {what} is {found}, and must be {expected}"
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
    yield "network", info.network, NetworkFacts.of(resolved.network, [timing.link for timing in resolved.timings])
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
        sent = sum(int(frames.metrics[name][-1]) for name in ("bytes_up", "bytes_down", "bytes_peer"))
        if info.codec is not None and not frames.cut:
            yield "codec.elements", info.codec.elements, info.codec.saturated, _BITS_A_BYTE * sent
    for each in info.stalled:
        yield "stalled.since_s", each.since_s, 0, ended
        yield "stalled.round", each.round, -1, rounds
        yield "stalled.rounds", each.rounds, 1, rounds
    if info.privacy is not None:
        yield "privacy.rows_released", info.privacy.rows_released, info.privacy.releases, math.inf
        yield "privacy.batches", info.privacy.batches or 0, 0, info.privacy.rows_released
    if info.conditions is not None:
        yield "conditions.features", info.conditions.features, 0, info.conditions.features_in_data


def _missing_masks(run: StoredRun) -> list[Mapping[str, Any]]:
    path = run.folder / f"{MISSING_MASKS}.parquet"
    if not path.is_file():
        return []
    with opened(path) as file:
        table = pq.read_table(file, partitioning=None)
    check_columns(path, MISSING_MASKS, table)
    rows: list[Mapping[str, Any]] = table.to_pylist()
    return rows


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=ROUNDING)
    return bool(one == other)
