"""Tables of what a sweep answers: a row per protocol with its best values, and sentences on which protocol is first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vflsim.results.statistics.estimates import Estimate
from vflsim.results.statistics.ratios import Ratio
from vflsim.results.sweeps.answers import ANY, SweepAnswer, answers
from vflsim.results.sweeps.candidates import UNITS, Candidate
from vflsim.results.sweeps.sweep import Sweep
from vflsim.results.tables.comparison import describe
from vflsim.results.tables.footnotes import BOUNDED, targets_in
from vflsim.text_table import TextTable
from vflsim.vocabulary.amounts import quantity
from vflsim.vocabulary.targets import target_note

MOST = 6
"""Most settings that a cell names."""
_LEAST = {"time": "soonest", "bytes": "with the fewest bytes", "energy": "with the least energy"}


def answer_tables(sweep: Sweep) -> list[TextTable]:
    """Tabulate every comparison: best values, what is not told apart from them, and each protocol against the first.

    Notes below the last one explain them.
    """
    found = answers(sweep)
    tables = [_table(answer) for answer in found]
    if tables:
        tables[-1].notes = (*tables[-1].notes, *_notes(found))
    return tables


def sentences(sweep: Sweep) -> list[str]:
    """Say for every comparison which protocol is first with which values, and which are not told apart from it."""
    return [text for answer in answers(sweep) if (text := _sentence(answer))]


def _table(answer: SweepAnswer) -> TextTable:
    axes, several = answer.sweep.axes, len(answer.choices) > 1
    what = answer.metric.removeprefix("test_").replace("_", " ") or f"{answer.competition.cost} to the target"
    header = ["protocol", *(f"best {axis.label}" for axis in axes), what, "not told apart"]
    rows = []
    for name, choice in answer.choices.items():
        cells = [name]
        if choice.best is None:
            cells += ["—"] * len(axes) + [_missed(answer, name), "—"]
        else:
            close = [_setting(answer, each) for each in choice.close]
            more = f" and {len(close) - MOST} more" if len(close) > MOST else ""
            between = "; " if len(axes) > 1 else ", "
            cells += answer.values(choice.best)
            cells += [describe(answer.estimate(choice.best), answer.unit, answer.share)]
            cells += [between.join(close[:MOST]) + more or "—"]
        rows.append((*cells, *([_against(answer, name)] if several else [])))
    header += ["against the first"] if several else []
    left = (0, *range(1, len(axes) + 1), len(axes) + 2)
    said = _sentence(answer)
    return TextTable(header, rows, title=_title(answer), notes=[said] if said else [], left=left)


def _title(answer: SweepAnswer) -> str:
    competition = answer.competition
    if competition.after is None:
        target = next(each for summary in answer.sweep.summaries for each in targets_in(summary))
        return f"{answer.sweep.scenario}: best by {competition.cost} to {target}"
    return f"{answer.sweep.scenario}: best by {answer.metric} after {_after(answer)}"


def _after(answer: SweepAnswer) -> str:
    return quantity(float(answer.competition.after or 0), UNITS[answer.competition.cost])


def _missed(answer: SweepAnswer, protocol: str) -> str:
    """Show the setting of which most runs reached the target, where none has all."""
    own = [answer.estimate(each) for each in answer.competition.samples if each.protocol == protocol]
    most = max(own, key=lambda found: (found.reached, -found.horizon))
    if most.reached:
        return describe(most, answer.unit)
    return f"> {quantity(min(found.horizon for found in own), answer.unit)}"


def _against(answer: SweepAnswer, protocol: str) -> str:
    place, found = answer.place(protocol), answer.against_first(protocol)
    if place in ("first", "reference"):
        return place
    cell = "—"
    if isinstance(found, Ratio):
        cell = str(found)
    elif isinstance(found, Estimate):
        cell = describe(found, answer.unit, answer.share)
    return cell if place == "behind" else f"{cell}, not told apart"


def _setting(answer: SweepAnswer, candidate: Candidate) -> str:
    """Write a candidate's values: ``5``, or with several keys ``t = 5, up = 5 Mbps``."""
    values = answer.values(candidate)
    if len(values) == 1:
        return values[0]
    names = (axis.name for axis in answer.sweep.axes)
    return ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))


def _named(answer: SweepAnswer, candidate: Candidate) -> str:
    """Name a protocol with its values: ``t-sync with t = 5``; without those that do not matter to it."""
    names = (axis.name for axis in answer.sweep.axes)
    said = [f"{name} = {value}" for name, value in zip(names, answer.values(candidate), strict=True) if value != ANY]
    return candidate.protocol + (f" with {', '.join(said)}" if said else "")


def _sentence(answer: SweepAnswer) -> str:
    overall = answer.overall
    if overall.best is None or len({*answer.choices} - answer.references) < 2:
        return ""
    amount = describe(answer.estimate(overall.best), answer.unit, answer.share)
    if answer.metric:
        level = "highest" if answer.highest else "lowest"
        what = answer.metric.replace("_", " ")
        text = f"After {_after(answer)}, {_named(answer, overall.best)} has the {level} {what}, {amount}"
    else:
        text = f"{_named(answer, overall.best)} reaches the target {_LEAST[answer.competition.cost]}, {amount}"
    others = [each for each in overall.close if each.protocol != overall.best.protocol]
    if not others:
        return f"{text}; every other protocol is clearly behind."
    named = [_named(answer, each) for each in others]
    more = f" and {len(named) - MOST} more" if len(named) > MOST else ""
    return f"{text}; not told apart from it: {', '.join(named[:MOST])}{more}."


def _notes(found: Sequence[SweepAnswer]) -> Iterator[str]:
    if any(ANY in answer.values(each) for answer in found for each in answer.competition.samples):
        yield "“any”: the protocol's runs do not depend on the key."
    yield (
        "Not told apart: paired differences over seeds do not put it behind the best (one-sided t tests, corrected for "
        "their number; the best and these hold the truly best with 95 %). What is censored, failed or diverged is "
        "never the best."
    )
    yield "The best of several is best partly by chance: expect less of it on other seeds."
    ends = {f"{name} ({keys})": None for answer in found for name, keys in answer.at_an_end().items()}
    if ends:
        yield f"At an end of the values, so that others may be better: {', '.join(ends)}."
    if any(len(sample.seeds) < 2 for answer in found for sample in answer.competition.samples.values()):
        yield "One seed tells nothing apart: run more (--seeds 0:5)."
    costs = [answer for answer in found if not answer.metric]
    if costs:
        target = next(each for summary in found[0].sweep.summaries for each in targets_in(summary))
        yield target_note(target)
        yield "Against the first: the cost ÷ that of the first protocol, geometric mean and 95 % interval over seeds."
        ratios = (answer.against_first(name) for answer in costs for name in answer.choices)
        if any(isinstance(each, Ratio) and each.bound != "exact" for each in ratios):
            yield BOUNDED
    after = [answer for answer in found if answer.metric]
    if after:
        which = "of the protocols that reached the target with no value in all runs" if costs else "of all protocols"
        amounts = ", ".join(_after(answer) for answer in after)
        yield (
            f"{amounts}: the most that all runs {which} have spent. Between evaluations a metric keeps its last value. "
            "Against the first: the difference of the metric."
        )
