"""The tables of ``summary.md`` below the comparison: energy, answers, steady state, pairs of rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from vflsim.results.statistics.answers import answer_means, answer_metric, answered
from vflsim.results.statistics.rounds import round_pairs, steady_rounds
from vflsim.results.store.schema import SERVER
from vflsim.tables import Cell, DataTable
from vflsim.vocabulary.amounts import Amount, quantity, share as shared
from vflsim.vocabulary.metrics import facts_of, is_share

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet

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
