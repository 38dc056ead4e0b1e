"""Every figure's numbers are those of the tables: each is computed once more from the Parquet files, row by row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import by_hand
import by_hand_events
import numpy as np
import pandas as pd
import pytest
from tiny_worlds import raw

import vflsim
from vflsim.attacks import ATTACKS
from vflsim.explaining.figures import _means
from vflsim.intervals import t_interval
from vflsim.plotting import PLOTS, SWEEP_PLOTS, plot
from vflsim.plotting.breakdown import WAITING
from vflsim.plotting.costs import _costs
from vflsim.plotting.curves import numbers_of
from vflsim.plotting.delays import fits, law
from vflsim.plotting.script import metric_panels
from vflsim.results import Results
from vflsim.results.sweeps import Sweep
from vflsim.timing.delays import Constant, Exponential, Sum
from vflsim.vocabulary.metrics import REPORTED, range_of

pytestmark = pytest.mark.usefixtures("unrendered")

TARGET = 0.25


CODED = {"kind": "fedvs", "K": 1, "T": 1}


PRIVATE = {"kind": "gaussian", "clip": 1, "noise_multiplier": 0.3, "delta": 1e-5}


PROTOCOLS = {
    "wait": {"kind": "synchronous"},
    "deadline": {"kind": "ignore", "deadline": "12 ms"},
    "fastest": {"kind": "ignore", "fastest": 2},
    "t-sync": {"kind": "t_synchronous", "t": 2},
    "async": {"kind": "asynchronous", "max_staleness": 6},
    "private": {"kind": "synchronous", "mechanism": PRIVATE},
    "reference": {"kind": "centralised", "evaluate": {"deadline": None}},
    "coded": CODED,
    "finish": CODED | {"late": "finished"},
    "sharers": CODED | {"sharers": 3},
}


MODELS = {"client": {"kind": "linear", "embedding": 6}, "aggregate": "mean", "server": {"kind": "mlp", "hidden": [8]}}


TIMING = {
    "server": {"compute": "1 ms", "link": {"up": "20 Mbps", "down": "20 Mbps", "latency": "1 ms"}},
    "clients": [
        {"select": "all", "compute": "2 ms", "upload_delay": {"kind": "exponential", "mean": "(3*m) ms"}},
        {"select": "all", "link": {"up": "5 Mbps", "down": "20 Mbps", "latency": "1 ms"}},
        {"select": "all", "power": {"idle": "2 W", "compute": "6 W", "radio": "1 W"}},
    ],
}


COMES_AND_GOES = {
    "kind": "alternating",
    "up": {"kind": "exponential", "mean": "60 ms"},
    "down": {"kind": "exponential", "mean": "20 ms"},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    said = raw(PROTOCOLS, timing=TIMING, models=MODELS)
    said |= {"record": "events", "seeds": [0, 1], "stop": {"rounds": 6, "target": {"test_accuracy": TARGET}}}
    folder = tmp_path_factory.mktemp("numbers") / "trained"
    vflsim.run(said | {"evaluate": {"every": "2 rounds", "deadline": ["8 ms", "20 ms"], "query_rows": 40}}, out=folder)
    return folder


@pytest.fixture(scope="module")
def faulty(tmp_path_factory) -> Path:
    """Clients that come and go; without training."""
    comes_and_goes = [
        {"select": clients, "availability": COMES_AND_GOES | {"interrupted": interrupted}}
        for clients, interrupted in (("2..3", "resumed"), ("4", "lost"))
    ]
    timing = TIMING | {"clients": [*TIMING["clients"], *comes_and_goes]}
    said = raw({name: PROTOCOLS[name] for name in ("wait", "t-sync", "async", "coded")}, timing=timing, models=MODELS)
    said |= {"record": "events", "seeds": [0, 1], "stop": {"rounds": 15}}
    folder = tmp_path_factory.mktemp("numbers") / "faulty"
    vflsim.run(said, out=folder, timing_only=True)
    return folder


@pytest.fixture(scope="module")
def known(tmp_path_factory) -> Path:
    """Worlds whose closed forms are known, so that they are drawn; without training."""
    folder = tmp_path_factory.mktemp("numbers")
    exponential = {"clients": [{"select": "all", "upload_delay": {"kind": "exponential", "mean": "(3*m) ms"}}]}
    poisson = {"clients": [{"select": "all", "activation": {"kind": "poisson", "rate": 1}}]}
    for name, timing, protocols in (("rounds", exponential, ("wait", "coded")), ("ages", poisson, ("async",))):
        said = raw({protocol: PROTOCOLS[protocol] for protocol in protocols}, timing=timing, models=MODELS)
        said["protocols"] |= {"async": {"kind": "asynchronous"}} if name == "ages" else {}
        said |= {"record": "events", "seeds": [0, 1], "stop": {"rounds": 30}}
        assert vflsim.run(said, out=folder / name, timing_only=True).closed_forms is not None
    return folder


@pytest.fixture(scope="module")
def swept(trained: Path, tmp_path_factory) -> Path:
    """A sweep over two values; one has fewer seeds than the other."""
    folder = tmp_path_factory.mktemp("numbers")
    for value in ("0", "1"):
        shutil.copytree(trained, folder / value)
    for protocol in PROTOCOLS:
        shutil.rmtree(folder / "1" / protocol / "seed-1")
    return paged(folder, ["0", "1"])


def paged(folder: Path, names: list[str]) -> Path:
    points = [{"values": [3 + 5 * k], "folder": name, "finished": True} for k, name in enumerate(names)]
    page = {"scenario": "tiny", "keys": ["constants.k"], "timing_only": False, "points": points}
    (folder / "sweep.json").write_text(json.dumps(page))
    return folder


BY_HAND: dict[str, Callable[[Results], dict[str, pd.DataFrame]]] = {
    "time": partial(by_hand.curves, "time_s"),
    "rounds": partial(by_hand.curves, "round"),
    "bytes": partial(by_hand.curves, "bytes"),
    "energy": partial(by_hand.curves, "energy_j"),
    "epsilon": partial(by_hand.curves, "epsilon"),
    "target": partial(by_hand.target, at_least=TARGET),
    "speedup": partial(by_hand.speedup, at_least=TARGET),
    "durations": by_hand.durations,
    "survival": partial(by_hand.durations, longer=True),
    "waited": by_hand_events.waited,
    "breakdown": by_hand_events.breakdown,
    "staleness": by_hand.staleness,
    "answers": by_hand.answers,
    "utilisation": by_hand_events.utilisation,
    "timeline": by_hand_events.timeline,
}


SWEPT_BY_HAND: dict[str, Callable[[Sweep], dict[str, pd.DataFrame]]] = {
    "sweep": partial(by_hand.sweep, of=lambda run: (np.mean(by_hand.lasted(run)),) * 2 + (False,), theory=True),
    "sweep-target": partial(
        by_hand.sweep,
        of=lambda run: by_hand.time_to(run, TARGET),
        theory=False,
    ),
}


UNTRAINED = ("durations", "survival", "waited", "breakdown", "staleness", "utilisation", "timeline")


def assert_equal(drawn: dict[str, pd.DataFrame], expected: dict[str, pd.DataFrame]) -> None:
    assert drawn.keys() == expected.keys()
    for name, frame in expected.items():
        columns = list(frame.columns)
        assert set(columns) <= set(drawn[name].columns), name
        keys = [c for c in columns if not pd.api.types.is_float_dtype(frame[c])]
        one, other = (
            each.astype({c: str for c in keys if each[c].dtype.name in ("category", "object", "str")})
            .sort_values(columns, kind="stable", key=lambda c: c.round(9) if c.dtype.kind == "f" else c)
            .reset_index(drop=True)[columns]
            for each in (drawn[name].reset_index(drop=True), frame)
        )
        pd.testing.assert_frame_equal(one, other, check_dtype=False, rtol=1e-7, atol=1e-9)


def test_every_figure_has_its_numbers_computed_by_hand() -> None:
    assert BY_HAND.keys() == PLOTS.keys()
    assert SWEPT_BY_HAND.keys() == SWEEP_PLOTS.keys()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", PLOTS)
def test_the_numbers_of_a_figure_are_those_of_the_tables(trained: Path, kind: str) -> None:
    results = Results.open(trained)
    numbers = plot(results, kind).numbers
    assert all(len(each) for name, each in numbers.items() if name not in ("closed_form", "histogram"))
    assert_equal(numbers, BY_HAND[kind](results))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", UNTRAINED)
def test_so_they_are_where_clients_go_down(faulty: Path, kind: str) -> None:
    results = Results.open(faulty)
    assert_equal(plot(results, kind).numbers, BY_HAND[kind](results))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "world"), [("durations", "rounds"), ("survival", "rounds"), ("staleness", "ages")])
def test_closed_forms_are_among_the_numbers(known: Path, kind: str, world: str) -> None:
    results = Results.open(known / world)
    numbers = plot(results, kind).numbers
    assert len(numbers["closed_form"])
    assert_equal(numbers, BY_HAND[kind](results))


def test_a_sweeps_figure_has_the_means_of_closed_forms(known: Path) -> None:
    sweep = Sweep.open(paged(known, ["rounds", "rounds"]))
    numbers = plot(sweep, "sweep").numbers
    assert len(numbers["closed_form"])
    assert_equal(numbers, SWEPT_BY_HAND["sweep"](sweep))


def test_a_coded_round_is_its_share_barrier_and_the_upload_that_completes_it(known: Path) -> None:
    # No links, no computation: what a round lasts is the longest sharing delay and the R-th upload delay, in any order.
    results = Results.open(known / "rounds")
    longest, fastest, last = [], [], []
    for run in (run for run in results.runs if run.protocol == "coded"):
        events = run.frame("events")
        for row in run.frame("rounds").itertuples():
            own = events[(events["round"] == row.round) & (events["outcome"] == "done")]
            shares = own[own["kind"] == "share"].set_index("party")["drawn_s"]
            longest.append(shares.max())
            last.append(int(shares.idxmax()[7:]))
            fastest.append(own[own["kind"] == "upload"]["drawn_s"].sort_values().iloc[2])  # R = 3
    parts = plot(results, "breakdown").numbers["rounds"].set_index(["protocol", "part"])["seconds"]["coded"]
    assert parts["sharing delay"] == pytest.approx(np.mean(longest))
    assert parts["upload delay"] == pytest.approx(np.mean(fastest))
    assert parts[WAITING] == pytest.approx(0, abs=1e-9)
    before = plot(results, "waited").numbers["shares"].query("protocol == 'coded' and stage == 'before' and client > 0")
    assert before["share"].tolist() == pytest.approx([last.count(client) / len(last) for client in (1, 2, 3, 4)])


def test_mean_ages_are_those_of_the_metrics(trained: Path) -> None:
    results = Results.open(trained)
    means = plot(results, "staleness").numbers["means"].set_index("protocol")["mean"]
    for protocol in PROTOCOLS:
        runs = [run for run in results.runs if run.protocol == protocol]
        steps = [run.table("rounds").num_rows for run in runs]
        assert means[protocol] == pytest.approx(np.average([by_hand.mean_age(run) for run in runs], weights=steps))
    assert means["coded"] == means["finish"] == 0
    assert means["sharers"] > 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", SWEEP_PLOTS)
def test_the_numbers_of_a_sweeps_figure_are_those_of_its_runs(swept: Path, kind: str) -> None:
    sweep = Sweep.open(swept)
    drawn = plot(sweep, kind).numbers
    expected = SWEPT_BY_HAND[kind](sweep)
    assert_equal(drawn, expected)


def test_panels_have_the_numbers_of_each_results(trained: Path) -> None:
    results = Results.open(trained)
    numbers = metric_panels([results, results]).numbers
    expected = by_hand.curves("time_s", results)
    for panel in (0, 1):
        own = {name: each[each["panel"] == panel] for name, each in numbers.items()}
        assert_equal(own, expected)


LAWS = {
    "exponential": Exponential(mean=0.02),
    "with an atom": Sum(parts=(Constant(value=0.01), Exponential(mean=0.01))),
    "constant": Constant(value=0.015),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("figure", ["fits", "law"])
def test_figures_of_delays_draw_what_laws_and_observations_are(figure: str) -> None:
    observed = np.random.default_rng(3).exponential(0.02, 500)
    laws = LAWS if figure == "fits" else {"exponential": LAWS["exponential"]}
    drawn = fits(observed, laws, "a.csv") if figure == "fits" else law(LAWS["exponential"], observed, "exponential")
    numbers = drawn.numbers
    values, bins = numbers["observed"], numbers["bins"]
    assert values["seconds"].tolist() == sorted(observed)
    assert values["cdf"].tolist() == pytest.approx([np.mean(observed <= x) for x in values["seconds"]])
    assert values["survival"].tolist() == pytest.approx([np.mean(observed > x) for x in values["seconds"]], abs=1e-12)
    for row in bins.iloc[:-1].itertuples():
        inside = np.mean((observed >= row.start_s) & (observed < row.end_s))
        assert row.density * (row.end_s - row.start_s) == pytest.approx(inside)
    for name, delay in laws.items():
        own = {what: each[each["law"] == name] for what, each in numbers.items() if "law" in each}
        assert own["cdf"]["share"].tolist() == pytest.approx([float(delay.cdf(x)) for x in own["cdf"]["seconds"]])
        shares = [1 - float(delay.cdf(x)) for x in own["survival"]["seconds"]]
        assert own["survival"]["share"].tolist() == pytest.approx(shares, abs=1e-12)
        density = own["density"]
        if (density["start_s"] < density["end_s"]).all():
            shares = delay.cdf(density["end_s"].to_numpy()) - delay.cdf(density["start_s"].to_numpy())
            heights = shares / (density["end_s"] - density["start_s"])
            assert density["density"].tolist()[1:] == pytest.approx(heights.tolist()[1:])
        else:
            assert density["density"].tolist() == pytest.approx([float(delay.density(x)) for x in density["start_s"]])
        if "quantiles" in own:
            pairs = own["quantiles"]
            ranks = [(np.sum(observed <= x) - 0.5) / len(observed) for x in pairs["observed_s"]]
            assert pairs["fitted_s"].tolist() == pytest.approx([float(delay.quantile(q)) for q in ranks])


@pytest.mark.parametrize(
    ("metric", "ends", "values"),
    [
        ("test_accuracy", (0, 1), (0.02, 0.04, 0.2)),
        ("validation_auc.client-2", (0, 1), (0.8, 0.97, 1.0)),
        ("test_loss", (0, np.inf), (0.01, 0.02, 0.9)),
        ("test_rmse", (0, np.inf), (0.01, 0.02, 0.9)),
        ("test_r2", (-np.inf, 1), (0.4, 0.9, 1.0)),
    ],
)
def test_bands_end_where_the_metric_ends(metric: str, ends: tuple[float, float], values: tuple[float, ...]) -> None:
    assert range_of(metric) == ends
    free = t_interval(values)
    assert free.low < ends[0] or free.high > ends[1], "the example shows nothing"
    runs = {seed: (np.array([0.0, 1.0]), np.array([value, value])) for seed, value in enumerate(values)}
    band = numbers_of({"a": runs}, "time_s", metric, {}, ends)["means"].iloc[0]
    assert (band["low"], band["high"]) == pytest.approx((max(free.low, ends[0]), min(free.high, ends[1])))


def test_every_metric_has_a_range() -> None:
    assert {metric: range_of(metric) for metric in REPORTED} == {
        "loss": (0, np.inf), "accuracy": (0, 1), "auc": (0, 1), "rmse": (0, np.inf), "r2": (-np.inf, 1)
    }  # fmt: skip


def test_no_cost_is_below_zero() -> None:
    rows = [
        ("time_to_target", "a", seed, value, value, False) for seed, value in enumerate((0.0, 1.0, 40.0))
    ]  # arithmetic: 0 has no logarithm
    measured = pd.DataFrame(rows, columns=["measure", "protocol", "seed", "value", "lower", "censored"])
    costs = _costs(measured, ["a"], [("time_to_target", "time to target", "s")])
    assert t_interval([0, 1, 40]).low < 0
    assert costs["low"].iloc[0] == 0
    assert costs["high"].iloc[0] == pytest.approx(t_interval([0, 1, 40]).high)


def test_norms_and_metrics_of_clients_end_there_too() -> None:
    rows = [("a", seed, 1, value, False) for seed, value in enumerate((0.1, 0.1, 3.0))]
    clients = pd.DataFrame(rows, columns=["protocol", "seed", "client", "weight_norm", "noisy_features"])
    norms = _means(clients, "weight_norm", (0.0, np.inf))
    assert norms["low"].iloc[0] == 0
    assert norms["high"].iloc[0] == pytest.approx(t_interval([0.1, 0.1, 3.0]).high)


def test_every_measure_that_an_attack_draws_has_a_range() -> None:
    for attack in ATTACKS.values():
        assert set(attack.ranges) == set(attack.drawn), attack
