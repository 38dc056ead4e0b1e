"""Views in scenarios and in results: how they are asked for, refused, stored, verified and counted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_worlds import data_of, raw, tiny

from vflsim.errors import ResultsError, ScenarioError
from vflsim.results import verify_folder
from vflsim.results.read import NotRecordedError, Results
from vflsim.scenario import dump, load
from vflsim.scenario.resolve import setting
from vflsim.scenario.sections import Recording, ViewRecording
from vflsim.studies.checks.sizes import run_size, size_of
from vflsim.studies.study import run_study

SHORT = {"stop": {"rounds": 3}, "evaluate": {"every": "3 rounds"}}


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("summary", Recording(tables="summary")),
        ({"views": 7}, Recording(views=ViewRecording(rows=7))),
        (
            {"tables": "rounds", "views": "512 rows"},
            Recording(tables="rounds", views=ViewRecording(rows=512, keep="last")),
        ),
        ({"views": "1 row"}, Recording(views=ViewRecording(rows=1))),
        ({"views": {"rows": "512 rows", "keep": "all"}}, Recording(views=ViewRecording(rows=512, keep="all"))),
        ({"views": {"rows": 3}}, Recording(views=ViewRecording(rows=3))),
    ],
)
def test_a_scenario_says_what_to_record_and_is_written_as_it_was(said: object, means: Recording) -> None:
    scenario = tiny(record=said)
    assert scenario.record == means
    assert scenario.document.raw["record"] == said
    assert "record:" in dump(scenario)


@pytest.mark.parametrize(
    "said",
    [
        "everything",
        {"views": "0 rows"},
        {"views": "all rows"},
        {"view": 5},
        {"views": True},
        {"views": {"keep": "all"}},
        {"views": {"rows": 5, "keep": "some"}},
        {"views": {"rows": 0}},
    ],
)
def test_other_recordings_are_refused(said: object) -> None:
    with pytest.raises(ScenarioError, match="record"):
        load(raw(record=said))


def test_a_study_keeps_its_views_and_verify_covers_them(tmp_path: Path) -> None:
    results = run_study(
        tiny(record={"tables": "summary", "views": "100000 rows"}, **SHORT), out=tmp_path / "it"
    ).results
    assert results is not None
    (run,) = results.runs
    views = run.views()
    assert views.rows.tolist() == list(range(90))  # all, where there are fewer
    (up,) = [view for view in views.of_receiver("server") if view.sender == "client-2"]
    assert (up.kind, up.name, up.derived, up.mixed) == ("embedding", "", False, None)
    assert up.values.shape == (90, 6)
    assert not torch.isnan(up.values[up.received]).any()
    assert 0 < up.received.sum() < 90
    assert verify_folder(results.folder) == []
    file = run.folder / "views.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert any("views.safetensors has changed" in problem for problem in verify_folder(results.folder))
    file.write_bytes(whole[:100])
    with pytest.raises(ResultsError, match=r"views\.safetensors"):
        Results.open(results.folder).runs[0].views()
    file.unlink()
    assert any("views.safetensors is missing" in problem for problem in verify_folder(results.folder))
    with pytest.raises(NotRecordedError, match="views: 512 rows"):
        run.views()


@pytest.mark.parametrize("path", ["auto", "event", "vectorised"])
def test_without_training_there_are_no_views(path: str, tmp_path: Path) -> None:
    scenario = tiny(record={"tables": "summary", "views": 5}, **SHORT)
    with pytest.raises(ScenarioError, match="timing-only run has no values"):
        run_study(scenario, out=tmp_path / "it", timing_only=True, path=path)  # type: ignore[arg-type]
    assert not (tmp_path / "it").exists()


def test_views_count_for_memory() -> None:
    scenario = tiny()
    protocol, resolved = scenario.protocols["synchronous"].protocol, setting(scenario, "synchronous", data_of(scenario))
    some_rows, every_row = ViewRecording(rows=10), ViewRecording(rows=10**6)
    without, some, all_rows = (size_of(protocol, resolved, views).bytes for views in (None, some_rows, every_row))
    assert some - without == 4 * 2 * 10 * 6 * 8  # clients, up and down, rows, width, float64
    assert all_rows - without == 9 * (some - without)


def test_views_of_all_epochs_count_as_often_as_messages_arrive() -> None:
    """Four clients, 90 rows, batches of 30: 9 rounds are 3 epochs, and a fourth may have begun.

    All views count twice: as they arrive, and joined to be written.
    """

    def viewed(keep: str, **said: object) -> int:
        scenario = tiny(record={"views": {"rows": 10, "keep": keep}}, **said)
        return run_size(scenario, "synchronous", setting(scenario, "synchronous", data_of(scenario))).parts["views"]

    once = 4 * 2 * 10 * 6 * 8
    assert viewed("last", stop={"epochs": 7}) == once
    assert viewed("all", stop={"epochs": 7}) == 2 * 8 * once
    assert viewed("all", stop={"epochs": 7, "rounds": 9}, training__batch=30) == 2 * 4 * once
    assert viewed("all", stop={"epochs": 7, "updates": 24}, training__batch=30) == 2 * 3 * once


def test_views_of_all_epochs_need_a_limit_and_room(tmp_path: Path) -> None:
    record = {"views": {"rows": 90, "keep": "all"}}
    with pytest.raises(ScenarioError, match=r"(?s)nothing limits those of protocol 'synchronous'.*add `epochs: 30`"):
        load(raw(record=record, stop={"time": "10 s"}, timing={"server": {"compute": "1 ms"}}))
    with pytest.raises(ScenarioError, match=r"(?s)synchronous needs about .* \(views .*keep: last"):
        run_study(tiny(record=record, stop={"epochs": 10**10}), out=tmp_path / "it")
    assert not (tmp_path / "it").exists()
