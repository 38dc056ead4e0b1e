"""Which runs one process executes together, of one study or several, so that they can be trained side by side."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil

from vflsim.files import machine_memory
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData, owns_code, part_of, setting
from vflsim.studies.checks.sizes import run_size
from vflsim.studies.engines import Unit
from vflsim.studies.runs.spec import StudySpec
from vflsim.vocabulary.on_demand import torch
from vflsim.vocabulary.plain_yaml import Location, walked, with_leaves

MOST = 32
"""The most runs of a group, unless the user says otherwise."""
SHARE = 0.25
"""The share of the memory that the groups under way may take together."""


OPEN = 64
"""The most studies that open together: each has a file open, and some systems allow a process 256."""
_PACE = {"t", "fastest", "deadline", "max_staleness"}
"""Keys of protocols that decide which embeddings a step takes, as the schedule of a timed run says."""
_RULES = ("client_optimizer", "server_optimizer")
_FIXED = {"kind", "path", "select", "nesterov"}
"""Keys of optimisers that are more than numbers of a rule."""


def common_part(scenario: Scenario, protocol: str) -> frozenset[tuple[Location, str]]:
    """Return what a protocol's runs have to have in common to be a group, with those of another scenario as well.

    Free are timing, ends, seeds, and the numbers of optimisers and of the protocol's pace. Groups share one data set;
    whether their runs are one program is for ``run_together`` to see.
    """

    def fixed(loc: Location, value: object) -> object:
        rule = any(name in loc for name in _RULES) and not _FIXED.intersection(loc)
        pace = len(loc) == 3 and loc[0] == "protocols" and loc[2] in _PACE
        return None if rule or pace else value

    raw = scenario.document.raw
    part = {**raw, "timing": None, "stop": None, "protocols": {protocol: raw["protocols"][protocol]}}
    part = part_of(with_leaves(part, fixed), protocol, owns_code(scenario, protocol), ("stop",))
    leaves = ((loc, repr(value)) for loc, value in walked(part) if not isinstance(value, Mapping | list | None))
    return frozenset([(("name",), protocol), *leaves])


def programs_of(specs: Sequence[StudySpec], own: Sequence[Iterable[str]]) -> list[Mapping[str, int]]:
    """Number the groups that the runs of each study's ``own`` protocols may join, those of all studies alike."""
    known: dict[object, int] = {}
    if len(specs) == 1:
        return [{name: number for number, name in enumerate(own[0])}]
    return [
        {name: known.setdefault(common_part(spec.scenario, name), len(known)) for name in names}
        for spec, names in zip(specs, own, strict=True)
    ]


def room(unit: Unit, data: ScenarioData) -> int:
    """Return how many runs the workers may take of a group's kind before they begin with others."""
    most = _most(unit, data)
    return 1 if most == 1 else most * unit.spec.options.workers


def grouped(alike: Iterable[Sequence[Unit]], data: ScenarioData) -> list[Unit]:
    """Join units that may be trained side by side, of which there are several kinds.

    Units of a kind are shared out evenly, in as many groups for each worker; groups follow by their first run's number.
    """
    groups = [group for each in alike for group in _shared_out(each, data)]
    groups.sort(key=lambda group: group[0].run.number)
    return [replace(first, companions=tuple(others)) for first, *others in groups]


def _shared_out(units: Sequence[Unit], data: ScenarioData) -> Iterator[Sequence[Unit]]:
    """Share out units of a kind, which follow each other."""
    options, count = units[0].spec.options, len(units)
    most, each = (_most(units[0], data) if count > 1 else 1), options.workers if options.together == "auto" else 1
    groups = min(count, each * ceil(count / (each * most)))
    for number in range(groups):
        yield units[number * count // groups : (number + 1) * count // groups]


def _most(unit: Unit, data: ScenarioData) -> int:
    """Return how many runs a process may execute together: as the user says, or as memory allows."""
    spec = unit.spec
    options = spec.options
    wish = None if spec.timing_only or options.execution.eager or options.cluster else options.together
    if wish is None or not spec.paths[unit.run.protocol].side_by_side:
        return 1
    return _most_in_memory(unit, data) if wish == "auto" else wish


def _most_in_memory(unit: Unit, data: ScenarioData) -> int:
    """Return how many runs a process may execute together, by their memory beside the data, which they share."""
    spec, protocol, scenario = unit.spec, unit.run.protocol, unit.spec.scenario
    size = run_size(scenario, protocol, setting(scenario, protocol, data.of(scenario.training_of(protocol))))
    there = machine_memory()
    if spec.device_of(protocol) == "cuda":
        there = min(there, float(torch.cuda.get_device_properties().total_memory))
    of_each = spec.options.workers * max(1, size.bytes - size.parts["features"])
    return max(1, int(min(MOST, SHARE * there / of_each)))
