"""Which runs of a study one process executes together, so that they can be trained side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil

from vflsim.files import machine_memory
from vflsim.scenario.resolve import ScenarioData, setting
from vflsim.studies.checks.sizes import run_size
from vflsim.studies.engines import Unit
from vflsim.vocabulary.on_demand import torch

MOST = 32
"""The most runs of a group, unless the user says otherwise."""
SHARE = 0.25
"""The share of the memory that the groups under way may take together."""


def grouped(units: Sequence[Unit], data: ScenarioData) -> list[Unit]:
    """Join units of one study that may be trained side by side; groups follow in the order of their first run.

    Runs of a protocol are shared out evenly, in as many groups for each worker.
    """
    by_protocol: dict[str, list[Unit]] = {}
    for unit in units:
        by_protocol.setdefault(unit.run.protocol, []).append(unit)
    groups = [group for each in by_protocol.values() for group in _shared_out(each, data)]
    groups.sort(key=lambda group: group[0].run.number)
    return [replace(first, companions=tuple(others)) for first, *others in groups]


def _shared_out(units: Sequence[Unit], data: ScenarioData) -> Iterator[Sequence[Unit]]:
    """Share out the units of a protocol, whose runs follow each other."""
    spec, protocol = units[0].spec, units[0].run.protocol
    options, count = spec.options, len(units)
    wish = None if spec.timing_only or options.execution.eager or options.cluster else options.together
    if wish is None or count == 1 or not spec.paths[protocol].side_by_side:
        groups = count
    elif wish == "auto":
        workers = options.workers
        groups = min(count, workers * ceil(count / (workers * _most(units[0], data))))
    else:
        groups = ceil(count / wish)
    for number in range(groups):
        yield units[number * count // groups : (number + 1) * count // groups]


def _most(unit: Unit, data: ScenarioData) -> int:
    """Return how many runs a process may execute together, by their memory beside the data, which they share."""
    spec, protocol, scenario = unit.spec, unit.run.protocol, unit.spec.scenario
    size = run_size(scenario, protocol, setting(scenario, protocol, data.of(scenario.training_of(protocol))))
    there = machine_memory()
    if spec.device_of(protocol) == "cuda":
        there = min(there, float(torch.cuda.get_device_properties().total_memory))
    of_each = spec.options.workers * max(1, size.bytes - size.parts["features"])
    return max(1, int(min(MOST, SHARE * there / of_each)))
