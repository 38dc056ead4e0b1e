import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from toy_runs import toy_results, toy_run

from vflsim.errors import ResultsError
from vflsim.results import NotRecordedError, Results, run_folder, write_run
from vflsim.results.run_set import _joined
from vflsim.version import __version__


@pytest.fixture
def copied(toy_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_folder, tmp_path / "toy"))


def fail(folder: Path, protocol: str, seed: int) -> None:
    """Turn a run into one that failed after its first ten seconds."""
    tables, info = toy_run(protocol, seed, horizon=10)
    info = info.model_copy(
        update={"status": "failed", "error": "RunError: client-3: infinite loss", "stop_reason": None}
    )
    write_run(run_folder(folder, protocol, seed), tables, {}, info)


def test_protocols_come_in_the_scenarios_order_and_seeds_ascend(results: Results):
    assert results.protocols == ("wait", "ignore", "t-sync", "async")
    assert results.seeds == (0, 1, 2)
    assert results.name == "toy"


def test_frames_have_protocol_and_seed_in_front_and_all_rows(results: Results):
    for name in ("metrics", "rounds", "events"):
        frame = getattr(results, name)
        assert list(frame.columns[:2]) == ["protocol", "seed"]
        assert len(frame) == sum(run.table(name).num_rows for run in results.runs)
    one = results.metrics[(results.metrics["protocol"] == "async") & (results.metrics["seed"] == 1)]
    expected = toy_run("async", 1, horizon=30)[0].metrics.column("test_accuracy").to_pylist()
    assert one["test_accuracy"].tolist() == expected


def test_stored_tables_equal_those_written(results: Results):
    assert results.run("wait", 2).tables() == toy_run("wait", 2, horizon=30)[0]


def test_weights_of_a_run_come_by_name(results: Results):
    assert torch.equal(results.weights("wait", 0)["server.bias"], torch.ones(2))


def test_the_main_metric_is_the_targets(results: Results):
    assert results.main_metric == "test_accuracy"


def test_info_has_one_row_a_run(results: Results):
    assert results.info[["protocol", "seed", "status"]].iloc[0].tolist() == ["wait", 0, "finished"]
    assert len(results.info) == 12


def test_a_notebook_displays_the_comparison(results: Results):
    assert "t-sync" in results._repr_html_()


def test_failed_runs_are_there_and_marked(copied: Path):
    fail(copied, "wait", 1)
    results = Results.open(copied)
    assert [(run.protocol, run.seed) for run in results.failed] == [("wait", 1)]
    assert results.info.query("status == 'failed'")["error"].tolist() == ["RunError: client-3: infinite loss"]
    assert ((results.metrics["protocol"] == "wait") & (results.metrics["seed"] == 1)).any()
    assert "1 failed" in repr(results)
    assert "infinite loss" in results._repr_html_()


def test_tables_that_were_not_recorded_say_how_to_get_them(tmp_path: Path):
    results = Results.open(toy_results(tmp_path / "toy", record="summary", horizon=10, seeds=1))
    assert len(results.metrics)
    for name in ("rounds", "events"):
        with pytest.raises(NotRecordedError, match="record: events"):
            getattr(results, name)


def test_an_unknown_run_names_those_there_are(results: Results):
    with pytest.raises(ResultsError, match=r"no run of protocol 'sync'(.|\n)*protocols wait, ignore"):
        results.run("sync", 0)


def test_an_absent_folder_is_named(tmp_path: Path):
    with pytest.raises(ResultsError, match="no such folder") as caught:
        Results.open(tmp_path / "nowhere")
    assert "nowhere" in str(caught.value)


def test_a_folder_without_a_scenario_is_refused(tmp_path: Path):
    with pytest.raises(ResultsError, match=r"no scenario\.yaml"):
        Results.open(tmp_path)


def test_a_folder_without_runs_is_refused(tmp_path: Path):
    (tmp_path / "scenario.yaml").write_text("protocols: {wait: {kind: synchronous}}\n")
    with pytest.raises(ResultsError, match="holds no run"):
        Results.open(tmp_path)


@pytest.mark.parametrize("text", ["protocols: [", "- 1\n", "name: a\n", "\x00"])
def test_a_damaged_scenario_is_named(copied: Path, text: str):
    (copied / "scenario.yaml").write_text(text)
    with pytest.raises(ResultsError, match=r"scenario\.yaml: damaged"):
        Results.open(copied)


@pytest.mark.parametrize("text", ["{", "{}", None])
def test_a_damaged_run_page_is_named(copied: Path, text: str | None):
    page = copied / "wait" / "seed-0" / "run.json"
    page.unlink() if text is None else page.write_text(text)
    with pytest.raises(ResultsError, match=r"seed-0/run\.json: damaged"):
        Results.open(copied)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda page: page.update(weather="fine"), "weather: Extra inputs are not permitted"),
        (lambda page: page["conditions"].pop("labels"), "conditions.labels: Field required"),
        (lambda page: page.update(threads="many"), "threads: Input should be a valid integer"),
    ],
)
def test_a_run_page_of_another_version_is_no_damage(copied: Path, change: Callable[[Any], object], key: str) -> None:
    path = copied / "wait" / "seed-0" / "run.json"
    page = json.loads(path.read_text())
    page["versions"]["vflsim"] = "9.1.0"
    if page.get("conditions") is None:
        page["conditions"] = {
            "features": 1, "features_in_data": 1, "labels": "server", "client_optimizers": [],
            "server_optimizers": [], "local_steps": 1,
        }  # fmt: skip
    change(page)
    path.write_text(json.dumps(page))
    with pytest.raises(ResultsError) as caught:
        Results.open(copied)
    assert caught.value.what.startswith(f"cannot be read by vflsim {__version__}: {key}")
    assert "vflsim 9.1.0 has written this run" in caught.value.remedy
    assert "delete" not in str(caught.value)


def test_a_key_that_this_version_does_not_write_is_named(copied: Path) -> None:
    path = copied / "wait" / "seed-0" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "weather": "fine"}))
    with pytest.raises(ResultsError, match=r"damaged: weather: Extra inputs are not permitted"):
        Results.open(copied)


def test_a_run_under_another_ones_name_is_refused(copied: Path):
    shutil.rmtree(copied / "wait" / "seed-1")
    shutil.copytree(copied / "wait" / "seed-0", copied / "wait" / "seed-1")
    with pytest.raises(ResultsError, match="belongs to wait/seed-0"):
        Results.open(copied)


@pytest.mark.parametrize("name", ["metrics", "rounds", "events"])
def test_a_truncated_table_is_named(copied: Path, name: str):
    path = copied / "wait" / "seed-0" / f"{name}.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ResultsError, match=rf"{name}\.parquet: damaged"):
        getattr(Results.open(copied), name)


def test_truncated_weights_are_named(copied: Path):
    (copied / "wait" / "seed-0" / "weights.safetensors").write_bytes(b"12345678")
    with pytest.raises(ResultsError, match=r"weights\.safetensors: damaged"):
        Results.open(copied).weights("wait", 0)


def test_a_run_without_messages_joins_the_others() -> None:
    """Its peers are null throughout, so its categories have no type of their own."""
    talkative = pd.DataFrame({"peer": pd.Categorical(["server", None, "client-1"])})
    silent = pd.DataFrame({"peer": pd.Categorical([None, None])})
    together = _joined([silent, talkative])
    assert together["peer"].isna().tolist() == [True, True, False, True, False]
    assert together["peer"].dropna().tolist() == ["server", "client-1"]
    assert together["peer"].dtype == "category"


@pytest.mark.filterwarnings("error::pandas.errors.PerformanceWarning")
def test_runs_with_many_columns_of_their_own_take_more_columns_without_a_warning() -> None:
    """As a protocol with a metric for each of many clients has them: pandas warns of frames in many pieces."""
    plain = pd.DataFrame({"protocol": pd.Categorical(["wait"]), "loss": [1.0], "round": [1], "age": [0.0]})
    heads = {f"test_accuracy.client-{m}": [0.5] for m in range(120)}
    many = pd.DataFrame({"protocol": pd.Categorical(["laser"]), "loss": [2.0], "round": [1], **heads, "age": [0.0]})
    together = _joined([plain, many, plain.copy()])
    assert together.assign(bytes=0).shape == (3, 125)


def test_results_opened_again_know_the_summary_and_read_the_tables_anew(copied: Path):
    results = Results.open(copied)
    summary, metrics = results.estimates(), results.metrics
    again = results.reopened()
    for path in copied.glob("*/seed-*/metrics.parquet"):
        path.write_bytes(b"")
    pd.testing.assert_frame_equal(again.estimates(), summary)
    pd.testing.assert_frame_equal(results.metrics, metrics)
    with pytest.raises(ResultsError, match=r"metrics\.parquet"):
        _ = again.metrics
