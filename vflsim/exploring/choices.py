"""Which t or K would be best: a protocol's rounds for other values of one key, simulated on the same draws."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from vflsim.exploring.rounds import MESSAGES, SimulatedRounds, by_arrays, simulated
from vflsim.protocols.base import Protocol, UnsuitableError
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import check_context

CRITERIA = {
    "t": "most embeddings used per second (t ÷ mean round)",
    "K": "shortest mean round; for every K a round trains on the same rows",
}
"""Keys whose best value is sought, and by what."""
ROUNDS = 64
"""Rounds of each value."""
ROUNDS_AT_ONCE, VALUES_AT_ONCE = 32, 4
"""Rounds of each value, and most values besides the present one, of the choices that come at once."""
NEAR = 0.02
"""Values whose score differs from the best by at most this share are named beside it."""
FEW = 8
"""Most values that are tried, besides the present one."""


def choices(
    scenario: Scenario, data: ScenarioData, rounds: int = ROUNDS, most: int = FEW, messages: int = MESSAGES
) -> Iterator[dict[str, Any]]:
    """Yield, for each protocol that has a ``t`` or ``K``, the mean round of several values of it, and the best one.

    All values see the same draws of the scenario's first seed. Of more than ``most`` possible values some are left out,
    evenly; the present one is among them. Values for which the protocol refuses to run are not possible. ``messages``
    bounds rounds that only the event path can simulate.
    """

    def simulate(name: str, protocol: Protocol) -> SimulatedRounds:
        return simulated(scenario, name, data.of(scenario.training_of(name)), rounds, protocol, messages)

    yield from _choices(scenario, most, simulate)


def choices_at_once(scenario: Scenario, data: ScenarioData) -> list[dict[str, Any]]:
    """Return a first look at the choices: of few values in few rounds, and only where arrays can simulate them."""

    def simulate(name: str, protocol: Protocol) -> SimulatedRounds | None:
        return by_arrays(scenario, name, data.of(scenario.training_of(name)), ROUNDS_AT_ONCE, protocol)[0]

    return list(_choices(scenario, VALUES_AT_ONCE, simulate))


def _choices(
    scenario: Scenario, most: int, simulate: Callable[[str, Protocol], SimulatedRounds | None]
) -> Iterator[dict[str, Any]]:
    for name, entry in scenario.protocols.items():
        for key in CRITERIA:
            if key in type(entry.protocol).model_fields:
                yield _choice(scenario, name, key, most, partial(simulate, name))


def _choice(
    scenario: Scenario, name: str, key: str, most: int, simulate: Callable[[Protocol], SimulatedRounds | None]
) -> dict[str, Any]:
    present = getattr(scenario.protocols[name].protocol, key)
    possible = dict(_possible(scenario, name, key))
    tried = _some(list(possible), most, present)
    rows, scores = list[dict[str, Any]](), dict[int, float]()
    for value in tried:
        rounds = simulate(possible[value])
        if rounds is not None and not rounds.error and len(rounds.ends):
            facts = {"step_s": rounds.step_s, "used_per_s": _finite(rounds.used_per_s), "rounds": len(rounds.ends)}
            rows.append({"value": value, **facts})
            scores[value] = _score(key, rounds)
    return {
        "protocol": name,
        "key": key,
        "present": present,
        "best": max(scores, key=scores.__getitem__, default=None),
        "near": [value for value, score in scores.items() if _near(score, scores)],
        "criterion": CRITERIA[key],
        "all": len(rows) == len(possible),
        "rows": rows,
    }


def _near(score: float, scores: dict[int, float]) -> bool:
    """Return whether a value is nearly as good as the best, and not the best itself."""
    first = max(scores.values())
    return score != first and abs(first - score) <= NEAR * abs(first)


def _score(key: str, rounds: SimulatedRounds) -> float:
    score = rounds.used_per_s if key == "t" else -rounds.step_s
    return score if not math.isnan(score) else -math.inf


def _possible(scenario: Scenario, name: str, key: str) -> Iterator[tuple[int, Protocol]]:
    """Yield the values of a key that the protocol accepts here, and the protocol with each."""
    protocol, context = scenario.protocols[name].protocol, check_context(scenario, name)
    for value in range(1, len(protocol.participants(scenario.clients, scenario.symbols)) + 1):
        other = protocol.model_copy(update={key: value})
        try:
            other.check(context)
        except (ValueError, UnsuitableError):
            continue
        yield value, other


def _some(values: list[int], most: int, present: int) -> list[int]:
    """Return up to ``most`` of ascending values, evenly spread from the first to the last, and the present one."""
    if len(values) <= most:
        return values
    evenly = {values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)}
    return sorted(evenly | ({present} & {*values}))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
