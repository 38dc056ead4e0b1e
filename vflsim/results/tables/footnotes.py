"""Notes below a comparison: what its columns mean and what they leave out."""

from collections.abc import Iterable, Iterator
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsim.intervals import lacking
from vflsim.results.run_set import RunSet
from vflsim.results.statistics import STEADY
from vflsim.results.statistics.doubts import heavy_tail_notes, near_plateau_note, past_best_note
from vflsim.results.statistics.estimates import GEOMETRIC, resolution_note, sampling_note
from vflsim.results.statistics.rounds import open_notes, within
from vflsim.results.store.pages import cautions
from vflsim.results.store.run import improper_metrics
from vflsim.results.tables.sections import answered
from vflsim.vocabulary.targets import target_note

MEANS = "Means over seeds ± 95 % Student-t intervals; “a (b … c)”: mean and interval, where its sides differ."
"""Note below a table with means over seeds."""
ONE_SEED = "One seed cannot order protocols: another may order them otherwise."
"""Note below a table of trained models with one seed."""
AT_LEAST = (
    "“k of n: a, > x”: k of n runs reached it, and a is their median (from six runs on with its 95 % interval); the "
    "others could have reached it at x or later: at their end, or after the evaluation before a stretch that was still "
    "open. No mean is computed."
)
"""Note below a table with censored costs."""
BOUNDED = (
    "“< a … b ×”, “> a … b ×”: some runs did not reach the target, or at their first evaluation, so that the ratio of "
    "each seed is a bound; their geometric mean lies between a and b (90 %), so the ratio is below b, or above a "
    "(one-sided 95 % limits). Undetermined: there is neither."
)
"""Note below a table with ratios of censored costs."""
_MEND = "mend the metric, or the range (least, most) and the exceptions (undefined) of its class"


def round_measure(summary: pd.DataFrame) -> str:
    """Choose the measure of the mean round: for single runs the one whose interval comes from within the run."""
    single = (select(summary, STEADY, None)["n"] <= 1).all()
    return STEADY if single else "round_duration"


def notes(
    results: RunSet, summary: pd.DataFrame, measured: pd.DataFrame, differ: bool, pairing: bool = False
) -> Iterator[str]:
    """Yield the notes below the main table, which is made from the summary and what was ``measured`` of each run.

    ``differ``: whether it compares with a baseline; ``pairing``: whether it has the gain from pairing.
    """
    if len(results.seeds) == 1 and len(results.protocols) > 1 and results.evaluated:
        yield ONE_SEED
    if (summary["n"] > 1).any():
        yield from about_means([summary])
        yield from heavy_tail_notes([(results, summary)], means=not targets_in(summary), differences=pairing)
        if results.evaluated:
            plateau = select(summary, f"plateau_{results.main_metric}", None)
            yield from sampling_note(results, results.main_metric, plateau.loc[plateau["baseline"].isna(), "mean"])
    yield from _about_targets(results, summary, measured)
    if results.evaluated and chosen_rows(summary, f"plateau_{results.main_metric}", None).any():
        head = final_label(results.main_metric).capitalize()
        yield f"{head}: mean over the last tenth of a run's evaluations; a run that a target ended has none."
        yield from past_best_note(results)
    steady = select(summary, STEADY, None)
    if len(steady) and round_measure(summary) == STEADY:
        yield "Mean round: of a single run after its warm-up, ± 95 % by batch means."
        for name in steady.loc[steady["baseline"].isna() & steady["low"].isna(), "protocol"]:
            alone = next(run for run in results.runs if run.protocol == name and not run.failed)
            mean = within(alone)
            why = lacking(alone.info.variation, mean.n, mean.seconds)
            yield f"{name}: no interval: {why or 'too few rounds, not settled yet, or correlated batches'}."
    targets, first = targets_in(summary), results.first
    if len(steady) and not targets:
        yield from open_notes(results)
    but = " (exceptions below)" if any(results.unpaired(name, first) for name in results.protocols) else ""
    if differ and targets and (summary["n"] > 1).any():
        yield f"Speed-up: time of {first} ÷ time, paired over seeds{but}: geometric mean and 95 % interval."
        costs = select(summary, "time_to_target", targets[0])
        if (costs["reached"] < costs["n"]).any() or (costs["least"] == 0).any():
            yield BOUNDED
    if differ and (pairing or not targets):
        single = ", of mean rounds round by round where rounds correspond" if round_measure(summary) == STEADY else ""
        yield f"“vs {first}”: mean of paired differences over common seeds{single}{but}."
    if differ and pairing and summary["narrower"].notna().any():
        yield "“× narrower”: than the interval that two independent sets of runs would give."
    if differ:
        yield from results.remarks()
    if answered(results):
        yield "Trained servers answered queries under deadlines: summary.md has their table, --kind answers the figure."
    yield from _privacy(results)
    for run in results.runs:
        for caution in cautions(run.info):
            yield f"{run.protocol}, seed {run.seed}: {caution}."
    yield from improper_notes(results)
    for run in results.failed:
        what = "Diverged (target not reached); left out of all other means" if run.diverged else "Failed and left out"
        yield f"{what}: {run.protocol}, seed {run.seed}: {(run.info.error or '?').splitlines()[0]}"


def improper_notes(results: RunSet) -> Iterator[str]:
    """Yield a sentence for each impossible metric of a finished run. The run stays; its metrics' table has the values.

    Raises ResultsError if a table is damaged.
    """
    for run in results.runs:
        if not (run.failed or run.info.timing_only):
            for problem in improper_metrics(run.frame("metrics"), run.info):
                yield f"{run.protocol}, seed {run.seed}: {problem}; {_MEND}"


def about_means(summaries: Iterable[pd.DataFrame]) -> Iterator[str]:
    """Yield what the means of tables and their intervals are."""
    yield MEANS
    costs = {
        kind for each in summaries for kind in each.loc[each["target"].notna() & each["baseline"].isna(), "statistic"]
    }
    if costs == {GEOMETRIC}:
        yield (
            "Costs to the target: geometric means, whose ratios are the speed-ups; intervals of the logarithms, and of "
            "the time between evaluations."
        )
    elif GEOMETRIC in costs:
        yield "Costs to the target: geometric means, but arithmetic ones in a column where a cost is 0."


def _about_targets(results: RunSet, summary: pd.DataFrame, measured: pd.DataFrame) -> Iterator[str]:
    """Explain when the target is reached, or why it was not measured."""
    if targets := targets_in(summary):
        yield target_note(targets[0])
        if (summary["reached"] < summary["n"]).any():
            yield AT_LEAST
        for each in results.targets:
            if str(each) in targets:
                yield from resolution_note(results, summary, each, measured)
                yield from near_plateau_note(results, each)
    elif declared := results.targets:
        if all(run.failed for run in results.runs):
            yield f"No run finished: nothing is known about the target {declared[0]}."
        else:
            yield f"Target {declared[0]} was not evaluated in these runs."


def _privacy(results: RunSet) -> Iterator[str]:
    """State the guarantees of mechanisms, for the run that released samples most often, and of latent noise."""
    for name in results.protocols:
        facts = [run.info.privacy for run in results.runs if run.protocol == name and run.info.privacy is not None]
        if facts:
            yield f"{name}: {max(facts, key=attrgetter('releases', 'rows_released')).sentence()}"
        codecs = [run.info.codec for run in results.runs if run.protocol == name and run.info.codec is not None]
        if promise := max((codec.promise for codec in codecs), default=""):
            yield f"{name}: {promise}."


def lost_runs(results: RunSet, protocol: str) -> str:
    """Count a protocol's runs without an end: `` (1 diverged, 2 failed)``; empty for none."""
    failed = [run for run in results.failed if run.protocol == protocol]
    diverged = sum(run.diverged for run in failed)
    counts = {"diverged": diverged, "failed": len(failed) - diverged}
    lost = [f"{number} {what}" for what, number in counts.items() if number]
    return f" ({', '.join(lost)})" if lost else ""


def targets_in(summary: pd.DataFrame) -> list[str]:
    """List the targets in a summary, in order."""
    return list(summary["target"].dropna().unique())


def select(summary: pd.DataFrame, measure: str, target: str | None) -> pd.DataFrame:
    """Select the rows of a summary for a measure and a target (None: rows without a target)."""
    return summary[chosen_rows(summary, measure, target)]


def chosen_rows(summary: pd.DataFrame, measure: str, target: str | None) -> npt.NDArray[np.bool_]:
    """Say of each row of a summary whether it is for a measure and a target (None: without a target), (rows,)."""
    # As objects: comparing pandas' strings costs more than all else that a small summary needs.
    measures, targets = (summary[name].to_numpy(object) for name in ("measure", "target"))
    chosen: npt.NDArray[np.bool_] = (measures == measure) & (pd.isna(targets) if target is None else targets == target)
    return chosen


def final_label(metric: str) -> str:
    """Return the head of a column with a metric's plateau: ``final accuracy``, ``final validation accuracy``."""
    return f"final {metric.removeprefix('test_').replace('_', ' ')}"
