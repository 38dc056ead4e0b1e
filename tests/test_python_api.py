"""The package's own front door: ``vflsim.load``, ``vflsim.run``, ``vflsim.open_results`` and what they return."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

import vflsim
from vflsim.errors import NonFiniteError, ResultsError, ScenarioError
from vflsim.results import Results

SCENARIO: dict[str, Any] = {
    "name": "small",
    "data": {"name": "breast_cancer", "train_rows": 100},
    "partition": {"clients": 3, "by": "columns"},
    "models": {
        "client": {"kind": "linear", "embedding": 4},
        "aggregate": "mean",
        "server": {"kind": "mlp", "hidden": [4]},
    },
    "training": {
        "batch": 25,
        "client_optimizer": {"kind": "sgd", "lr": 0.2},
        "server_optimizer": {"kind": "sgd", "lr": 0.2},
    },
    "timing": {"clients": [{"compute": "2 ms", "upload_delay": {"kind": "exponential", "mean": "10 ms"}}]},
    "protocols": {"wait": {"kind": "synchronous"}, "async": {"kind": "asynchronous"}},
    "stop": {"rounds": 12, "target": {"test_accuracy": 0.99}},
    "evaluate": {"every": "4 rounds"},
    "seeds": [0, 1],
}
DIVERGING = {"training": {"server_optimizer": {"kind": "sgd", "lr": 1e30}}}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return vflsim.run(SCENARIO, tmp_path_factory.mktemp("api") / "small")


def test_load_takes_a_mapping_a_text_and_a_file(tmp_path: Path) -> None:
    from vflsim.scenario.load import dump

    scenario = vflsim.load(SCENARIO)
    path = tmp_path / "small.yaml"
    path.write_text(dump(scenario))
    assert vflsim.load(path) == vflsim.load(str(path)) == vflsim.load(dump(scenario)) == scenario


def test_load_takes_overrides_as_texts_or_a_mapping() -> None:
    texts = vflsim.load(SCENARIO, ["training.batch=10", "seeds=0:3"])
    mapping = vflsim.load(SCENARIO, {"training.batch": 10, "seeds": [0, 1, 2]})
    assert texts == mapping
    assert (texts.training.batch, texts.seeds) == (10, (0, 1, 2))


def test_load_says_what_is_wrong() -> None:
    with pytest.raises(ScenarioError, match=r"training\.batch: 0 is out of range"):
        vflsim.load(SCENARIO, {"training.batch": 0})
    assert issubclass(ScenarioError, vflsim.VflsimError)


def test_run_returns_results_that_are_on_disk(results: Results) -> None:
    assert (results.name, results.protocols, results.seeds) == ("small", ("wait", "async"), (0, 1))
    again = vflsim.open_results(results.folder)
    pd.testing.assert_frame_equal(again.metrics, results.metrics)
    assert repr(again) == repr(results)
    assert (results.folder / "summary.md").is_file()


def test_run_writes_below_results_unless_told_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = vflsim.run(vflsim.load(SCENARIO, {"seeds": [0], "protocols.async": None}), timing_only=True)
    assert made.folder == Path("results/small-timing")
    assert Path("results/small-timing/wait/seed-0/rounds.parquet").is_file()
    assert made.evaluated == ()


def test_the_frames_of_all_runs(results: Results) -> None:
    for frame in (results.metrics, results.rounds, results.events):
        assert list(frame.columns[:2]) == ["protocol", "seed"]
        assert set(zip(frame["protocol"], frame["seed"], strict=True)) == {
            (protocol, seed) for protocol in ("wait", "async") for seed in (0, 1)
        }
    assert {"time_s", "test_accuracy", "test_auc", "train_loss", "bytes_up"} <= set(results.metrics.columns)
    assert results.metrics.groupby(["protocol", "seed"], observed=True)["round"].max().tolist() == [12] * 4
    assert results.info["status"].tolist() == ["finished"] * 4
    assert {"mean", "low", "high", "n"} <= set(results.estimates().columns)
    assert "server.0.weight" in results.weights("wait", 0)


def test_a_figure(results: Results) -> None:
    figure = vflsim.plot(results, "time")
    assert isinstance(figure, Figure)
    assert figure.axes


def test_an_unknown_figure_is_refused_with_those_there_are(results: Results) -> None:
    with pytest.raises(ResultsError, match=r"no figure 'tiem'[\s\S]*time, rounds, bytes"):
        vflsim.plot(results, "tiem")


def test_a_notebook_shows_the_comparison(results: Results) -> None:
    page = results._repr_html_()
    assert page.startswith("<table><caption><b>small (geometric means of costs over seeds)</b>")
    assert page.count("<tr>") == 1 + len(results.protocols)
    assert "final accuracy" in page


def test_a_run_that_fails_is_raised_after_all_have_been_tried(tmp_path: Path) -> None:
    scenario = vflsim.load(SCENARIO, {"protocols.wait": {"kind": "synchronous", **DIVERGING}})
    with pytest.raises(NonFiniteError, match=r"server, server_step, round \d+ at .* s: .*loss became") as caught:
        vflsim.run(scenario, tmp_path / "out")
    (note,) = caught.value.__notes__
    assert "wait with seed 0; 2 of 4 runs failed" in note
    assert str(tmp_path / "out") in note
    kept = vflsim.open_results(tmp_path / "out")
    assert kept.info["status"].tolist() == ["diverged", "diverged", "finished", "finished"]
    assert len(kept.estimates().query("protocol == 'async'"))


def test_what_only_the_data_can_tell_is_said_before_anything_is_written(tmp_path: Path) -> None:
    images = {"models.client": {"kind": "cnn", "channels": [2], "embedding": 4}}
    with pytest.raises(ScenarioError, match=r"models\.client: client 1: a cnn client needs images"):
        vflsim.run(vflsim.load(SCENARIO, images), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_opening_what_is_no_results_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"no scenario\.yaml in it"):
        vflsim.open_results(tmp_path)


def test_importing_the_package_imports_no_pytorch() -> None:
    code = "import sys, vflsim; print(sorted({'torch', 'pandas', 'numpy', 'simpy'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_version_is_the_packages() -> None:
    assert vflsim.__version__ == version("vflsim")


def test_timing_alone_never_replaces_what_was_trained(tmp_path: Path) -> None:
    scenario = vflsim.load(SCENARIO, {"seeds": [0], "protocols.async": None})
    vflsim.run(scenario, tmp_path / "out")
    timing = vflsim.run(scenario, tmp_path / "out", timing_only=True)
    assert bool(timing.info["timing_only"].all())
    assert not timing.evaluated
    (earlier,) = (tmp_path / "out" / "earlier").iterdir()
    kept = vflsim.open_results(earlier)
    assert "test_accuracy" in kept.metrics
    assert vflsim.load(tmp_path / "out" / "scenario.yaml") == scenario


def test_how_a_study_is_carried_out_is_said_by_keywords(tmp_path: Path) -> None:
    scenario = vflsim.load(SCENARIO, {"seeds": [0], "protocols.async": None})
    made = vflsim.run(scenario, tmp_path / "out", eager=True, device="cpu", threads=2, checkpoint_every=None)
    (run,) = made.runs
    assert (run.info.learning_plane, run.info.device, run.info.threads) == ("eager", "cpu", 2)
    page = (run.folder / "run.json").read_bytes()
    vflsim.run(scenario, tmp_path / "out", resume=True)
    assert (run.folder / "run.json").read_bytes() == page
    with pytest.raises(ResultsError, match=r"training\.batch: 25 → 20"):
        vflsim.run(vflsim.load(SCENARIO, {"training.batch": 20}), tmp_path / "out", resume=True)
    with pytest.raises(ScenarioError, match="--workers 0: 0 is out of range"):
        vflsim.run(scenario, tmp_path / "other", workers=0)
    assert not (tmp_path / "other").exists()
