import json
import runpy
import shutil
from pathlib import Path

import pytest

from vflsim.errors import ResultsError
from vflsim.plotting.script import metric_panels
from vflsim.results import Results
from vflsim.results.sweeps import Sweep

SCRIPT = Path(__file__).parents[2] / "plots" / "panels.py"


def shown(figure):
    return [axes for axes in figure.axes if axes.get_visible()]


def test_every_results_folder_has_a_panel_and_the_rest_of_the_last_row_is_empty(results: Results):
    figure = metric_panels([results] * 4, columns=3, titles=["first"])
    assert len(figure.axes) == 6
    assert [axes.get_title("left") for axes in shown(figure)] == ["first", *[results.name] * 3]
    assert all(axes.get_xlabel() == "virtual time [s]" for axes in shown(figure))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(results.protocols)


def test_a_protocol_looks_the_same_in_all_panels(results: Results):
    figure = metric_panels([results] * 2, columns=2)
    colors = [[line.get_color() for line in axes.get_lines()] for axes in shown(figure)]
    assert colors[0] == colors[1]
    assert len(set(colors[0])) == len(results.protocols)


def test_a_sweep_has_a_panel_for_each_value(toy_folder: Path, tmp_path: Path):
    for name in ("mean", "max"):
        shutil.copytree(toy_folder, tmp_path / name)
    points = [{"values": [name], "folder": name, "finished": True} for name in ("mean", "max")]
    page = {"scenario": "toy", "keys": ["models.aggregate"], "timing_only": False, "points": points}
    (tmp_path / "sweep.json").write_text(json.dumps(page))
    titles = [axes.get_title("left") for axes in shown(metric_panels([Sweep.open(tmp_path)]))]
    assert titles == ["toy: mean", "toy: max"]


def test_a_metric_that_was_not_evaluated_is_an_error(results: Results):
    with pytest.raises(ResultsError, match="'test_auc' was not evaluated"):
        metric_panels([results], metric="test_auc")


def test_the_script_takes_several_folders_and_writes_into_the_first(toy_folder: Path, tmp_path: Path, monkeypatch):
    folders = [shutil.copytree(toy_folder, tmp_path / name) for name in ("one", "two")]
    monkeypatch.setattr("sys.argv", [str(SCRIPT), "fedvs_fig2", *map(str, folders)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert (tmp_path / "one" / "fedvs_fig2.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "two" / "fedvs_fig2.png").exists()
