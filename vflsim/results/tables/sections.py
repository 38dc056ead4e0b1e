"""The tables of ``summary.md`` below the comparison: conditions, energy, answers, steady state, pairs of rounds."""

import math
from collections.abc import Iterator

import pandas as pd

from vflsim.errors import ResultsError
from vflsim.intervals import t_interval
from vflsim.results.facts import conditions_table
from vflsim.results.run_set import RunSet
from vflsim.results.statistics.rounds import round_pairs, steady_rounds
from vflsim.results.store.schema import SERVER
from vflsim.tables import Cell, DataTable
from vflsim.vocabulary.amounts import Amount, quantity, share as shared
from vflsim.vocabulary.metrics import column_of, facts_of, is_share

ENERGY_TITLE = "Energy by party"
_STATES = ("idle", "compute", "radio")
_ENERGY_NOTE = (
    "Means over finished runs, to their ends. Radio: with upload delays. Bytes are the radio's, operations compute's."
)


def energy_table(results: RunSet, each: bool = False) -> DataTable | None:
    """Tabulate the mean energy of a run, in J: a row for the server and one for all clients, or for ``each`` party.

    None where no party of a finished run says what it draws.
    """
    frame = results.energy
    failed = [(run.protocol, run.seed) for run in results.failed]
    frame = frame[[run not in failed for run in zip(frame["protocol"], frame["seed"], strict=True)]]
    if frame.empty:
        return None
    who = frame["party"] if each else frame["party"].where(frame["party"] == SERVER, "clients")
    sums = frame.groupby([frame["protocol"], frame["seed"], who, frame["state"]], sort=False)["joules"].sum()
    means = sums.groupby(["protocol", "party", "state"], sort=False).mean().unstack("state")[[*_STATES]]
    rows: list[tuple[Cell, ...]] = [
        (str(protocol), str(party), *(quantity(float(joules), "J") for joules in (*energies, energies.sum())))
        for (protocol, party), energies in zip(means.index, means.to_numpy(), strict=True)
    ]
    return DataTable(
        ("protocol", "party", *_STATES, "all"), rows, title=ENERGY_TITLE, notes=[_ENERGY_NOTE], left=(0, 1)
    )


ANSWERS_TITLE = "Answers under deadlines"
_NOTES = (
    "The server of the trained models predicts test rows at the deadline, or sooner if the embeddings of all clients "
    "have come. Means over queries, then over seeds ± 95 % Student-t intervals.",
    "Whole: the share of answers from the embeddings of all clients.",
)


def answers_table(results: RunSet) -> DataTable | None:
    """Tabulate the answers of a study's protocols, a row for each deadline; None where no run answered."""
    if not answered(results):
        return None
    metric, means = answer_metric(results), answer_means(results)
    share, unit = is_share(metric.partition("_")[2], results.own_metrics), facts_of(metric, results.own_metrics).unit
    rows = []
    for name in results.protocols:
        for row in means[means["protocol"] == name].to_dict("records"):
            mean, low, high = row["mean"], row["low"], row["high"]
            value = shared(mean, low, high) if share else quantity(mean, unit, max(mean - low, high - mean))
            waits: Cell = "none" if math.isinf(row["deadline_s"]) else quantity(row["deadline_s"], "s")
            after, whole = Amount(row["answer_s"], "s", form="three"), Amount(row["complete"], "%", form=".0f")
            rows.append((name, waits, after, whole, value))
    header = ("protocol", "deadline", "answer after", "whole", metric.replace("_", " "))
    return DataTable(header, rows, title=ANSWERS_TITLE, notes=_NOTES)


_STEADY = ("protocol", "runs", "with a sound interval", "warm-up [rounds]", "lag-1 correlation of batches")
_PAIRS = ("protocols", "seeds", "correlation", "narrower by")


def round_tables(results: RunSet) -> Iterator[DataTable]:
    """Tabulate rounds within runs, and runs paired round by round; nothing if no rounds were kept."""
    alone, pairs = steady_rounds(results), round_pairs(results)
    rows: list[tuple[Cell, ...]] = []
    for name, group in alone.groupby("protocol", sort=False) if len(alone) else ():
        sound = group["settled"] & ~group["correlated"] & group["enough"] & group["low"].notna()
        rows.append((str(name), len(group), int(sound.sum()), _range(group["warm_up"]), _range(group["lag1"])))
    if rows:
        yield DataTable(_STEADY, rows, "Rounds within runs", ["Warm-up by MSER-5, intervals by batch means."])
    rows = []
    for pair, group in pairs[pairs["low"].notna()].groupby(["protocol", "baseline"], sort=False):
        rows.append((" − ".join(map(str, pair)), len(group), _range(group["correlation"]), _range(group["narrower"])))
    if rows:
        yield DataTable(_PAIRS, rows, "Round by round", ["Within runs with the same seed, after the warm-up."])


def _range(values: pd.Series) -> str:
    """Format the smallest and the largest value: ``0.12 … 0.3``."""
    known = values.dropna()
    if known.empty:
        return "—"
    ends = (f"{end:.2g}" if abs(end) < 10 else f"{end:.0f}" for end in (known.min(), known.max()))
    return " … ".join(dict.fromkeys(ends)).replace("-", "−")


def conditions_of_results(results: RunSet) -> DataTable | None:
    """Tabulate the conditions of a study's protocols; None where no run trained."""
    known = {run.protocol: run.info.conditions for run in results.runs if run.info.conditions is not None}
    ordered = {name: known[name] for name in results.protocols if name in known}
    return conditions_table(ordered) if ordered else None


def answer_metric(results: RunSet, metric: str | None = None) -> str:
    """Return the column of ``results.answers`` to compare: ``metric``, or the main one as far as answers have it.

    Raises NotRecordedError if no run answered under deadlines, ResultsError for a metric that answers do not have.
    """
    have = [name for name in results.answers.columns if name.startswith("test_")]
    main = f"test_{column_of(results.main_metric).partition('_')[2]}"
    chosen = metric or next(name for name in (main, *have) if name in have)
    if chosen not in have:
        raise ResultsError(f"answers under deadlines have no {chosen!r}", str(results.folder), ", ".join(have))
    return chosen


def answer_means(results: RunSet, metric: str | None = None) -> pd.DataFrame:
    """Average the answers of finished runs over seeds, for each protocol and deadline (infinite: waits for all).

    Columns: protocol, deadline_s, answer_s (the mean time of an answer), complete and embeddings (means), and mean, low
    and high of the metric, with a Student-t interval of 95 % within the metric's bounds (NaN for one seed), n. Raises
    as ``answer_metric`` does.
    """
    chosen = answer_metric(results, metric)
    least, greatest = facts_of(chosen, results.own_metrics).span
    failed, rows = {(run.protocol, run.seed) for run in results.failed}, []
    frame = results.answers
    frame = frame[[key not in failed for key in zip(frame["protocol"], frame["seed"], strict=True)]]
    for (protocol, deadline), group in frame.groupby(["protocol", "deadline_s"], sort=True, observed=True):
        interval = t_interval(group[chosen].to_numpy())
        low, high = max(interval.low, least), min(interval.high, greatest)
        means = (group[name].mean() for name in ("answer_s_mean", "complete", "embeddings_mean"))
        rows.append((protocol, deadline, *means, interval.mean, low, high, interval.n))
    columns = ["protocol", "deadline_s", "answer_s", "complete", "embeddings", "mean", "low", "high", "n"]
    return pd.DataFrame(rows, columns=columns)


def answered(results: RunSet) -> bool:
    """Return whether some finished run answered under deadlines."""
    return any(run.has("answers") for run in results.runs if not run.failed)
