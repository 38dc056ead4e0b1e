"""How close closed forms of clients at their own pace are, in all scenarios that are shipped.

Of each entry with ``asynchronous`` or ``t_synchronous`` (without ``cancel``): the bounds of the mean round, the upper
by the lower one, and the mean round of a run without training, with its 99.9 % interval (batch means after a tenth of
warm-up). Entries of equal bounds are listed once, data that are not here are left out with the reason. Minutes.
Run: VFLSIM_DATA=… python benchmarks/bounds.py [--rounds 20000] [scenarios/quickstart.yaml …]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy import stats

from vflsim.analysis import ClosedForm
from vflsim.errors import VflsimError
from vflsim.learning.data.loaded import LoadedData
from vflsim.scenario import Scenario, load
from vflsim.simulation.run import run_protocol
from vflsim.simulation.vectorised import obstacles, run_vectorised
from vflsim.studies.checks.closed_forms import analyse
from vflsim.studies.checks.data import read_and_check

BATCHES = 50


def main() -> None:
    """Print a row for each entry."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", type=Path, default=shipped())
    parser.add_argument("--rounds", type=int, default=20_000)
    said = parser.parse_args()
    for path in said.scenarios:
        scenario = load(path, overrides=["record=rounds"])
        if not any(own_pace(scenario, name) for name in scenario.protocols):
            continue
        try:
            data = read_and_check(scenario, training=False)
        except VflsimError as error:
            print(f"{path}: {error.what}")
            continue
        seen: set[tuple[float, float]] = set()
        for name in scenario.protocols:
            if own_pace(scenario, name):
                row(path, scenario, name, data.of(scenario.training_of(name)), said.rounds, seen)


def shipped() -> list[Path]:
    """All scenarios of the repository; worlds of the orderings are parts of scenarios."""
    return [path for path in sorted(Path("scenarios").rglob("*.yaml")) if path.parent.name != "worlds"]


def own_pace(scenario: Scenario, name: str) -> bool:
    """Whether the entry's clients go on at their own pace."""
    protocol = scenario.protocols[name].protocol
    return protocol.kind in ("asynchronous", "t_synchronous") and not getattr(protocol, "cancel", False)


def row(
    path: Path, scenario: Scenario, name: str, data: LoadedData, rounds: int, seen: set[tuple[float, float]]
) -> None:
    """Print what is known of an entry, and what a run has shown."""
    form = analyse(scenario, name, data).findings[0]
    if not isinstance(form, ClosedForm):
        print(f"{path} {name}: none: {form.reason}")
        return
    low, high = form.mean.low, form.mean.high
    if (low, high) in seen:
        return
    seen.add((low, high))
    mean, error = simulated(scenario, name, data, rounds)
    print(
        f"{path} {name}: {low:.5g} to {high:.5g} s, {high / low:.3f}; simulated {mean:.5g} ± {error:.2g} s", flush=True
    )


def simulated(scenario: Scenario, name: str, data: LoadedData, rounds: int) -> tuple[float, float]:
    """The mean round (s) of a run of so many, and half its interval."""
    entry = scenario.protocols[name].model_copy(update={"stop": None, "evaluate": None})
    stop = type(scenario.stop)(rounds=rounds)
    long = scenario.model_copy(update={"stop": stop, "protocols": {**scenario.protocols, name: entry}})
    if obstacles(long, name):
        outcome = run_protocol(long, name, 1, data, timing_only=True)
    else:
        outcome = run_vectorised(long, name, 1, data)
    if outcome.error is not None:
        raise outcome.error
    ends = outcome.tables.rounds.column("end_s").to_numpy()[rounds // 10 :]
    seconds = np.diff(ends)
    means = seconds[: len(seconds) // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
    return float(seconds.mean()), float(stats.t.ppf(0.9995, BATCHES - 1) * means.std(ddof=1) / np.sqrt(BATCHES))


if __name__ == "__main__":
    main()
