"""Two ways to simulate a run: event by event (general), or by arrays (faster, where rounds allow it)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from vflsim.errors import RunError, ScenarioError, VflsimError
from vflsim.files import machine_memory
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.results.store.pages import SimulationPath
from vflsim.scenario.document import Problem, failure
from vflsim.scenario.models import Scenario
from vflsim.simulation.checkpoints import Keeper
from vflsim.simulation.programs import NoProgramError, TimedRun, TrainedRun, obstacles_to_program, timed, trained
from vflsim.simulation.programs.eligibility import obstacles_to_arrays
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.simulation.vectorised import UndecidedError, obstacles, run_vectorised
from vflsim.vocabulary.amounts import quantity
from vflsim.vocabulary.execution_options import USUAL, Execution
from vflsim.vocabulary.on_demand import torch

BYTES_A_PARTY = 20_000
"""What a client takes at the least in a run event by event, with its node and draws (docs/performance.md)."""

PathWish: TypeAlias = Literal["auto", "event", "vectorised"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The path of a protocol's runs; ``why`` it cannot be the vectorised one (empty if it is, or was not requested).

    ``forced``: the user requires this path. ``program``: a program trains them, along the times of the path.
    """

    path: SimulationPath
    why: str = ""
    forced: bool = False
    program: bool = False

    @property
    def side_by_side(self) -> bool:
        """Whether runs of training are trained side by side, as one program."""
        return self.program


def choices(scenario: Scenario, wish: PathWish, timing_only: bool) -> Mapping[str, Choice]:
    """Choose the path of every protocol. Raises ``ScenarioError`` with every obstacle to a required path."""
    if timing_only and scenario.record.views is not None:
        raise ScenarioError(
            "views are what parties receive, and a timing-only run has no values to receive", "record.views",
            "runs that train", "leave out --timing-only, or record.views",
        )  # fmt: skip
    if wish == "event":
        return _fitting(scenario, dict.fromkeys(scenario.protocols, Choice("event")))
    chosen, problems = dict[str, Choice](), list[Problem]()
    for name in scenario.protocols:
        to_program = [] if timing_only else obstacles_to_program(scenario, name)
        to_arrays = [*([] if timing_only else obstacles_to_arrays(scenario, name)), *obstacles(scenario, name)]
        problems += [*to_program, *to_arrays]
        program, why = not (timing_only or to_program), _why([*to_program, *to_arrays])
        chosen[name] = Choice("event" if why else "vectorised", why, wish == "vectorised" and not why, program)
    if wish == "vectorised" and problems:
        raise failure(problems, scenario.document)
    return _fitting(scenario, chosen)


def _why(problems: Sequence[Problem]) -> str:
    return f"{problems[0].key}: {problems[0].what}" if problems else ""


def _fitting(scenario: Scenario, chosen: Mapping[str, Choice]) -> Mapping[str, Choice]:
    """Return the choices. Raises ``ScenarioError`` for more clients event by event than the machine's memory holds."""
    there, symbols = machine_memory(), scenario.symbols
    problems = []
    for name, choice in chosen.items():
        if choice.path == "event" and scenario.clients * BYTES_A_PARTY > there:
            clients = len(scenario.protocols[name].protocol.participants(scenario.clients, symbols))
            if clients * BYTES_A_PARTY > there:
                why = f", which it does since {choice.why}" if choice.why else ""
                needed = quantity(clients * BYTES_A_PARTY, "B")
                what = f"a run of {name!r} with {clients:,} clients needs about {needed} event by event{why}"
                allowed = (
                    f"at most {int(there // BYTES_A_PARTY):,} clients event by event, which this machine's memory holds"
                )
                remedy = "choose fewer clients, or --timing-only of a protocol and timing with a vectorised path"
                problems.append(Problem(("partition", "clients"), what, allowed, remedy))
    if problems:
        raise failure(problems[:1], scenario.document)
    return chosen


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The arguments of a run: what ``run_on`` takes of each."""

    choice: Choice
    scenario: Scenario
    name: str
    seed: int
    data: LoadedData
    report: Callable[[Progress], None] | None = None
    keeper: Keeper | None = None


def run_on(
    choice: Choice,
    scenario: Scenario,
    name: str,
    seed: int,
    data: LoadedData,
    *,
    timing_only: bool = False,
    report: Callable[[Progress], None] | None = None,
    execution: Execution = USUAL,
    keeper: Keeper | None = None,
) -> Outcome:
    """Execute one run on the chosen path: see ``run_together``."""
    request = RunRequest(choice, scenario, name, seed, data, report, keeper)
    ((_, outcome),) = run_together([request], execution, timing_only)
    return outcome


def run_together(
    requests: Sequence[RunRequest], execution: Execution = USUAL, timing_only: bool = False
) -> Iterator[tuple[int, Outcome]]:
    """Execute runs of one protocol on their chosen paths; yield position and outcome of each as it ends.

    Runs of equal shapes are trained as one program; if a device's memory cannot hold them, half of them at a time. What
    has none, or diverges there, runs event by event; so does what arrays cannot decide, of timing alone. Keepers serve
    training only. Runs whose keepers are asked to stop write a checkpoint each, and then the iterator raises
    ``KeyboardInterrupt``. Another error than that of an outcome ends the runs that are left, and does not say whose it
    is: ``NoProgramError`` if a required path cannot train.
    """
    alike: dict[object, dict[int, TrainedRun]] = {}
    notes: dict[int, str] = {}
    for position, each in enumerate(requests):
        if not each.choice.program or execution.eager:
            yield position, _without_program(each, execution, timing_only)
            continue
        try:
            run, notes[position] = _timed(each, execution)
            trained_run = TrainedRun(run, each.report, each.keeper)
            alike.setdefault(trained_run.shapes(), {})[position] = trained_run
        except NoProgramError as why:
            if each.choice.forced:
                raise
            yield position, _by_events(each, execution, f"trained operation by operation: {why.what}")
    for runs in alike.values():
        left, places = dict(runs), [*runs]
        try:
            for place, outcome in _trained([*runs.values()]):
                position, note = places[place], notes[places[place]]
                del left[position]
                if isinstance(outcome, Outcome):
                    yield position, replace(outcome, note="; ".join(filter(None, [note, outcome.note])))
                else:  # the event path tells the party and the round
                    yield position, _by_events(requests[position], execution, note)
        except torch.OutOfMemoryError:
            if len(left) == 1:
                raise
            middle = len(left) // 2
            for half in ([*left][:middle], [*left][middle:]):
                for place, outcome in run_together([requests[position] for position in half], execution):
                    yield half[place], outcome


def _trained(runs: Sequence[TrainedRun]) -> Iterator[tuple[int, Outcome | VflsimError]]:
    """Train runs side by side; of a single one, yield PyTorch's error, such as that of a rate that no float holds."""
    try:
        yield from trained(runs)
    except (VflsimError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if len(runs) > 1:
            raise
        yield 0, RunError(f"training failed: {error}")


def _without_program(request: RunRequest, execution: Execution, timing_only: bool) -> Outcome:
    note, choice = "", request.choice
    if choice.path == "vectorised" and timing_only:
        outcome = run_vectorised(request.scenario, request.name, request.seed, request.data, request.report)
        if choice.forced or not isinstance(outcome.error, UndecidedError):
            return outcome
        note = _undecided(outcome.error)
    outcome = run_protocol(
        request.scenario, request.name, request.seed, request.data, timing_only=timing_only, report=request.report,
        execution=execution, keeper=request.keeper,
    )  # fmt: skip
    return replace(outcome, note="; ".join(filter(None, [note, outcome.note])))


def _by_events(request: RunRequest, execution: Execution, note: str) -> Outcome:
    """Run what a program does not train, with checkpoints of its own."""
    keeper = None if request.keeper is None else request.keeper.apart("event")
    outcome = run_protocol(
        request.scenario, request.name, request.seed, request.data, report=request.report, execution=execution,
        keeper=keeper,
    )  # fmt: skip
    return replace(outcome, note="; ".join(filter(None, [note, outcome.note])))


def _timed(request: RunRequest, execution: Execution) -> tuple[TimedRun, str]:
    """Time a run that a program will train, event by event if arrays cannot decide; return why, too."""
    its = request.scenario, request.name, request.seed, request.data, execution

    def report(progress: Progress) -> None:
        if request.keeper is not None:
            request.keeper.check()
        if request.report is not None:
            request.report(progress)

    if request.choice.path == "vectorised":
        try:
            return timed(*its, by_arrays=True, report=report), ""
        except UndecidedError as why:
            if request.choice.forced:
                raise
            return timed(*its, by_arrays=False, report=report), _undecided(why)
    return timed(*its, by_arrays=False, report=report), ""


def _undecided(error: VflsimError) -> str:
    where = f"in {error.where} " if error.where else ""
    return f"event by event: {where}{error.what.partition(': only')[0]}"
