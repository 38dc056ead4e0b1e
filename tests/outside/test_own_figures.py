"""A figure by path: ``vflsim plot`` draws it like those of vflsim, and tells what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended
from tiny_worlds import raw

import vflsim
from vflsim.errors import ResultsError
from vflsim.results.read import Results

Vflsim = Callable[..., Ended]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    protocols = {"wait": {"kind": "synchronous"}, "two": {"kind": "ignore", "fastest": 2}}
    said = raw(protocols, record="rounds", stop={"rounds": 6})
    return vflsim.run(said, out=tmp_path_factory.mktemp("figures") / "out")


def test_it_draws_results_with_its_own_options(results: Results) -> None:
    drawn = vflsim.plot(results, "own_figures:Clients")
    numbers = drawn.numbers["rounds"]
    assert set(numbers[numbers["protocol"] == "two"]["clients"]) == {2}
    assert set(numbers[numbers["protocol"] == "wait"]["clients"]) == {4}
    assert len(vflsim.plot(results, "own_figures:Clients", every=3).numbers["rounds"]) == len(numbers) // 3
    only = vflsim.plot(results, "own_figures:Clients", protocols=["two"], size=(4.0, 2.0))
    assert set(only.numbers["rounds"]["protocol"]) == {"two"}
    assert tuple(only.get_size_inches()) == (4.0, 2.0)


def test_equal_figures_give_equal_bytes(results: Results) -> None:
    assert vflsim.plot(results, "own_figures:Clients").png() == vflsim.plot(results, "own_figures:Clients").png()


def test_the_command_line_draws_it_beside_others(results: Results, tmp_path: Path, vflsim: Vflsim) -> None:
    ended = vflsim("plot", results.folder, "--kind", "own_figures:Clients", "--out", tmp_path / "it.svg")
    assert ended.status == 0, ended.err
    assert (tmp_path / "it.svg").read_bytes().startswith(b"<?xml")
    ended = vflsim("plot", results.folder, "--kind", "own_figures:Clients", "--kind", "durations", "--out", tmp_path)
    assert ended.status == 0, ended.err
    assert {"clients.png", "durations.png"} <= {path.name for path in tmp_path.iterdir()}


def test_a_class_in_the_current_folder_is_found(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (Path(__file__).parents[1] / "support" / "own_figures.py").read_text()
    (tmp_path / "figures_of_this_folder.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    assert vflsim.plot(results, "figures_of_this_folder:Clients").numbers


WRONG = {
    "own_figures:Nothing": r"Nothing\.draw returned a NoneType(.|\n)*a Picture",
    "own_figures:Raises": r"the figure Raises fails: LookupError: no such frame(.|\n)*own_figures\.py:\d+, draw",
    "own_figures:NoDraw": r"NoDraw lacks the methods draw(.|\n)*define them",
    "own_figures:Picture": r"Picture is a class but no Figure(.|\n)*vflsim\.protocol\.Figure",
    "own_figures:Missing": r"own_figures:Missing does not exist",
    "nowhere_at_all:Clients": r"no module named nowhere_at_all(.|\n)*current folder",
    "own_figures:not a name": r"not a Python import path|does not exist",
    "clients": r"there is no figure 'clients'(.|\n)*by path, as mine:Clients",
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_told(kind: str, results: Results) -> None:
    with pytest.raises(ResultsError, match=WRONG[kind]):
        vflsim.plot(results, kind)


def test_wrong_options_are_told(results: Results, vflsim: Vflsim) -> None:
    from vflsim.plotting import plot

    with pytest.raises(ResultsError, match=r"has no option 'some'(.|\n)*every"):
        plot(results, "own_figures:Clients", some=3)
    with pytest.raises(ResultsError, match=r"Clients\.every: .*0 is out of range|Clients\.every"):
        plot(results, "own_figures:Clients", every=0)
    ended = vflsim("plot", results.folder, "--kind", "own_figures:Clients", "--metric", "test_loss")
    assert ended.status == 2
    assert "has no --metric" in ended.err
