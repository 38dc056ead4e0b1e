"""The runs of a sweep before it starts: a table with estimated times and memory."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from vflsim.results.sweeps.axis import axes_of
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.emit import flow
from vflsim.studies.checks.expected import expectation
from vflsim.studies.checks.run_speed import BUDGET_S, measured_speed, together
from vflsim.studies.sweeps.plan import SweepPlan
from vflsim.tables import Cell, DataTable
from vflsim.vocabulary.amounts import quantity, roughly
from vflsim.vocabulary.execution_options import RunOptions

_ALL_S = 30.0
"""Wall-clock seconds for all measured rounds."""


@dataclass(frozen=True, slots=True)
class ExpectedRuns:
    """The runs of a protocol at a point.

    ``owner`` is the point that executes these runs: this point, or an earlier one with identical runs.

    For a run: virtual and wall-clock seconds (infinite if only a target ends it, NaN if unknown), bytes of memory.
    """

    position: int
    protocol: str
    seeds: int
    owner: int
    virtual_s: float
    real_s: float
    memory: float


def expected_runs(plan: SweepPlan, options: RunOptions) -> Iterator[ExpectedRuns]:
    """Estimate every run of a plan, from a few measured rounds of each. Raises a run's errors as ScenarioError."""
    owners = plan.owners()
    budget_s = min(BUDGET_S, _ALL_S / len(set(zip(owners.values(), (name for _, name in owners), strict=True))))
    expected: dict[tuple[int, str], ExpectedRuns] = {}
    for position, point in enumerate(plan.points):
        scenario, data = point.scenario, ScenarioData(point.scenario, plan.shelf)
        for name in scenario.protocols:
            owner = owners[position, name]
            if owner == position:
                loaded = data.of(scenario.training_of(name))
                runs = expectation(scenario, name, loaded)
                speed = measured_speed(
                    scenario, runs, loaded, options.execution, timing_only=plan.timing_only, budget_s=budget_s
                )
                virtual_s, real_s = runs.rounds * runs.step_s, speed.run_s(runs)
                expected[position, name] = ExpectedRuns(
                    position, name, len(scenario.seeds), owner, virtual_s, real_s, runs.size.bytes
                )
            yield replace(expected[owner, name], position=position, owner=owner)


def expected_runs_table(plan: SweepPlan, expected: list[ExpectedRuns], workers: int) -> DataTable:
    """Tabulate the runs of a plan, point by point, with the time of all on ``workers``."""
    axes = axes_of(plan.keys, [point.values for point in plan.points])
    rows = []
    for each in expected:
        is_owner = each.owner == each.position
        values = map(flow, plan.points[each.position].values)
        real: Cell = _time(each.real_s) if is_owner else f"as in {plan.points[each.owner].folder}"
        rows.append((*values, each.protocol, each.seeds, _time(each.virtual_s), real, quantity(each.memory, "B")))
    header = (*(axis.label for axis in axes), "protocol", "seeds", "a run in virtual time", "in real time", "memory")
    once = [each for each in expected if each.owner == each.position]
    runs, done = sum(each.seeds for each in expected), sum(each.seeds for each in once)
    times = [each.real_s for each in once for _ in range(each.seeds)]
    ended = [seconds for seconds in times if math.isfinite(seconds)]
    without = f", without {len(times) - len(ended)} that only a target ends" if len(ended) < len(times) else ""
    notes = [
        f"{len(plan.points)} points, {runs} runs"
        + (f"; {runs - done} of them the same as at an earlier point, and not run again." if done < runs else "."),
        "Real time: about, for a run with a core to itself, from some measured rounds; "
        f"{together(ended, workers)}{without}.",
        "Memory of a run, about: features, weights, gradients, optimisers, activations, and what a protocol keeps.",
    ]
    title = f"{plan.points[0].scenario.name}: what the sweep would run"
    return DataTable(header, rows, title=title, notes=notes, left=tuple(range(len(axes) + 1)))


def _time(seconds: float) -> Cell:
    if math.isnan(seconds):
        return "—"
    return "until the target" if math.isinf(seconds) else roughly(seconds)
