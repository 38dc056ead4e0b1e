"""The numbers of figures once more, from the Parquet files of metrics and rounds: row by row, in plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from scipy import stats

from vflsim.results import Results
from vflsim.results.sweeps import Sweep

TARGETS = ("time_s", "round", "bytes", "energy_j")


def table(run, name: str) -> list[dict[str, Any]]:
    return pq.read_table(run.folder / f"{name}.parquet").to_pylist()


def runs(results: Results, *tables: str) -> dict[str, list]:
    found = defaultdict(list)
    for run in results.runs:
        if all((run.folder / f"{name}.parquet").is_file() for name in tables):
            found[run.protocol].append(run)
    return found


def interval(
    values: list[float], least: float = 0, greatest: float = np.inf, confidence: float = 0.95
) -> tuple[float, float]:
    if len(values) < 2:
        return np.nan, np.nan
    if min(values) == max(values):
        return values[0], values[0]
    low, high = stats.t.interval(confidence, len(values) - 1, np.mean(values), stats.sem(values))
    return max(low, least), min(high, greatest)


# --- answers under deadlines ----------------------------------------------------------------------------------------


def answers(results: Results, metric: str = "test_accuracy") -> dict[str, pd.DataFrame]:
    means, seeds = [], []
    for protocol, own in runs(results, "answers").items():
        rows = [(run.seed, row) for run in own for row in table(run, "answers")]
        seeds += [(protocol, seed, row["deadline_s"], row["answer_s_mean"], row[metric]) for seed, row in rows]
        for deadline in sorted({row["deadline_s"] for _, row in rows}):
            alike = [row for _, row in rows if row["deadline_s"] == deadline]
            firsts = [
                np.mean([row[name] for row in alike]) for name in ("answer_s_mean", "complete", "embeddings_mean")
            ]
            values = [row[metric] for row in alike]
            means.append((protocol, deadline, *firsts, np.mean(values), *interval(values, 0, 1), len(values)))
    columns = ["protocol", "deadline_s", "answer_s", "complete", "embeddings", "mean", "low", "high", "n"]
    return {
        "means": pd.DataFrame(means, columns=columns),
        "seeds": pd.DataFrame(seeds, columns=["protocol", "seed", "deadline_s", "answer_s_mean", metric]),
    }


# --- metrics ------------------------------------------------------------------------------------------------------


def evaluations(run, column: str, metric: str) -> list[tuple[float, float]]:
    rows = [row | {"bytes": row["bytes_up"] + row["bytes_down"] + row["bytes_peer"]} for row in table(run, "metrics")]
    return [(float(row[column]), row[metric]) for row in rows if row[metric] is not None and not np.isnan(row[metric])]


def curves(column: str, results: Results, metric: str = "test_accuracy") -> dict[str, pd.DataFrame]:
    means, seeds, references = [], [], []
    for protocol, own in runs(results).items():
        if (
            column in ("time_s", "bytes", "energy_j") and protocol == "reference"
        ):  # its plateau: the last of a few evaluations
            references.append((protocol, np.mean([evaluations(run, column, metric)[-1][1] for run in own])))
            continue
        if column == "epsilon" and column not in table(own[0], "metrics")[0]:
            continue  # no mechanism
        points = [evaluations(run, column, metric) for run in own]
        seeds += [(protocol, run.seed, *point) for run, each in zip(own, points, strict=True) for point in each]
        common = min(each[-1][0] for each in points)
        for x in sorted({x for each in points for x, _ in each if x <= common}):
            values = [[y for at, y in each if at <= x][-1] for each in points]
            limits = (
                interval(values, 0, 1 if "accuracy" in metric else np.inf) if len(values) >= 3 else (np.nan, np.nan)
            )
            means.append((protocol, x, np.mean(values), *limits))
    drawn = {
        "means": pd.DataFrame(means, columns=["protocol", column, "mean", "low", "high"]),
        "seeds": pd.DataFrame(seeds, columns=["protocol", "seed", column, metric]),
    }
    return drawn | ({"references": pd.DataFrame(references, columns=["protocol", "mean"])} if references else {})


def spent(run, target: float) -> tuple[dict[str, float], dict[str, float], bool]:
    """What a run had spent at the evaluation before it met the target and at that one, or in the end; and if it did
    not.
    """
    rows = [row | {"bytes": row["bytes_up"] + row["bytes_down"] + row["bytes_peer"]} for row in table(run, "metrics")]
    there = [row for row in rows if row["test_accuracy"] is not None and row["test_accuracy"] >= target]
    row = there[0] if there else rows[-1]
    before = rows[max(rows.index(row) - 1, 0)] if there else row
    if before["updates"] == row["updates"]:
        before = before | {"round": min(before["round"] + 1, row["round"])}
    return *({name: float(each[name]) for name in TARGETS} for each in (before, row)), not there


def target(results: Results, at_least: float) -> dict[str, pd.DataFrame]:
    costs, seeds = [], []
    for measure, column, unit in zip(
        [f"{cost}_to_target" for cost in ("time", "rounds", "bytes", "energy")],
        TARGETS,
        ("s", "", "B", "J"),
        strict=True,
    ):
        everything = [[spent(run, at_least)[1][column] for run in own] for own in runs(results).values()]
        for protocol, own in runs(results).items():
            found = [spent(run, at_least) for run in own]
            lower, values = ([each[end][column] for each in found] for end in (0, 1))
            late = [censored for *_, censored in found]
            seeds += [(measure, protocol, run.seed, *each) for run, *each in zip(own, values, lower, late, strict=True)]
            costs.append(
                (
                    measure,
                    protocol,
                    unit,
                    *cost(values, lower, any(late), all(min(own) > 0 or max(own) == 0 for own in everything)),
                    len(own),
                    len(own) - sum(late),
                )
            )
    names = ["measure", "protocol", "unit", "shown", "low", "high", "n", "reached"]
    return {
        "costs": pd.DataFrame(costs, columns=names),
        "seeds": pd.DataFrame(seeds, columns=["measure", "protocol", "seed", "value", "lower", "censored"]),
    }


def cost(values: list[float], lower: list[float], late: bool, geometric: bool) -> tuple[float, float, float]:
    """The mean (geometric, unless a cost is 0) with its interval; if some run is late, its one-sided limit alone.

    The interval begins with that of the lower ends; of one run it is its two ends, where they are far apart.
    """
    mean, _, high = mean_with(values, geometric)
    least, low, _ = mean_with(lower, geometric, 0.9 if late else 0.95)
    if late:
        return (least if len(values) == 1 else max(low, 0.0)), np.nan, np.nan
    if len(values) == 1 and mean - least > 0.1 * mean:
        return mean, least, mean
    return mean, max(low, 0.0), high


def mean_with(values: list[float], geometric: bool, confidence: float = 0.95) -> tuple[float, float, float]:
    if not geometric or max(values) == min(values):
        return float(np.mean(values)), *interval(values, -np.inf, confidence=confidence)
    if min(values) == 0:
        return 0.0, *([np.nan] * 2 if len(values) == 1 else [0.0] * 2)
    logs = np.log(values)
    return np.exp(np.mean(logs)), *np.exp(interval(logs, -np.inf, confidence=confidence))


def mean_of(values: list[float]) -> tuple[float, float, float]:
    return float(np.mean(values)), *interval(values)


def time_to(run, target: float) -> tuple[float, float, bool]:
    before, found, late = spent(run, target)
    return before["time_s"], found["time_s"], late


def speedup(results: Results, at_least: float, baseline: str = "wait") -> dict[str, pd.DataFrame]:
    rows = []
    for title, measured in {
        "mean round": lambda run: (np.mean(lasted(run)), np.mean(lasted(run)), False),
        f"time to test accuracy ≥ {at_least:g}": lambda run: time_to(run, at_least),
    }.items():
        found = {name: [measured(run) for run in own] for name, own in runs(results).items()}
        for name in (name for name in found if name not in (baseline, "reference")):
            both = [(a, b) for a, b in zip(found[name], found[baseline], strict=True) if a[1] > 0 and b[1] > 0]
            if not both:
                continue
            least = not any(a[2] for a, _ in both) and all(b[0] > 0 for _, b in both)
            most = not any(b[2] for _, b in both) and all(a[0] > 0 for a, _ in both)
            shown, limits = np.exp(np.mean([np.log(b[1] / a[1]) for a, b in both])), (np.nan, np.nan)
            lows = [np.log(b[0] / a[1]) for a, b in both] if least else []
            highs = [np.log(b[1] / a[0]) for a, b in both] if most else []
            bound = {(True, True): "exact", (False, True): "most", (True, False): "least", (False, False): "none"}
            if least and most:
                limits = np.exp([interval(lows, -np.inf)[0], interval(highs, -np.inf)[1]])
                apart = np.exp(np.mean(lows)) < 0.8 * np.exp(np.mean(highs))
                bound[True, True] = "between" if apart else "exact"
            elif least or most:
                shown = np.exp(interval(lows or highs, -np.inf, confidence=0.9)[0 if least else 1])
            rows.append((title, name, shown, *limits, len(both), bound[least, most]))
    return {"ratios": pd.DataFrame(rows, columns=["measure", "protocol", "mean", "low", "high", "n", "bound"])}


# --- rounds -------------------------------------------------------------------------------------------------------


def lasted(run) -> list[float]:
    return [row["end_s"] - row["start_s"] for row in table(run, "rounds")]


def durations(results: Results, longer: bool = False) -> dict[str, pd.DataFrame]:
    rows, means = [], []
    for protocol, own in runs(results, "rounds").items():
        seconds = sorted(each for run in own for each in lasted(run))
        if longer and seconds[-1] == 0:
            continue
        means.append((protocol, len(seconds), np.mean(seconds)))
        for rank, each in enumerate(seconds):
            rows.append((protocol, each, (len(seconds) - rank if longer else rank + 1) / len(seconds)))
    found = {
        "durations": pd.DataFrame(rows, columns=["protocol", "seconds", "share"]),
        "means": pd.DataFrame(means, columns=["protocol", "rounds", "mean_s"]),
        "closed_form": closed_forms(results, [name for name, _, _ in means]),
    }
    return found if longer else found | {"histogram": pd.DataFrame({"protocol": []})}


def closed_forms(results: Results, protocols: Iterable[str]) -> pd.DataFrame:
    path = results.folder / "closed_forms.parquet"
    points = pq.read_table(path).to_pylist() if path.is_file() else []
    rows = [
        (protocol, point["x"], point["cdf"], point["cdf_upper"])
        for protocol in protocols
        for point in points
        if (point["protocol"], point["quantity"]) == (protocol, "round_duration")
    ]
    return (
        pd.DataFrame(rows, columns=["protocol", "seconds", "lower", "upper"])
        if rows
        else pd.DataFrame({"protocol": []})
    )


def staleness(results: Results) -> dict[str, pd.DataFrame]:
    rows, means = [], []
    for protocol, own in runs(results, "rounds").items():
        ages: Counter[int] = Counter()
        for run in own:
            heard = dict.fromkeys(run.info.participants, -1)
            for step, row in enumerate(table(run, "rounds")):
                heard |= dict.fromkeys(row["fresh"], step)
                ages.update(step - last for last in heard.values())
        count = sum(ages.values())
        rows += [(protocol, age, ages[age] / count) for age in range(max(ages) + 1)]
        means.append((protocol, sum(age * often for age, often in ages.items()) / count))
    theory = []
    path = results.folder / "closed_forms.parquet"
    points = pd.read_parquet(path) if path.is_file() else pd.DataFrame({"quantity": []})
    points = points[points["quantity"] == "client_age"]
    for protocol in dict.fromkeys(points["protocol"]) if len(points) else ():
        oldest = max(age for name, age, _ in rows if name == protocol)
        curves = [own for _, own in points[points["protocol"] == protocol].groupby("client")]
        cdf = [np.mean([own[own["x"] <= age]["cdf"].max() for own in curves]) for age in range(oldest + 1)]
        theory += [(protocol, age, cdf[age] - (cdf[age - 1] if age else 0)) for age in range(oldest + 1)] * (oldest > 0)
    return {
        "ages": pd.DataFrame(rows, columns=["protocol", "age", "share"]),
        "means": pd.DataFrame(means, columns=["protocol", "mean"]),
        "closed_form": pd.DataFrame(theory, columns=["protocol", "age", "share"])
        if theory
        else pd.DataFrame({"protocol": []}),
    }


def mean_age(run) -> float:
    """The mean client age of a run by its metrics, which the server counts as it goes."""
    before, total, steps = 0, 0.0, 0
    for row in table(run, "metrics"):
        count = row["round"] - before
        if count:
            total, steps, before = total + count * row["client_age_mean"], steps + count, row["round"]
    return total / steps


# --- sweeps -------------------------------------------------------------------------------------------------------


def sweep(swept: Sweep, of: Callable[[Any], tuple[float, float, bool]], theory: bool) -> dict[str, pd.DataFrame]:
    times, curves = [], []
    for position, (value, results) in enumerate(zip(swept.values, swept.results, strict=True)):
        for protocol, own in runs(results, "rounds").items():
            found = [of(run) for run in own]
            lower, values, late = ([each[part] for each in found] for part in range(3))
            shown = mean_of(values) if theory else cost(values, lower, any(late), geometric=True)
            times.append((position, protocol, float(value), *shown, len(own)))
            points = closed_forms(results, [protocol] if theory else [])
            if len(points):
                x = points["seconds"].to_numpy()
                means = [x[0] + np.sum(np.diff(x) * (2 - c[:-1] - c[1:]) / 2)
                         for c in (points["lower"].to_numpy(), points["upper"].to_numpy())]  # fmt: skip
                curves.append((protocol, float(value), *means))
    columns = ["position", "protocol", "x", "shown", "low", "high", "n"]
    order = list(dict.fromkeys(name for _, name, *_ in times))
    curves.sort(key=lambda row: (order.index(row[0]), row[1]))
    return {
        "times": pd.DataFrame(times, columns=columns),
        "closed_form": pd.DataFrame(curves, columns=["protocol", "x", "lower", "upper"])
        if curves
        else pd.DataFrame({"protocol": []}),
    }
