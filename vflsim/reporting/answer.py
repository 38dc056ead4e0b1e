"""The answer of a study in sentences, and tables that a report alone has: reasons, closed forms, all measures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd

from vflsim.analysis.rounds import numbered
from vflsim.plotting import closed_forms as closed
from vflsim.plotting.style import Numbers, metric_label
from vflsim.results.link_waits import longest_wait
from vflsim.results.read import Results
from vflsim.results.statistics import outcomes
from vflsim.results.statistics.costs import standings
from vflsim.results.statistics.doubts import past_best_note
from vflsim.results.statistics.estimates import Estimate, describe
from vflsim.results.statistics.pairs import ratio
from vflsim.results.statistics.rounds import Rounds, ages_of, pooled_mean
from vflsim.results.tables import costs_to_target
from vflsim.results.tables.footnotes import final_label, round_measure, select, targets_in
from vflsim.results.tables.ranking import Ranking, ranking, within
from vflsim.tables import Cell, DataTable
from vflsim.vocabulary.amounts import Amount, quantity, three_digits
from vflsim.vocabulary.budgets import Budget
from vflsim.vocabulary.metrics import higher_is_better, is_share

_MOST = 0.9
"""Share of waits that the clients named together make up at least."""
_PARTS = 3
"""Most parts of a round that are named."""
_SMALL = 0.01
"""Parts with a smaller share are not named."""


def whereabouts(protocol: str, figures: dict[str, Numbers]) -> str:
    """Say in a sentence where a protocol's rounds spend their time and for whom they wait; empty if unknown."""
    spent, waited = time_spent(protocol, figures), waited_for(protocol, figures)
    texts = [f"spends {spent}"] if spent else []
    texts += [f"waits for {waited}"] if waited else []
    sentences = [f"A round of {protocol} {' and '.join(texts)}."] if texts else []
    return " ".join([*sentences, *link_waited_for(protocol, figures)])


def link_waited_for(protocol: str, figures: dict[str, Numbers]) -> list[str]:
    """Name the link on which a protocol's messages lose most time, and whose they are; nothing if they lose little."""
    if "breakdown" not in figures:
        return []
    lost, parts = (figures["breakdown"][name] for name in ("links", "rounds"))
    lost = lost[lost["protocol"] == protocol]
    waits = lost[["link", "client", "messages", "seconds"]].itertuples(index=False)
    text = longest_wait(waits, parts[parts["protocol"] == protocol]["seconds"].sum())
    return [f"Its {text}."] if text else []


def time_spent(protocol: str, figures: dict[str, Numbers]) -> str:
    """Name the largest parts of a protocol's mean round: ``98 % on upload delay, 1 % on …``; empty if unknown."""
    if "breakdown" not in figures:
        return ""
    parts = figures["breakdown"]["rounds"]
    rows = parts[(parts["protocol"] == protocol) & (parts["share"] >= _SMALL)].sort_values("share", ascending=False)
    shown = zip(rows["part"][:_PARTS], rows["share"][:_PARTS], strict=True)
    return ", ".join(f"{percent(share)} on “{part}”" for part, share in shown)


def mean_round(protocol: str, figures: dict[str, Numbers]) -> Amount | str:
    """Return the length of a protocol's mean round; empty if unknown."""
    if "breakdown" not in figures:
        return ""
    parts = figures["breakdown"]["rounds"]
    rows = parts[parts["protocol"] == protocol]
    return Amount(rows["seconds"].sum(), "s", form="three") if len(rows) else ""


def waited_for(protocol: str, figures: dict[str, Numbers]) -> str:
    """Name the clients that a protocol's rounds wait for: ``clients 5–8 (99 % of rounds)``; empty if unknown."""
    if "waited" not in figures:
        return ""
    shares = figures["waited"]["shares"]
    by_client = shares[(shares["protocol"] == protocol) & (shares["stage"] == "last")].set_index("client")["share"]
    clients = by_client[by_client.index != 0].sort_values(ascending=False)
    if not len(clients):
        return ""
    if clients.sum() <= _SMALL:
        return "nobody"
    most = f"client {clients.index[0]} ({percent(clients.iloc[0])})"
    few = clients[: int((clients.cumsum() < _MOST * clients.sum()).sum()) + 1]
    if len(few) <= max(1, len(clients) // 2):
        named = numbered(sorted(int(name) for name in few.index))
        often = f", most often {most}" if len(few) > 1 else ""
        return f"{named} in {percent(few.sum())} of cases{often}"
    return f"no client in particular, most often {most}"


def percent(share: float) -> str:
    """Format a share: ``98 %``, ``0.4 %``, ``under 0.1 %``, ``over 99 %``."""
    if 0 < share < 0.001:
        return "under 0.1 %"
    if 0.995 <= share < 1 - 1e-9:
        return "over 99 %"
    return f"{100 * share:.0f} %" if share >= 0.095 or share == 0 else f"{100 * share:.1f} %"


ONE_SEED = "All this is one seed: another may order the protocols otherwise."


@final
@dataclass(frozen=True)
class Conclusion:
    """The answer: one sentence first, then others that qualify and explain it."""

    headline: str
    sentences: tuple[str, ...]


def answer(results: Results, summary: pd.DataFrame, figures: dict[str, Numbers]) -> Conclusion:
    """Say which protocol is best, and why; ``figures`` are the numbers of the figures drawn, by name."""
    if all(run.failed for run in results.runs):
        return Conclusion("No run has finished, so there is nothing to compare.", (_failures(results),))
    targets = targets_in(summary)
    sentences = _to_target(results, summary, targets[0]) if targets else []
    if results.evaluated:
        sentences += [text for budget in results.budgets for text in _within(results, budget)]
    sentences += [] if targets else _without_target(results, summary)
    sentences += _why(results, summary, figures, targets[0] if targets else None)
    sentences += [ONE_SEED] if len(results.seeds) == 1 and len(results.protocols) > 1 else []
    sentences += [_failures(results)] if results.failed else []
    return Conclusion(sentences[0], tuple(sentences[1:]))


def _to_target(results: Results, summary: pd.DataFrame, target: str) -> list[str]:
    goal = metric_label(target)
    time = ranking(results, summary, "time_to_target", target)
    if time is None:
        return [f"No protocol reached {goal} in all its runs.", *_missed(results, summary, target, None)]
    first, close = time.best, time.close
    if close:
        names = [first, *close]
        text = f"{joined(names)} reach {goal} first, after {joined([time.text(name) for name in names])}"
        text += " of virtual time; the seeds do not tell them apart."
    else:
        place = "first, " if len(time.estimates) > 1 else ""
        text = f"{first} reaches {goal} {place}after {time.text(first)} of virtual time."
    sentences = [text]
    baseline = results.first
    measured = outcomes(results)
    measured = measured[(measured["measure"] == "time_to_target") & (measured["target"] == target)]
    for name in dict.fromkeys([first, *close]):
        times = ratio(measured, name, baseline) if name != baseline else None
        if times is not None and times.bound != "none":
            bound = {"most": "at most ", "least": "at least "}.get(times.bound, "")
            limit = " (one-sided 95 % limit)" if bound and times.n > 1 else ""
            ends = f"{three_digits(times.low)} to {three_digits(times.high)}"
            interval = f" (95 % interval {ends})" if times.low < times.high else ""
            number = f"{bound}{three_digits(times.mean, times.bound)}"
            if times.bound == "between":
                number, interval = ends, ""
            sentences.append(f"{name} is {number} times as fast as {baseline}{interval or limit}.")
    for cost, what in (("rounds", "Fewest rounds"), ("bytes", "Fewest bytes"), ("energy", "Least energy")):
        if (ranks := ranking(results, summary, f"{cost}_to_target", target)) is not None:
            sentences.append(_first(f"{what}: {ranks.best} with", ranks, "more"))
    return sentences + _missed(results, summary, target, time)


def _missed(results: Results, summary: pd.DataFrame, target: str, time: Ranking | None) -> list[str]:
    """Name the protocols with runs that did not reach the target, with the bounds of their costs."""
    rows = select(summary, "time_to_target", target)
    sentences = []
    for _, row in rows[rows["baseline"].isna() & (rows["reached"] < rows["n"])].iterrows():
        estimate, name, end = Estimate.of(row), row["protocol"], quantity(row["horizon"], "s")
        if estimate.reached:
            text = f"{name} reached it in only {estimate.reached} of {estimate.n} runs, so its costs have no mean"
        else:
            text = f"{name} did not reach it in any of {estimate.n} runs; if it ever does, then after {end} or more"
        if time is not None and estimate.horizon < time.estimates[time.best].mean:
            text += f"; its shortest run ended before {time.best} reached it, so longer runs could change the order"
        sentences.append(f"{text}.")
    return sentences


def _without_target(results: Results, summary: pd.DataFrame) -> list[str]:
    sentences = []
    if results.evaluated:
        metric = results.main_metric
        highest = higher_is_better(metric, results.own_metrics)
        ranks = ranking(results, summary, f"plateau_{metric}", highest=highest)
        if ranks is not None:
            sentences.append(_highest(f"{ranks.best} ends with", results, ranks, final_label(metric)))
            sentences += past_best_note(results)
    ranks = ranking(results, summary, round_measure(summary))
    if ranks is not None:
        head = "has the shortest rounds:" if len(ranks.order) > 1 else "has rounds of"
        sentences.append(_first(f"{ranks.best} {head}", ranks, "longer", " on average"))
        baseline = results.first
        if baseline in ranks.order and baseline != ranks.best and ranks.estimates[ranks.best].mean > 0:
            times = ranks.estimates[baseline].mean / ranks.estimates[ranks.best].mean
            sentences.append(
                f"A round of {baseline} lasts {ranks.text(baseline)}, {three_digits(times)} times as long."
            )
    if sentences and all(run.info.timing_only for run in results.runs):
        sentences.append("Nothing was trained: rounds that are shorter, with fewer clients say, need not train faster.")
    return sentences or ["Runs have finished, but they recorded neither metrics nor rounds to compare."]


def _first(text: str, ranks: Ranking, but: str, after: str = "", share: bool = False) -> str:
    """End a sentence with the value of the first protocol, and the protocols that are not clearly more than it."""
    rest = joined([f"{name} ({ranks.text(name, share)})" for name in ranks.close])
    return f"{text} {ranks.text(ranks.best, share)}{after}" + (f"; not clearly {but}: {rest}." if rest else ".")


def _highest(text: str, results: Results, ranks: Ranking, what: str) -> str:
    """End a sentence with the best level of the main metric."""
    metric, facts = results.main_metric, results.own_metrics
    level = "highest" if higher_is_better(metric, facts) else "lowest"
    head = f"the {level} {what}" if len(ranks.order) > 1 else f"a {what} of"
    return _first(f"{text} {head}", ranks, "behind", share=is_share(metric, facts))


def _within(results: Results, budget: Budget) -> list[str]:
    """Say which protocol is best when so much had been spent, and whose runs had ended before."""
    metric = results.main_metric
    stood = standings(results, budget, metric)
    ranks = within(results, metric, stood)
    if ranks is None:
        return [f"Within {budget}, no protocol has an evaluation in all its runs."]
    sentences = [_highest(f"Within {budget}, {ranks.best} has", results, ranks, metric.replace("_", " "))]
    if ended := [name for name in ranks.order if stood.loc[stood["protocol"] == name, "ended"].any()]:
        sentences.append(f"Runs of {joined(ended)} had ended before {budget}; their last values count.")
    return sentences


def _why(results: Results, summary: pd.DataFrame, figures: dict[str, Numbers], target: str | None) -> list[str]:
    """Explain the fastest protocol against the one that waits for all."""
    baseline = results.first
    time = ranking(results, summary, "time_to_target", target) if target else None
    lasted = ranking(results, summary, round_measure(summary))
    if lasted is None:
        return []
    first = time.best if time is not None else lasted.best
    names = [name for name in dict.fromkeys([baseline, first]) if name in lasted.estimates]
    sentences = []
    if target is not None and len(names) == 2:
        rounds = ranking(results, summary, "rounds_to_target", target)
        if rounds is not None and {*names} <= {*rounds.order}:
            needs = [f"{name} needs {rounds.text(name)} rounds of {lasted.text(name)}" for name in reversed(names)]
            sentences.append(f"{needs[0]}, {needs[1]}.")
    return sentences + [text for name in names if (text := whereabouts(name, figures))]


def _failures(results: Results) -> str:
    lost = [f"{run.protocol} with seed {run.seed}" for run in results.failed]
    return f"{len(lost)} of {len(results.runs)} runs failed and are left out: {joined(lost)}."


def joined(words: Sequence[str]) -> str:
    """Join words as in a sentence: ``a, b and c``."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


LEVELS = (0.5, 0.9, 0.99)


def reasons(results: Results, figures: dict[str, Numbers]) -> DataTable | None:
    """Make the table of why protocols differ: rounds to the target × the mean round, and where that one's time goes."""
    rounds = next((cells for head, cells in costs_to_target(results).items() if head.startswith("rounds")), {})
    rows: list[tuple[Cell, ...]] = []
    for name in results.protocols:
        row = (mean_round(name, figures), time_spent(name, figures).replace(" on ", " "), waited_for(name, figures))
        if any(row):
            rows.append((name, *([rounds[name]] if rounds else []), *(cell or "—" for cell in row)))
    if not rows:
        return None
    header = ("protocol", *(["rounds to the target"] if rounds else []), "mean round")
    notes = (
        "A round lasts from one server step to the next; its time is followed back along its critical path, from the "
        "message that let the step begin. All seeds together.",
    )
    left = (0, len(header), len(header) + 1)
    return DataTable((*header, "where its time goes", "it waits for"), rows, "Why", notes, left)


def closed_forms(results: Results) -> DataTable | None:
    """Compare round durations with their closed forms; None if there are none."""
    rows: list[tuple[Cell, ...]] = []
    for name in results.protocols:
        curve = closed.round_duration(results, name)
        runs = [run for run in results.runs if run.protocol == name and not run.failed and run.has("rounds")]
        seconds = np.concatenate([np.empty(0), *(run.round_durations()[1:] for run in runs)])
        ages = ages_of([Rounds.of(run) for run in runs])
        if curve is None or not len(seconds):
            continue
        known = [_bounds(curve.means())]
        known += [_bounds(_quantile(curve.x, cdf, level) for cdf in curve.sides()) for level in LEVELS]
        seen = [_bounds([each]) for each in (pooled_mean(seconds, ages), *np.quantile(seconds, LEVELS).tolist())]
        rows.append((name, *(cell for pair in zip(known, seen, strict=True) for cell in pair), len(seconds)))
    if not rows:
        return None
    numbers = ("mean", *(f"{100 * level:g} % last at most" for level in LEVELS))
    header = (*(f"{name}, {how}" for name in numbers for how in ("closed form", "simulated")), "rounds simulated")
    notes = (
        "Durations of all seeds’ rounds together, without each run’s first.",
        "“a … b” are bounds, where the distribution itself is not known.",
    )
    return DataTable(("protocol", *header), rows, "Closed forms beside the simulation", notes)


def left_out(results: Results) -> DataTable | None:
    """List the closed forms that do not exist, with reasons."""
    frame = results.closed_forms_left_out
    names = ("protocol", "quantity", "reason")
    rows = [tuple(row[name] for name in names) for row in frame.to_dict("records")]
    return DataTable(names, rows, "No closed form", left=(0, 1, 2)) if rows else None


def measures(results: Results, summary: pd.DataFrame) -> DataTable | None:
    """Make the table of everything measured, a row for each measure and a column for each protocol."""
    means = summary[summary["baseline"].isna()]
    rows = []
    for (measure, target), group in means.fillna({"target": ""}).groupby(["measure", "target"], sort=False):
        named = {row["protocol"]: row for _, row in group.iterrows()}
        share = is_share(str(measure).partition("_")[2], results.own_metrics)
        cells = [
            describe(Estimate.of(named[name]), named[name]["unit"], share) if name in named else "—"
            for name in results.protocols
        ]
        rows.append((_words(str(measure), str(target)), *cells))
    return DataTable(("measure", *results.protocols), rows, "All measures") if rows else None


def _words(measure: str, target: str) -> str:
    """Format a measure: ``end_test_accuracy`` -> ``test accuracy at the end``."""
    first, _, rest = measure.partition("_")
    named = {"end": "at the end", "plateau": "mean over the last tenth", "best": "at its best"}
    if first in named and rest:
        return f"{rest.replace('_', ' ')}, {named[first]}"
    words = "virtual time at the end" if measure == "end" else measure.replace("_", " ")
    return words.replace("to target", f"to {target.replace('_', ' ')}") if target else words


def _quantile(x: np.ndarray, cdf: np.ndarray, level: float) -> float:
    return float(x[min(int(np.searchsorted(cdf, level)), len(x) - 1)])


def _bounds(values: Iterable[float]) -> Amount:
    """Return seconds that are known, or their bounds, with three digits."""
    known = sorted({*values})
    if len({f"{each:.3g}" for each in known}) == 1:
        return Amount(known[0], "s", form="three")
    return Amount(unit="s", low=known[0], high=known[-1], form=".3g")
