"""The figures of a scenario that come at once: delays, simulated rounds, waits, a timeline."""

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from vflsim.exploring.rounds import SimulatedRounds, UnwrittenRun, simulated
from vflsim.plotting.looks import kinds_in
from vflsim.reporting.figures import looks, panels
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData, party_timings
from vflsim.studies.checks.trials import by_events
from vflsim.timing.delays.base import Delay
from vflsim.timing.floats import Floats

ROUNDS = 128
"""Rounds of each protocol that are simulated at once."""
MESSAGES = 2_000
"""About how many messages the rounds of all protocols together have that are simulated event by event at once."""
SHOWN = 5
"""Rounds of a timeline."""
AT_ONCE = 1_500
"""Most messages of a timeline that comes with the other figures."""
_TIMELINE = 5_000
"""Most messages of a timeline; of protocols with more, fewer rounds are shown."""
_ACTIVITIES = 12_000
_POINTS = 160
_BODY, _TAIL = 0.995, 1 - 1e-4
"""The levels at which the curves of density and of survival end."""
_CURVE = 400
"""Most points of an empirical distribution."""


def figures(scenario: Scenario, data: ScenarioData, whose: str | None = None) -> dict[str, Any]:
    """Compute the figures that come at once, as plain values: numbers in seconds and bytes, None where there is none.

    ``whose`` names the protocol whose first rounds are shown activity by activity (default: the first); they are left
    out if they have more than ``AT_ONCE`` messages. Raises ScenarioError and DataError.
    """
    chosen = whose if whose in scenario.protocols else next(iter(scenario.protocols))
    return {
        "name": scenario.name,
        "clients": scenario.clients,
        "seed": scenario.seeds[0],
        "delay": _slowest(scenario),
        "looks": looks(kinds_in(scenario)),
        "protocols": simulations(scenario, data),
        "timeline": timeline(scenario, data, chosen, AT_ONCE),
    }


def simulations(
    scenario: Scenario, data: ScenarioData, rounds: int = ROUNDS, messages: int = MESSAGES
) -> list[dict[str, Any]]:
    """Simulate ``rounds`` rounds of every protocol; where only events will do, as many as have their share of messages.

    ``messages`` are those of all protocols together.
    """
    protocols, share = [], messages // len(scenario.protocols)
    for name, kind in kinds_in(scenario).items():
        loaded = data.of(scenario.training_of(name))
        protocols.append(_protocol(name, kind, simulated(scenario, name, loaded, rounds, messages=share)))
    return protocols


def timeline(scenario: Scenario, data: ScenarioData, name: str, most: int = _TIMELINE) -> dict[str, Any]:
    """Return the activities of a protocol's first rounds, as the page's timeline takes them, and how many rounds.

    Without ``panels`` if these rounds have more messages than ``most``.
    """
    many = scenario.protocols[name].protocol.batch_plan().messages(scenario.clients)
    rounds = max(1, min(SHOWN, _TIMELINE // many))
    if rounds * many > max(most, many):
        return {"protocol": name}
    outcome = by_events(scenario, name, data.of(scenario.training_of(name)), rounds, "events")
    shown = panels([UnwrittenRun.of(outcome)], _ACTIVITIES)
    panel = shown["panels"][0]
    panel["window"] = panel["end"]
    error = "" if outcome.error is None else " ".join(str(outcome.error).split())
    return {**shown, "protocol": name, "rounds": rounds, "error": error}


def delay_curves(delay: Delay) -> dict[str, Any]:
    """Return density and survival function of a delay at some points, its mean and quantiles (seconds).

    A delay with an atom alone has no density. Where the density is infinite, or beyond the floats, it is None.
    """
    body, tail = (_grid(delay, level) for level in (_BODY, _TAIL))
    smooth = not len(delay.atoms().values)
    return {
        "kind": delay.kind,
        "mean": number(delay.expectation()),
        "quantiles": {level: number(float(delay.quantile(float(level)))) for level in ("0.5", "0.9", "0.99")},
        "density": {"x": _numbers(body), "y": _numbers(delay.density(body)) if smooth else [None] * len(body)},
        "survival": {"x": _numbers(tail), "y": _numbers(delay.survival(tail))},
        "atoms": _numbers(delay.atoms().values[:10]),
    }


def _slowest(scenario: Scenario) -> dict[str, Any]:
    """Return the curves of the longest upload delay on average, and which clients have it."""
    delays = [timing.upload_delay for timing in party_timings(scenario)[1:]]
    slowest = max(delays, key=lambda delay: delay.expectation())
    its = [client for client, delay in enumerate(delays, start=1) if delay == slowest]
    return {**delay_curves(slowest), "clients": its, "kinds": len({repr(delay) for delay in delays})}


def _grid(delay: Delay, level: float) -> Floats:
    """Return times from 0 to the quantile of a level, and just beyond its atoms."""
    end = float(delay.quantile(level)) or 1.0
    end = 1.2 * end if len(delay.atoms().values) else end
    corners = [each for low in (delay.breaks if len(delay.breaks) < _POINTS else []) for each in
               (np.nextafter(low, -np.inf), low) if 0 <= each <= end]  # fmt: skip
    return np.unique(np.concatenate([np.linspace(0, end, _POINTS), corners]))


def _protocol(name: str, kind: str, rounds: SimulatedRounds) -> dict[str, Any]:
    durations = np.sort(rounds.durations)
    levels = np.arange(1, len(durations) + 1) / max(1, len(durations))
    some = np.unique(np.linspace(0, len(durations) - 1, min(_CURVE, len(durations))).astype(int))
    return {
        "name": name,
        "kind": kind,
        "rounds": len(durations),
        "step_s": number(rounds.step_s),
        "round_bytes": number(rounds.round_bytes),
        "used_per_s": number(rounds.used_per_s),
        "ecdf": {"x": _numbers(durations[some]), "y": _numbers(levels[some])},
        "waited": {str(client): share for client, share in rounds.waited.items()},
        "by_events": rounds.by_events,
        "error": rounds.error,
    }


def number(value: float) -> float | None:
    """Return a number, None in the place of one that JSON does not have."""
    return value if math.isfinite(value) else None


def _numbers(values: Floats) -> list[float | None]:
    return [number(value) for value in np.asarray(values, np.float64).tolist()]


def finite(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """Return a row of a frame as JSON has it, with None in the place of numbers that JSON does not have."""
    values = {str(key): value.item() if isinstance(value, np.generic) else value for key, value in row.items()}
    return {
        key: number(value) if isinstance(value, float) else list(value) if isinstance(value, tuple) else value
        for key, value in values.items()
    }
