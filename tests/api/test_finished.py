"""``report``, ``trace``, ``evaluate`` and ``explain`` in Python do what they do on the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from command_line import Ended
from tiny_worlds import raw

import vflsim
from vflsim.errors import ResultsError, ScenarioError

HEADS = {"kind": "vimsgd", "models": {"aggregate": "concat", "server": {"kind": "linear", "bias": False}}}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api") / "mine"
    vflsim.run(raw({"heads": HEADS}, stop={"rounds": 4}, record="events"), folder, progress=False)
    return folder


def test_a_trace_has_the_bytes_of_the_commands(results: Path, tmp_path: Path, vflsim: Callable[..., Ended]) -> None:
    import vflsim as package

    assert vflsim("trace", results, "--out", tmp_path / "one.json").status == 0
    place = package.trace(results, tmp_path / "other.json", protocol="heads", seed=0)
    assert json.loads(place.read_text()) == json.loads((tmp_path / "one.json").read_text())
    with pytest.raises(ResultsError):
        package.trace(results, protocol="another")


def test_explanations_are_those_of_the_command(results: Path, tmp_path: Path, vflsim: Callable[..., Ended]) -> None:
    import vflsim as package

    assert vflsim("explain", results, "--tsne-rows", 0, "--out", tmp_path / "it").status == 0
    found = package.explain(results, tsne_rows=0)
    written = pd.concat(pd.read_parquet(path) for path in (tmp_path / "it").glob("clients.parquet"))
    assert written["weight_norm"].tolist() == found.clients["weight_norm"].tolist()
    with pytest.raises(ScenarioError, match="there is no protocol 'haeds'"):
        package.explain(results, protocols=["haeds"])


def test_attacks_are_chosen_by_name_and_option(results: Path) -> None:
    found = vflsim.evaluate(results, ["pgd"], ["pgd.omega=1"], seeds=[0])
    assert set(found.tables) == {"pgd"}
    assert set(found.tables["pgd"]["seed"]) == {0}
    with pytest.raises(ScenarioError, match="there is no seed '7'"):
        vflsim.evaluate(results, seeds=[7])


@pytest.mark.slow
def test_a_report_lies_in_its_folder_or_where_one_says(results: Path, tmp_path: Path) -> None:
    assert vflsim.report(results) == results / "report.html"
    both = vflsim.report([vflsim.open_results(results)], tmp_path / "both.html", baseline="heads")
    assert "<title>" in both.read_text()
    with pytest.raises(ResultsError, match="is named twice"):
        vflsim.report([results, vflsim.open_results(results)], tmp_path / "twice.html")


def test_no_verb_has_the_name_of_a_folder() -> None:
    """Importing a folder binds its name in the package, and would replace the verb."""
    folders = {path.stem for path in Path(vflsim.__file__).parent.iterdir() if path.name != "__init__.py"}
    assert not folders & set(vflsim.__all__)
