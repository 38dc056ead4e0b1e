"""Runs of one protocol that one process executes together, each up to its written folder."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from vflsim.errors import CheckpointError, DataError, ResultsError, VflsimError
from vflsim.party_names import with_names
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.reporter import Progress
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.progress import Report, StudyRun
from vflsim.studies.runs.simulator_choice import RunRequest, run_together
from vflsim.studies.runs.spec import StudySpec


@dataclass(frozen=True, slots=True)
class Member:
    """A run of a group, its study, and who hears how far it is.

    Studies of a group have data, options and all else in common that a program needs.
    """

    spec: StudySpec
    run: StudyRun
    report: Callable[[Progress], None]


def carry_out(members: Sequence[Member], data: ScenarioData, interrupt: Interrupt) -> Iterator[tuple[int, Report]]:
    """Execute the runs of a group; write each whole or not at all; yield its position and report once it is written.

    A checkpoint that misleads a run counts only with ``resume``. If a group cannot go on, its runs go on one by one.
    Raises ResultsError if a run cannot be written or (with ``resume``) cannot resume from its checkpoint, and, if
    interrupted, KeyboardInterrupt after a checkpoint of every run under way.
    """
    reports = _reports(members, data, interrupt)
    step = with_names(lambda *_: members[0].spec.scenario.document.raw)(next)
    yield from iter(lambda: step(reports, None), None)


def _reports(members: Sequence[Member], data: ScenarioData, interrupt: Interrupt) -> Iterator[tuple[int, Report]]:
    left, alone, resume = dict(enumerate(members)), len(members) == 1, members[0].spec.options.resume
    try:
        for position, report in _side_by_side(members, data, interrupt):
            del left[position]
            yield position, report
        return
    except Exception as error:
        misled = isinstance(error, CheckpointError) and not resume
        ours = isinstance(error, ResultsError | DataError) and not misled
        if not left or ours or (alone and not (misled and members[0].run.continued)):
            raise
        what = error.what if isinstance(error, VflsimError) else f"{type(error).__name__}: {error}"
        why = f"{'computed anew' if alone else 'alone'}: {what}"
    for position, member in left.items():
        again = replace(member, run=replace(member.run, continued=member.run.continued and not alone))
        for _, report in _reports([again], data, interrupt):
            yield position, replace(report, note="; ".join(filter(None, [why, report.note])))


def _side_by_side(members: Sequence[Member], data: ScenarioData, interrupt: Interrupt) -> Iterator[tuple[int, Report]]:
    spec, protocol = members[0].spec, members[0].run.protocol
    keepers = [each.spec.keeper_of(each.run) for each in members]
    there = [keeper for keeper in keepers if keeper is not None]

    def stop() -> None:
        for keeper in there:
            keeper.request(stop=True)

    left, last = len(members), None
    with interrupt.softened(stop) if there else nullcontext():
        its = data.of(spec.scenario.training_of(protocol))
        requests = [
            RunRequest(each.spec.paths[protocol], each.spec.scenario, protocol, each.run.seed, its, each.report, keeper)
            for each, keeper in zip(members, keepers, strict=True)
        ]
        for position, outcome in run_together(requests, spec.options.execution, spec.timing_only):
            member, left = members[position], left - 1
            last = position, member.spec.write(member.run, outcome, its)
            member.spec.settle(protocol, member.run.seed)  # not before: a written run must not look unfinished
            if outcome.error is None:
                member.spec.log_of(member.run).unlink(missing_ok=True)
            if left:
                yield last
    if last is not None:  # nothing is left to be asked to stop
        yield last
