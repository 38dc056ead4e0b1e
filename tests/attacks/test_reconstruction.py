"""Reconstruction of features: of runs that hide nothing, of noise, and of what blinded and coded runs show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from attacked_runs import finished
from protocols_by_kind import KINDS
from toy_views import view

from vflsim.attacks import chosen, evaluate, evaluation_tables
from vflsim.attacks.probing import numbers
from vflsim.attacks.reconstruction import Reconstruction, explained, numeric, views_of
from vflsim.errors import ScenarioError
from vflsim.learning.models.tables import TableShape
from vflsim.results.read import Results

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


@pytest.fixture(scope="module")
def table(study: Results) -> pd.DataFrame:
    every, one = ["reconstruction.method=linear"], ["reconstruction.method=decoder", "reconstruction.client=3"]
    found = [evaluate(study, chosen(["reconstruction"], said)).tables["reconstruction"] for said in (every, one)]
    return pd.concat(found, ignore_index=True)


def of(table: pd.DataFrame, protocol: str, view: str) -> pd.DataFrame:
    found = table[(table["protocol"] == protocol) & (table["view"] == view)]
    assert found.loc[found["method"] == "linear", "party"].tolist() == [f"client-{client}" for client in range(1, 5)]
    assert found.loc[found["method"] == "decoder", "party"].tolist() == ["client-3"]
    return found


def test_a_run_that_hides_nothing_is_reconstructed(table: pd.DataFrame) -> None:
    found = of(table, "plain", "embedding")
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
        evaluate(study, chosen(["reconstruction"], ["reconstruction.method=linear"]), ["plain"])
    )
    cells = dict(zip(shown.header, shown.rows[0], strict=True))
    assert cells["protocol, attacker, view, method"] == "plain, server, embedding, linear"
    assert float(cells["explained variance R²"]) > 0.99
    assert cells["time to 0.01"] == "0 s"  # the initial models are as good
    last = study.run("plain", 0).frame("metrics").iloc[-1]
    assert float(cells["seconds"]) == pytest.approx(last["time_s"], rel=1e-3)
    assert {"test accuracy", "bytes", "rounds to 0.01", "bytes to 0.01"} <= set(cells)


def test_equal_runs_are_attacked_equally(study: Results, table: pd.DataFrame) -> None:
    said = ["reconstruction.client=3", "reconstruction.method=decoder"]
    again = evaluate(study, chosen(["reconstruction"], said), ["blinded"]).tables["reconstruction"]
    expected = table[(table["protocol"] == "blinded") & (table["method"] == "decoder")].reset_index(drop=True)
    pd.testing.assert_frame_equal(again, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("method", ["linear", "decoder"])
def test_uniform_noise_shows_nothing(method: str, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(7)
    x = torch.from_numpy(rng.integers(-(2**31), 2**31, size=(300, 8))).to(dtype)
    y, order = rng.standard_normal((300, 12)), rng.permutation(300)
    known, others = np.split(order, [150])
    guess = Reconstruction().reconstructed(numbers(x), y[known], known, others, method, 0)  # type: ignore[arg-type]
    found = explained(guess, y[others], y[known].mean(0), rng)
    assert abs(found.r2) < NONE
    assert found.low <= 0


def test_bits_of_integers_are_read() -> None:
    """The lowest bit of an integer decides: a probe of the number alone finds nothing."""
    rng = np.random.default_rng(3)
    x = torch.from_numpy(rng.integers(-(2**31), 2**31, size=(400, 2))).to(torch.int32)
    y, known, others = (x % 2).double().numpy(), np.arange(200), np.arange(200, 400)
    with_bits, without = (
        Reconstruction().reconstructed(each, y[known], known, others, "linear", 0)
        for each in (numbers(x), numbers(x.double()))
    )
    assert explained(with_bits, y[others], y[known].mean(0), rng).r2 > 0.99
    assert explained(without, y[others], y[known].mean(0), rng).r2 < 0.05


def test_explained_variance_by_hand() -> None:
    truth, guess = np.array([[0.0, 2.0], [2.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    assert explained(guess, truth, np.array([1.0, 1.0]), np.random.default_rng(0)).r2 == 1 - 2 / 4


def test_which_views_are_about_a_client() -> None:
    views = tuple(
        view(*parts)
        for parts in [
            ("client-1", "client-2", "data_share", ""),
            ("client-1", "server", "gradient", ""),
            ("client-1", "server", "shared_values", "client-2"),
            ("client-2", "server", "shared_values", "client-2"),
            ("client-3", "client-2", "data_share", ""),
            ("server", "client-1", "embedding", ""),
            ("server", "client-2", "embedding", ""),
            ("server", "derived", "sum", ""),
            ("server", "derived", "surrogate", "client-1"),
            ("server", "derived", "surrogate", "client-2"),
        ]
    )
    assert [(attacker, name, views.index(each)) for attacker, name, each in views_of(views, 2)] == [
        ("client", "data_share", 0),
        ("client", "shared_values", 2),
        ("server", "embedding", 6),
        ("server", "derived sum", 7),
        ("server", "derived surrogate", 9),
    ]


def test_codes_of_categories_are_left_out() -> None:
    features = torch.arange(6.0).reshape(2, 3)
    assert numeric(features, TableShape([0, 4, 0])).tolist() == [[0, 2], [3, 5]]
    with pytest.raises(ValueError, match="only categories"):
        numeric(features, TableShape([2, 4, 2]))


def test_too_few_rows_and_other_clients_are_named(tmp_path: Path) -> None:
    results = finished({"it": {"kind": "synchronous"}}, tmp_path / "study", record={"views": 10})
    with pytest.raises(Exception, match="fewer than 20 recorded rows have arrived as embedding"):
        evaluate(results, chosen(["reconstruction"], []))
    with pytest.raises(ScenarioError, match="no client 9"):
        evaluate(results, chosen(["reconstruction"], ["reconstruction.client=9"]))
    bare = finished({"it": {"kind": "synchronous"}}, tmp_path / "bare")
    with pytest.raises(Exception, match="views of this run were not kept"):
        evaluate(bare, chosen(["reconstruction"], []))
