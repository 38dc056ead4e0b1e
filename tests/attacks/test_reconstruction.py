"""Reconstruction of features: of runs that hide nothing, of noise, and of what blinded and coded runs show."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from attacked_runs import finished
from protocols_by_kind import KINDS
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import euclidean_distances
from toy_views import view

from vflsim.attacks import chosen, evaluate, evaluation_tables
from vflsim.attacks.probes import FARTHEST, Indices, decoded, kernelled, linear, numbers, scaled
from vflsim.attacks.received_messages import EVERYTHING, Seen, directed, seen_of
from vflsim.attacks.reconstruction import explained, numeric
from vflsim.errors import ScenarioError
from vflsim.learning.models.shapes import TableShape
from vflsim.results.read import Results
from vflsim.results.store.views import RecordedViews
from vflsim.timing.floats import Floats

NONE = 0.02
"""R² up to which a view shows nothing: 2 % of the variance. In 160 trials with 200 rows of noise R² was between −0.012
and 0.002, and once, with 0.0007, above 0 with its whole interval."""
UNUSED = {"models": {"aggregate": "mean", "active": None}}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Runs on digits with four clients of 16 pixels and embeddings as wide."""
    noise = {"kind": "gaussian", "clip": 1, "noise_multiplier": 5, "delta": 1e-5}
    entries = {
        "plain": {"kind": "synchronous"},
        "noisy": {"kind": "synchronous", "mechanism": noise},
        "coded": {**KINDS["fedvs"], **UNUSED},
        "blinded": KINDS["easter"],
    }
    return finished(
        entries,
        tmp_path_factory.mktemp("reconstructed") / "study",
        record={"tables": "summary", "views": "400 rows"},
        data={"name": "digits", "train_rows": 600},
        stop={"rounds": 30},
        evaluate={"every": "30 rounds"},
        target={"test_accuracy": 0.01, "for": "1 evaluation"},
        training__batch=60,
        models={
            "client": {"kind": "linear", "embedding": 16},
            "aggregate": "mean",
            "server": {"kind": "mlp", "hidden": [16]},
        },
    )


HIDING = ("noisy", "coded", "blinded")


def reconstructed(study: Results, protocols: Sequence[str]) -> pd.DataFrame:
    plain = ["reconstruction.features=none", "reconstruction.form=values"]
    every = [*plain, "reconstruction.method=linear"]
    one = [*plain, "reconstruction.method=decoder", "reconstruction.client=3"]
    with pytest.MonkeyPatch.context() as patched:  # a decoder that looks 60 times at each row sees what there is
        patched.setattr("vflsim.attacks.probes._MOST_EPOCHS", 60)
        found = [
            evaluate(study, chosen(["reconstruction"], said), protocols).tables["reconstruction"]
            for said in (every, one)
        ]
    return pd.concat(found, ignore_index=True).query("view != 'strongest' and attacker in ('server', 'client')")


@pytest.fixture(scope="module")
def table(study: Results) -> pd.DataFrame:
    return reconstructed(study, HIDING)


def of(table: pd.DataFrame, protocol: str, view: str) -> pd.DataFrame:
    found = table[(table["protocol"] == protocol) & (table["view"] == view)]
    assert found.loc[found["method"] == "linear", "party"].tolist() == [f"client-{client}" for client in range(1, 5)]
    assert found.loc[found["method"] == "decoder", "party"].tolist() == ["client-3"]
    return found


@pytest.mark.slow
def test_a_run_that_hides_nothing_is_reconstructed(study: Results) -> None:
    found = of(reconstructed(study, ["plain"]), "plain", "embedding")
    assert (found["attacker"] == "server").all()
    assert (found["chance"] == 0).all()
    assert (found.loc[found["method"] == "linear", "low"] > 0.99).all()
    assert (found.loc[found["method"] == "decoder", "low"] > 0.8).all()
    assert (found["low"] <= found["value"]).all()
    assert (found["value"] <= found["high"]).all()


def test_noise_hides(table: pd.DataFrame) -> None:
    assert (of(table, "noisy", "embedding")["value"] < 0.1).all()


@pytest.mark.parametrize(
    ("protocol", "view"), [("coded", "coded_embedding"), ("coded", "data_share"), ("blinded", "embedding")]
)
def test_messages_of_coded_and_blinded_runs_show_nothing(table: pd.DataFrame, protocol: str, view: str) -> None:
    assert (of(table, protocol, view)["value"].abs() < NONE).all()


@pytest.mark.parametrize(("protocol", "view"), [("coded", "derived mean"), ("blinded", "derived sum")])
def test_their_sums_show_something(table: pd.DataFrame, protocol: str, view: str) -> None:
    """The server learns them by design; four clients' sum of 16 numbers leaves much of each client's 16 pixels."""
    assert (of(table, protocol, view)["low"] > 0.3).all()


def test_leakage_stands_beside_what_the_runs_reached_and_cost(study: Results) -> None:
    (shown,) = evaluation_tables(
        evaluate(
            study,
            chosen(["reconstruction"], ["reconstruction.method=linear", "reconstruction.features=none"]),
            ["plain"],
        )
    )
    cells = dict(zip(shown.header, shown.rows[0], strict=True))
    assert cells["protocol, attacker, features"] == "plain, server, none"
    assert str(cells["control: R² of rows out of order"]).startswith("−0.0")
    assert float(cells["explained variance R²"]) > 0.99
    assert cells["time to 0.01"] == "0 s"  # the initial models are as good
    last = study.run("plain", 0).frame("metrics").iloc[-1]
    assert float(cells["seconds"]) == pytest.approx(last["time_s"], rel=1e-3)
    assert {"test accuracy", "bytes", "rounds to 0.01", "bytes to 0.01"} <= set(cells)


@pytest.mark.slow
def test_equal_runs_are_attacked_equally(study: Results, table: pd.DataFrame) -> None:
    again = reconstructed(study, ["blinded"])
    expected = table[table["protocol"] == "blinded"]
    pd.testing.assert_frame_equal(again.reset_index(drop=True), expected.reset_index(drop=True))


def probed(x: Floats, y: Floats, known: Indices, others: Indices, method: str) -> Floats:
    if method == "decoder":
        return decoded(x, y, known, others, hidden=128, seed=0)
    return {"linear": linear, "kernel": kernelled}[method](x, y, known, others)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("method", ["linear", "kernel", "decoder"])
def test_uniform_noise_shows_nothing(method: str, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(7)
    x = torch.from_numpy(rng.integers(-(2**31), 2**31, size=(300, 8))).to(dtype)
    y, order = rng.standard_normal((300, 12)), rng.permutation(300)
    known, others = np.split(order, [150])
    guess = probed(numbers(x), y[known], known, others, method)
    found = explained(guess, y[others], y[known].mean(0), rng)
    assert abs(found.r2) < NONE
    assert found.low <= 0


@pytest.mark.parametrize("rows", [2, 3, 9, 12, 13])
@pytest.mark.parametrize("method", ["linear", "kernel", "decoder"])
def test_few_known_rows_are_enough_for_a_guess(method: str, rows: int) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((rows + 10, 4)), rng.standard_normal((rows + 10, 3))
    guess = probed(x, y[:rows], np.arange(rows), np.arange(rows, rows + 10), method)
    assert guess.shape == (10, 3)
    assert np.isfinite(guess).all()


def test_bits_of_integers_are_read() -> None:
    """The lowest bit of an integer decides: a probe of the number alone finds nothing."""
    rng = np.random.default_rng(3)
    x = torch.from_numpy(rng.integers(-(2**31), 2**31, size=(400, 2))).to(torch.int32)
    y, known, others = (x % 2).double().numpy(), np.arange(200), np.arange(200, 400)
    with_bits, without = (linear(each, y[known], known, others) for each in (numbers(x), numbers(x.double())))
    assert explained(with_bits, y[others], y[known].mean(0), rng).r2 > 0.99
    assert explained(without, y[others], y[known].mean(0), rng).r2 < 0.05


def test_explained_variance_by_hand() -> None:
    truth, guess = np.array([[0.0, 2.0], [2.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    assert explained(guess, truth, np.array([1.0, 1.0]), np.random.default_rng(0)).r2 == 1 - 2 / 4


VIEWS = tuple(
    view(*parts, values=torch.zeros(4, 2, dtype=torch.int32 if parts[2] == "data_share" else torch.float32))
    for parts in [
        ("client-1", "client-2", "data_share", ""),
        ("client-1", "server", "gradient", ""),
        ("client-1", "server", "shared_values", "client-2"),
        ("client-1", "server", "shared_values", "client-3"),
        ("client-1", "server", "shared_values", "server"),
        ("client-2", "server", "shared_values", "client-2"),
        ("server", "client-1", "embedding", ""),
        ("server", "client-2", "embedding", ""),
        ("server", "derived", "sum", ""),
        ("server", "derived", "surrogate", "client-1"),
        ("server", "derived", "surrogate", "client-2"),
    ]
)


@pytest.mark.parametrize(
    ("party", "attacker", "found"),
    [
        ("client-2", "server", {"embedding": [7], "derived sum": [8], "derived surrogate": [10]}),
        ("client-2", "client-1", {"data_share": [0], "gradient": [1], "shared_values": [2]}),
        ("client-3", "client-1", {"gradient": [1], "shared_values": [3]}),
        ("server", "client-1", {"gradient": [1], "shared_values": [4]}),
        ("client-2", "client-3", {}),
    ],
)
def test_what_an_attacker_has_about_a_party(party: str, attacker: str, found: dict[str, list[int]]) -> None:
    everything = {"server": {EVERYTHING: [6, 7, 8, 9, 10]}, "client-1": {EVERYTHING: [1, 2, 3, 4]}}
    seen = {each.name: [VIEWS.index(one) for one in each.views] for each in seen_of(VIEWS, party, attacker)}
    assert seen == (found | everything[attacker] if found else {})


def test_views_of_several_clients_count_as_one() -> None:
    seen = {
        each.name: [VIEWS.index(one) for one in each.views]
        for each in seen_of(VIEWS, "client-3", "clients", ["client-1", "client-2"])
    }
    assert seen == {"gradient": [1], "shared_values": [3], EVERYTHING: [1, 2, 3, 4, 5]}


def test_directions_by_hand() -> None:
    """Lengths 5, 0 and unknown: vectors of length 1, 0 and unknown; logarithms of those that are known."""
    table = np.array([[[3.0, 4.0], [0.0, 0.0]], [[np.nan, np.nan], [0.0, 1.0]]])
    expected = [[[0.6, 0.8, np.log(5)], [0, 0, np.nan]], [[np.nan] * 3, [0, 1, 0]]]
    np.testing.assert_allclose(directed(table), expected)


def test_directions_show_what_lengths_hide() -> None:
    """Vectors point where features say, and are 1 to 1,000 times as long: only probes of directions see it."""
    rng = np.random.default_rng(12)
    y = rng.standard_normal((400, 3))
    x = y * 10 ** rng.uniform(0, 3, size=(400, 1))
    seen = all_epochs_of(x, [*range(400)], 400)
    known, others = np.arange(200), np.arange(200, 400)
    found = {}
    for form in ("values", "directions"):
        inputs = seen.inputs("all", form)  # type: ignore[arg-type]
        assert inputs is not None
        guess = linear(inputs, y[known], known, others)
        found[form] = explained(guess, y[others], y[known].mean(0), rng).r2
    assert found["values"] < 0.5
    assert found["directions"] > 0.75


def test_a_server_with_a_client_subtracts_what_the_client_adds_to_a_sum(tmp_path: Path) -> None:
    """Of two clients' blinded sum, with 16 numbers about 32 pixels each, the client's own features leave the other."""
    results = finished(
        {"it": {"kind": "synchronous", "blinding": "on"}},
        tmp_path / "study",
        record={"tables": "summary", "views": {"rows": 400, "keep": "all"}},
        data={"name": "digits", "train_rows": 600},
        partition={"clients": 2, "by": "columns"},
        stop={"rounds": 30},
        evaluate={"every": "30 rounds"},
        training__batch=60,
        models={
            "client": {"kind": "linear", "embedding": 16},
            "aggregate": "sum",
            "server": {"kind": "mlp", "hidden": [16]},
        },
    )
    said = ["reconstruction.client=2", "reconstruction.form=values", "reconstruction.method=linear"]
    table = evaluate(results, chosen(["reconstruction"], said)).tables["reconstruction"]
    best = table[table["view"] == "strongest"].set_index(["attacker", "features", "measure"])["value"]
    assert set(table["attacker"]) == {"server", "client", "server and client"}
    assert best["server and client", "own", "r2"] > best["server", "none", "r2"] + 0.1
    assert best["server and client", "own", "partial_r2"] > 0.7
    assert best["server and client", "none", "control"] < 0.1
    only = chosen(["reconstruction"], [*said, "reconstruction.attacker=client"])
    assert set(evaluate(results, only).tables["reconstruction"]["attacker"]) == {"client"}


def test_differences_by_hand() -> None:
    seen = all_epochs_of(np.array([[1.0], [2.0], [3.0], [7.0]]), [2, 0, 2, 2], 3)
    np.testing.assert_array_equal(seen.inputs("all", "differences"), [[2, *[np.nan] * 2], [np.nan] * 3, [1, 2, 4]])
    assert seen.inputs("last", "differences") is None
    assert all_epochs_of(np.ones((2, 1)), [0, 1], 2).inputs("all", "differences") is None  # of one epoch


def test_means_by_hand() -> None:
    seen = all_epochs_of(np.array([[1.0], [2.0], [3.0]]), [2, 0, 2], 3)
    np.testing.assert_array_equal(seen.inputs("all", "means"), [[2], [np.nan], [2]])
    assert seen.inputs("last", "means") is None
    assert all_epochs_of(np.ones((2, 1)), [0, 1], 2).inputs("all", "means") is None  # the mean of one is its value
    assert all_epochs_of(np.ones((2, 1), int), [0, 0], 1).inputs("all", "means") is None


def test_means_show_what_noise_of_single_messages_hides() -> None:
    """Ten messages about a row are its features under noise of three times their size, each of it new."""
    rng, rows = np.random.default_rng(13), 120
    y = rng.standard_normal((rows, 8))
    x = np.concatenate([y + 3 * rng.standard_normal(y.shape) for _ in range(10)])
    seen, known, others = all_epochs_of(x, [*range(rows)] * 10, rows), np.arange(60), np.arange(60, rows)
    found = {}
    for form in ("values", "means"):
        inputs = seen.inputs("all", form)  # type: ignore[arg-type]
        assert inputs is not None
        guess = linear(inputs, y[known], known, others)
        found[form] = explained(guess, y[others], y[known].mean(0), rng).r2
    assert found["means"] > found["values"] + 0.1


@pytest.mark.parametrize("protocols", [["plain"], pytest.param(["plain", "coded"], marks=pytest.mark.slow)])
def test_the_strongest_attempt_is_chosen_on_other_rows(protocols: list[str], study: Results) -> None:
    said = ["reconstruction.client=3", "reconstruction.features=none,others"]
    table = evaluate(study, chosen(["reconstruction"], said), protocols).tables["reconstruction"]
    best = table[table["view"] == "strongest"].set_index(["protocol", "attacker", "features", "measure"])
    every = table[table["view"] != "strongest"].groupby(["protocol", "attacker", "features", "measure"])["value"].max()
    for key in every.index:
        assert best.loc[key, "value"] == pytest.approx(every[key], abs=0.12), key
    for _, own in best.groupby("measure"):
        assert (own["chosen"].str.count(",") == 3).all()
    controls = best.xs("control", level="measure")
    assert (controls["value"] < 0.1).all()
    assert best.loc[("plain", "server", "none", "r2"), "low"] > 0.99
    assert best.loc[("plain", "server", "others", "partial_r2"), "low"] > 0.97


def all_epochs_of(x: np.ndarray, row: list[int], rows: int) -> Seen:
    """The view of arrivals ``x`` about rows ``row``, in this order, as it is read from a file."""
    tensors = {"rows": torch.arange(rows)} | {
        f"server/derived/sum:{name}": torch.as_tensor(each)
        for name, each in {"values": x, "row": row, "time_s": np.arange(len(row), dtype=float)}.items()
    }
    (view,) = RecordedViews.of(tensors).views
    return Seen("server", "derived sum", (view,), view.received)


def test_epochs_stand_side_by_side() -> None:
    seen = all_epochs_of(np.array([[1.0], [2.0], [3.0], [4.0]]), [2, 0, 2, 0], 4)
    np.testing.assert_array_equal(seen.inputs("last"), [[4], [np.nan], [3], [np.nan]])
    np.testing.assert_array_equal(seen.inputs("all"), [[2, 4], [np.nan] * 2, [1, 3], [np.nan] * 2])
    assert Seen("server", "sum", (view("server", "derived", "sum"),), np.ones(4, bool)).inputs("all") is None


def test_sums_of_enough_epochs_determine_all_parties_features() -> None:
    """Each epoch sums two parties' 6 features into 3 numbers, by other weights: 4 epochs are 12 equations."""
    rng, rows, r2 = np.random.default_rng(5), 400, []
    both = rng.standard_normal((rows, 12))
    y, known, others = both[:, :6], np.arange(200), np.arange(200, rows)
    for epochs in (1, 2, 4):
        weights = [rng.standard_normal((12, 3)) for _ in range(epochs)]
        seen = all_epochs_of(np.concatenate([both @ each for each in weights]), [*range(rows)] * epochs, rows)
        x, w = seen.inputs("all"), np.hstack(weights)
        assert x is not None
        guess = linear(x, y[known], known, others)
        r2.append(explained(guess, y[others], y[known].mean(0), rng).r2)
        design = np.column_stack([np.ones(rows), x])  # by hand: least squares
        by_hand = design[others] @ np.linalg.lstsq(design[known], y[known], rcond=None)[0]
        assert r2[-1] == pytest.approx(1 - ((y[others] - by_hand) ** 2).sum() / (y[others] ** 2).sum(), abs=0.03)
        projector = w @ np.linalg.solve(w.T @ w, w.T)  # and with infinitely many rows
        assert r2[-1] == pytest.approx(np.trace(projector[:6, :6]) / 6, abs=0.1)
    assert r2[0] < r2[1] < 0.9
    assert r2[2] > 0.9999


def test_a_ridge_has_the_penalty_of_leave_one_out_by_hand() -> None:
    rng = np.random.default_rng(9)
    x, known, others = rng.standard_normal((90, 30)), np.arange(40), np.arange(40, 90)
    y = x[:, :2] + rng.standard_normal((90, 2))
    z = (x - x[known].mean(0)) / x[known].std(0)
    target, mean = y[known] - y[known].mean(0), y[known].mean(0)
    tried = {}
    for penalty in np.logspace(-6, 6, 13):
        left_out = []
        for row in known:  # each row by a ridge on the others, the mean of which it takes, too
            rest = known[known != row]
            a, b = z[rest] - z[rest].mean(0), target[rest] - target[rest].mean(0)
            w = np.linalg.solve(a.T @ a + penalty * np.eye(30), a.T @ b)
            left_out.append(target[row] - target[rest].mean(0) - (z[row] - z[rest].mean(0)) @ w)
        tried[penalty] = (np.square(left_out).mean(), penalty)
    best = min(tried.values())[1]
    w = np.linalg.solve(z[known].T @ z[known] + best * np.eye(30), z[known].T @ target)
    np.testing.assert_allclose(linear(x, y[known], known, others), mean + z[others] @ w, rtol=1e-6)


@pytest.mark.slow
def test_a_kernel_ridge_is_the_best_of_its_widths_and_penalties_by_leave_one_out() -> None:
    """By sklearn's ridge, which is fitted anew without each known row."""
    rng = np.random.default_rng(11)
    x, known, others = rng.standard_normal((50, 2)), np.arange(25), np.arange(25, 50)
    y = np.sin(2 * x[:, :1]) + 0.1 * rng.standard_normal((50, 1))
    z, new = ((x[rows] - x[known].mean(0)) / x[known].std(0) for rows in (known, others))
    t, unit = (y[known] - y[known].mean(0)) / y[known].std(), y[known].std()
    middle, tried = np.median(euclidean_distances(z, squared=True)), []
    for width, penalty in itertools.product((0.1, 1.0, 10.0), np.logspace(-6, 6, 13)):
        ridge = KernelRidge(alpha=penalty, kernel="rbf", gamma=1 / (width * middle))
        misses = [
            t[row] - ridge.fit(z[known[known != row]], t[known != row]).predict(z[[row]])[0]
            for row in range(len(known))
        ]
        tried.append((float(np.square(misses).sum()), len(tried), width, penalty))
    _, _, width, penalty = min(tried)
    expected = KernelRidge(alpha=penalty, kernel="rbf", gamma=1 / (width * middle)).fit(z, t).predict(new)
    np.testing.assert_allclose(kernelled(x, y[known], known, others), y[known].mean(0) + unit * expected, rtol=1e-4)


def test_a_kernel_finds_what_is_not_linear() -> None:
    rng = np.random.default_rng(10)
    x, known, others = rng.standard_normal((400, 2)), np.arange(200), np.arange(200, 400)
    y = np.abs(x)
    line, curve = (
        explained(probe(x, y[known], known, others), y[others], y[known].mean(0), rng).r2
        for probe in (linear, kernelled)
    )
    assert line < 0.1
    assert curve > 0.95


@pytest.mark.parametrize("probe", [linear, kernelled])
def test_a_view_of_noise_adds_nothing_to_features_and_takes_nothing(probe: Any) -> None:
    rng = np.random.default_rng(6)
    beside, noise = rng.standard_normal((300, 4)), rng.standard_normal((300, 200))
    y = beside @ rng.standard_normal((4, 5)) + rng.standard_normal((300, 5))
    known, others = np.split(rng.permutation(300), [150])
    alone = probe(beside, y[known], known, others)
    with_noise = probe(noise, y[known], known, others, beside)
    assert abs(explained(with_noise, y[others], alone, rng).r2) < NONE
    assert explained(alone, y[others], y[known].mean(0), rng).r2 > 0.5


def test_a_partial_r2_is_what_a_view_explains_beyond_features() -> None:
    """A sum of two parties' numbers: alone it explains half of one, and beside the other's numbers everything."""
    rng = np.random.default_rng(8)
    y, other = rng.standard_normal((2, 400, 3))
    known, others = np.split(rng.permutation(400), [200])
    alone, both = (linear(x, y[known], known, others, b) for x, b in ((y + other, None), (y + other, other)))
    assert explained(alone, y[others], y[known].mean(0), rng).r2 == pytest.approx(0.5, abs=0.1)
    base = linear(other, y[known], known, others)
    assert explained(both, y[others], base, rng).r2 > 0.999


def test_a_few_long_gradients_do_not_spoil_a_probe() -> None:
    """Two unknown rows are a thousand times as long as the others, and a linear probe predicts as much of them."""
    rng = np.random.default_rng(4)
    y, known, others = rng.standard_normal((300, 3)), np.arange(150), np.arange(150, 300)
    x = y + 0.3 * rng.standard_normal((300, 3))
    x[-2:] *= 1000
    found = explained(linear(x, y[known], known, others), y[others], y[known].mean(0), rng)
    assert found.r2 > 0.5
    assert np.abs(scaled(x, known)).max() == FARTHEST


def test_codes_of_categories_are_left_out() -> None:
    features = torch.arange(6.0).reshape(2, 3)
    assert numeric(features, TableShape([0, 4, 0])).tolist() == [[0, 2], [3, 5]]
    with pytest.raises(ValueError, match="only categories"):
        numeric(features, TableShape([2, 4, 2]))


def test_parties_with_only_categories_are_left_out_and_others_are_attacked(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    numbers_, towns, labels = (
        rng.standard_normal(120),
        rng.choice(["Bern", "Zug", "Wil"], 120),
        rng.integers(2, size=120),
    )
    pd.DataFrame({"age": numbers_, "town": towns, "label": labels}).to_csv(tmp_path / "people.csv", index=False)
    results = finished(
        {"it": {"kind": "synchronous"}},
        tmp_path / "study",
        data={"file": str(tmp_path / "people.csv"), "label": "label", "categorical": ["town"]},
        partition={"by": "explicit", "columns": [["age"], ["town"]]},
        record={"views": 60},
    )
    found = evaluate(results, chosen(["reconstruction"], []))
    assert set(found.tables["reconstruction"]["party"]) == {"client-1"}
    assert found.left_out["reconstruction of it"] == "client-2: it has only categories, and R² is about numbers"


def test_too_few_rows_and_other_clients_are_named(tmp_path: Path) -> None:
    results = finished({"it": {"kind": "synchronous"}}, tmp_path / "study", record={"views": 10})
    with pytest.raises(Exception, match="fewer than 20 recorded rows of client-1 have arrived as embedding"):
        evaluate(results, chosen(["reconstruction"], []))
    with pytest.raises(ScenarioError, match="no client 9"):
        evaluate(results, chosen(["reconstruction"], ["reconstruction.client=9"]))
    short = {"record": {"views": {"rows": 60, "keep": "all"}}, "stop": {"time": "0.1 ms", "rounds": 9}}
    silent = finished({"it": {"kind": "synchronous"}}, tmp_path / "silent", **short)
    with pytest.raises(Exception, match="no message about a recorded row has arrived"):
        evaluate(silent, chosen(["reconstruction"], []))
    bare = finished({"it": {"kind": "synchronous"}}, tmp_path / "bare")
    with pytest.raises(Exception, match="views of this run were not kept"):
        evaluate(bare, chosen(["reconstruction"], []))
