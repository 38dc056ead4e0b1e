"""Tables of what a sweep answers: a row per protocol with its best values, and sentences on which protocol is first."""

from collections.abc import Iterator, Sequence

from vflsim.results.statistics.estimates import Estimate, describe
from vflsim.results.statistics.pairs import Ratio
from vflsim.results.sweeps import Sweep
from vflsim.results.sweeps.answers import ANY, SweepAnswer, answers
from vflsim.results.sweeps.axis import sections_of
from vflsim.results.sweeps.candidates import UNITS, Candidate
from vflsim.results.tables.footnotes import BOUNDED, targets_in
from vflsim.tables import Cell, DataTable
from vflsim.vocabulary.amounts import Amount, limit, quantity, with_words
from vflsim.vocabulary.targets import target_note

MOST = 6
"""Most settings that a cell names."""
_LEAST = {"time": "soonest", "bytes": "with the fewest bytes", "energy": "with the least energy"}


def answer_tables(sweep: Sweep) -> list[DataTable]:
    """Tabulate every comparison: best values, what is not told apart from them, and each protocol against the first.

    A comparison has one table, with rows for each of the sweep's worlds. Notes below the last one explain them.
    """
    comparisons = answers(sweep)
    alike: dict[tuple[bool, str], list[SweepAnswer]] = {}
    for answer in comparisons:
        alike.setdefault((bool(answer.metric), answer.competition.cost), []).append(answer)
    tables = [_table(alike[key]) for key in sorted(alike, key=lambda key: (key[0], [*UNITS].index(key[1])))]
    if tables:
        tables[-1].notes = [*tables[-1].notes, *_notes(sweep, comparisons)]
    return tables


def sentences(sweep: Sweep) -> list[str]:
    """Say for every comparison which protocol is first with which values, and which are not told apart from it."""
    return [text for answer in answers(sweep) if (text := _sentence(answer))]


def _table(answers: Sequence[SweepAnswer]) -> DataTable:
    axes, several = answers[0].axes, any(len(answer.choices) > 1 for answer in answers)
    amounts = [*dict.fromkeys(_after(answer) for answer in answers if answer.metric)]
    what = answers[0].metric.removeprefix("test_").replace("_", " ") or f"{answers[0].competition.cost} to the target"
    worlds = [axis.label for axis in answers[0].sweep.axes if axis.name in answers[0].world]
    header = [*worlds, "protocol", *(f"best {axis.label}" for axis in axes)]
    header += ["after"] if len(amounts) > 1 else []
    header += [what, *(["not told apart"] if axes else []), *(["against the first"] if several else [])]
    rows = []
    for answer in answers:
        for name in answer.choices:
            after = [_after(answer)] if len(amounts) > 1 else []
            cells = [*answer.world.values(), name, *_best(answer, name, after)]
            rows.append((*cells, *([_against(answer, name)] if several else [])))
    sentences = [text for answer in answers if (text := _sentence(answer))]
    more = [f"{len(sentences) - MOST} more sentences such as these: vflsim report."] if len(sentences) > MOST else []
    left = [place for place, head in enumerate(header) if head.startswith((*worlds, "best ", "protocol", "not told"))]
    return DataTable(header, rows, title=_title(answers[0], amounts), notes=[*sentences[:MOST], *more], left=left)


def _best(answer: SweepAnswer, protocol: str, after: list[Amount]) -> list[Cell]:
    """Return a protocol's best values, what it cost with them, and the settings that are not told apart."""
    choice, none = answer.choices[protocol], ["—"] if answer.axes else []
    if choice.best is None:
        return [*["—"] * len(answer.axes), *after, _missed(answer, protocol), *none]
    close = [_setting(answer, each) for each in choice.close]
    more = f" and {len(close) - MOST} more" if len(close) > MOST else ""
    between = "; " if len(answer.axes) > 1 else ", "
    level = describe(answer.estimate(choice.best), answer.unit, answer.share)
    alike = [between.join(close[:MOST]) + more or "—"] * bool(none)
    return [*answer.values(choice.best), *after, level, *alike]


def _title(answer: SweepAnswer, amounts: Sequence[Amount]) -> str:
    competition = answer.competition
    best = "best" if answer.axes else "compared"
    if competition.after is None:
        target = next(each for summary in answer.sweep.summaries for each in targets_in(summary))
        return f"{answer.sweep.scenario}: {best} by {competition.cost} to {target}"
    after = amounts[0] if len(amounts) == 1 else f"as much {competition.cost} as all runs have spent"
    return f"{answer.sweep.scenario}: {best} by {answer.metric} after {after}"


def _after(answer: SweepAnswer) -> Amount:
    return quantity(float(answer.competition.after or 0), UNITS[answer.competition.cost])


def _missed(answer: SweepAnswer, protocol: str) -> Amount:
    """Show the setting of which most runs reached the target, where none has all."""
    estimates = [answer.estimate(each) for each in answer.competition.samples if each.protocol == protocol]
    most = max(estimates, key=lambda estimate: (estimate.reached, -estimate.horizon))
    if most.reached:
        return describe(most, answer.unit)
    return limit("least", min(estimate.horizon for estimate in estimates), answer.unit)


def _against(answer: SweepAnswer, protocol: str) -> Cell:
    place, comparison = answer.place(protocol), answer.against_first(protocol)
    if place in ("first", "reference"):
        return place
    cell: Cell = "—"
    if isinstance(comparison, Ratio):
        cell = comparison.cell
    elif isinstance(comparison, Estimate):
        cell = describe(comparison, answer.unit, answer.share)
    if place == "behind":
        return cell
    return with_words(cell, ", not told apart") if isinstance(cell, Amount) else f"{cell}, not told apart"


def _setting(answer: SweepAnswer, candidate: Candidate) -> str:
    """Write a candidate's values: ``5``, or with several keys ``t = 5, up = 5 Mbps``."""
    values = answer.values(candidate)
    if len(values) == 1:
        return values[0]
    names = (axis.name for axis in answer.axes)
    return ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))


def _named(answer: SweepAnswer, candidate: Candidate) -> str:
    """Name a protocol with its values: ``t-sync with t = 5``; without those that do not matter to it."""
    names = (axis.name for axis in answer.axes)
    values = [f"{name} = {value}" for name, value in zip(names, answer.values(candidate), strict=True) if value != ANY]
    return candidate.protocol + (f" with {', '.join(values)}" if values else "")


def _sentence(answer: SweepAnswer) -> str:
    overall = answer.overall
    if overall.best is None or len({*answer.choices} - answer.references) < 2:
        return ""
    amount = describe(answer.estimate(overall.best), answer.unit, answer.share)
    where = "".join(f"{name} = {value}: " for name, value in answer.world.items())
    if answer.metric:
        level = "highest" if answer.highest else "lowest"
        what = answer.metric.replace("_", " ")
        begin = f"{where}after" if where else "After"
        text = f"{begin} {_after(answer)}, {_named(answer, overall.best)} has the {level} {what}, {amount}"
    else:
        text = f"{where}{_named(answer, overall.best)} reaches the target {_LEAST[answer.competition.cost]}, {amount}"
    others = [each for each in overall.close if each.protocol != overall.best.protocol]
    if not others:
        return f"{text}; every other protocol is clearly behind."
    named = [_named(answer, each) for each in others]
    more = f" and {len(named) - MOST} more" if len(named) > MOST else ""
    return f"{text}; not told apart from it: {', '.join(named[:MOST])}{more}."


def _sorts(sweep: Sweep) -> Iterator[str]:
    """Say which keys are choices, which are not, and where each lies in the scenario."""
    sorts: dict[bool, list[str]] = {True: [], False: []}
    for axis, chosen in zip(sweep.axes, sweep.choices, strict=True):
        where = ", ".join(sections_of(axis.key, sweep.results[0].scenario)) or "nothing"
        used = f"used in {where}" if axis.key.startswith("constants.") else f"in {where}"
        sorts[chosen].append(f"{axis.name} ({used})")
    if sorts[True]:
        yield f"Choices, of which there is a best: {', '.join(sorts[True])}."
    if sorts[False]:
        yield (
            f"No choice, but the world or the measurement: {', '.join(sorts[False])}. "
            "Protocols compete at each of its values alone."
        )


def _notes(sweep: Sweep, answers: Sequence[SweepAnswer]) -> Iterator[str]:
    yield from _sorts(sweep)
    if any(ANY in answer.values(each) for answer in answers for each in answer.competition.samples):
        yield "“any”: the protocol's runs do not depend on the key."
    yield (
        "Not told apart: paired differences over seeds do not put it behind the best (one-sided t tests, corrected for "
        "their number; the best and these hold the truly best with 95 %). What is censored, failed or diverged is "
        "never the best."
    )
    if any(sweep.choices):
        yield "The best of several is best partly by chance: expect less of it on other seeds."
    ends = {f"{name} ({keys})": None for answer in answers for name, keys in answer.at_an_end().items()}
    if ends:
        yield f"At an end of the values, so that others may be better: {', '.join(ends)}."
    if any(len(sample.seeds) < 2 for answer in answers for sample in answer.competition.samples.values()):
        yield "One seed tells nothing apart: run more (--seeds 0:5)."
    costs = [answer for answer in answers if not answer.metric]
    if costs:
        target = next(each for summary in sweep.summaries for each in targets_in(summary))
        yield target_note(target)
        yield "Against the first: the cost ÷ that of the first protocol, geometric mean and 95 % interval over seeds."
        ratios = (answer.against_first(name) for answer in costs for name in answer.choices)
        if any(isinstance(each, Ratio) and each.bound != "exact" for each in ratios):
            yield BOUNDED
    after = [answer for answer in answers if answer.metric]
    if after:
        which = "of the protocols that reached the target with no value in all runs" if costs else "of all protocols"
        amounts = ", ".join(str(_after(answer)) for answer in after)
        yield (
            f"{amounts}: the most that all runs {which} have spent. Between evaluations a metric keeps its last value. "
            "Against the first: the difference of the metric."
        )
