"""The runs of a sweep before it starts: a table with estimated times and memory."""

import math

from vflsim.results.sweeps.axis import axes_of
from vflsim.scenario.resolve import ScenarioData
from vflsim.studies.checks.expected import Expectation, expectation
from vflsim.studies.checks.run_speed import BUDGET_S, Speed, measured_speed, together
from vflsim.studies.sweeps.plan import SweepPlan
from vflsim.tables import Cell, DataTable
from vflsim.vocabulary.amounts import quantity, roughly
from vflsim.vocabulary.execution_options import RunOptions
from vflsim.vocabulary.plain_yaml import flow

_ALL_S = 30.0
"""Wall-clock seconds for all measured rounds."""


def expected_runs_table(plan: SweepPlan, options: RunOptions) -> DataTable:
    """Tabulate the runs of a plan, point by point, with the time of all, from a few measured rounds of each.

    A point's runs that are the same as those of an earlier point refer to it. Raises a run's errors as ScenarioError.
    """
    owners = plan.owners()
    budget_s = min(BUDGET_S, _ALL_S / sum(map(len, plan.own_runs)))
    known: dict[tuple[int, str], tuple[Expectation, Speed]] = {}
    rows, times = list[tuple[Cell, ...]](), list[float]()
    for position, point in enumerate(plan.points):
        scenario, data = point.scenario, ScenarioData(point.scenario, plan.shelf)
        for name in scenario.protocols:
            owner = owners[position, name]
            real: Cell = f"as in {plan.points[owner].folder}"
            if owner == position:
                loaded = data.of(scenario.training_of(name))
                runs = expectation(scenario, name, loaded)
                speed = measured_speed(
                    scenario, runs, loaded, options.execution, timing_only=plan.timing_only, budget_s=budget_s
                )
                known[position, name] = runs, speed
                real = _time(speed.run_s(runs))
                times += [speed.run_s(runs)] * len(scenario.seeds)
            runs, _ = known[owner, name]
            virtual, memory = _time(runs.rounds * runs.step_s), quantity(runs.size.bytes, "B")
            rows.append((*map(flow, point.values), name, len(scenario.seeds), virtual, real, memory))
    axes = axes_of(plan.keys, [point.values for point in plan.points])
    header = (*(axis.label for axis in axes), "protocol", "seeds", "a run in virtual time", "in real time", "memory")
    ended = [seconds for seconds in times if math.isfinite(seconds)]
    without = f", without {len(times) - len(ended)} that only a target ends" if len(ended) < len(times) else ""
    same = plan.runs - len(times)
    notes = [
        f"{len(plan.points)} points, {plan.runs} runs"
        + (f"; {same} of them the same as at an earlier point, and not run again." if same else "."),
        "Real time: about, for a run with a core to itself, from some measured rounds; "
        f"{together(ended, options.workers)}{without}.",
        "Memory of a run, about: features, weights, gradients, optimisers, activations, and what a protocol keeps.",
    ]
    title = f"{plan.points[0].scenario.name}: what the sweep would run"
    return DataTable(header, rows, title=title, notes=notes, left=tuple(range(len(axes) + 1)))


def _time(seconds: float) -> Cell:
    if math.isnan(seconds):
        return "—"
    return "until the target" if math.isinf(seconds) else roughly(seconds)
