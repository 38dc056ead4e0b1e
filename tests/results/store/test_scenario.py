"""Results from others: no command runs code that a results folder names, unless it is told to trust it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Ended
from swept import run_sweep
from tampering import edit, relist
from tiny_worlds import raw
from typer.main import get_command

import vflsim as package
from vflsim import load
from vflsim.attacks import chosen, evaluate as evaluate_runs
from vflsim.cli import app
from vflsim.errors import ResultsError
from vflsim.explaining import explain as explain_runs
from vflsim.exporting.trackers import logs_of
from vflsim.reporting.serving import Follower
from vflsim.results import verify_folder
from vflsim.results.read import JoinedResults, Results
from vflsim.scenario.own_modules import look_in_folder
from vflsim.studies.study import run_study

Vflsim = Callable[..., Ended]
NAME = "brought_along"
MODULE = """
from pathlib import Path
from typing import Literal

from torch import nn

from vflsim.plotting import picture
from vflsim.protocol import Figure
from vflsim.protocols.synchronous import Synchronous

(Path(__file__).parent / "marker").write_text("this code has run")


class Tower(nn.Sequential):
    def __init__(self, feature_shape, embedding):
        super().__init__(nn.Flatten(), nn.Linear(feature_shape[0], embedding))


class Wait(Synchronous):
    kind: Literal["brought"] = "brought"


class Shown(Figure):
    kind: Literal["shown"] = "shown"

    def draw(self, results):
        with picture(2, 2, {}) as figure:
            figure.subplots()
        return figure
"""
QUICK = ("pgd.steps=2", "pgd.omega=1", "pgd.step=0.5")
TOWER = {"kind": "module", "path": f"{NAME}:Tower", "embedding": 4}
MODELS = {"client": TOWER, "aggregate": "concat", "server": {"kind": "linear", "bias": False}}
WAIT = {"wait": {"kind": "module", "path": f"{NAME}:Wait", "models": MODELS}}


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with results, a sweep, and the module that made them."""
    folder = tmp_path_factory.mktemp("sent")
    (folder / f"{NAME}.py").write_text(MODULE)
    own = {"modules": str(folder), "stop": {"rounds": 4}, "seeds": [0]}
    with pytest.MonkeyPatch.context() as patch:
        forget(patch)
        assert run_study(load(raw(WAIT, **own)), folder / "study").failures == {}
        timed = {**own, "timing": raw(WAIT)["timing"] | {"server": {"compute": "0.001 s"}}}
        run_study(load(raw(WAIT, **timed)), folder / "other")
        run_sweep(raw(WAIT, **own), "training.batch", [10, 20], out=folder / "sweep")
    return folder


def forget(patch: pytest.MonkeyPatch) -> None:
    """Do as a new process does: the module has not been imported, and Python does not look for it anywhere."""
    patch.setattr(sys, "path", [*sys.path])
    patch.delitem(sys.modules, NAME, raising=False)


@pytest.fixture
def received(sent: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (sent / "marker").unlink(missing_ok=True)
    forget(monkeypatch)
    yield sent
    sys.modules.pop(NAME, None)


@pytest.fixture
def copied(received: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(received / "study", tmp_path / "study"))


COMMANDS: dict[str, tuple[str, ...]] = {
    "verify": ("verify", "study"),
    "verify a sweep": ("verify", "sweep"),
    "compare": ("compare", "study"),
    "compare two": ("compare", "study", "other"),
    "compare a sweep": ("compare", "sweep"),
    "plot": ("plot", "study", "--kind", "rounds", "--out", "OUT/rounds.svg"),
    "plot a sweep": ("plot", "sweep", "--out", "OUT"),
    "report": ("report", "study", "--out", "OUT/report.html"),
    "report of two": ("report", "study", "other", "--out", "OUT/report.html"),
    "trace": ("trace", "study", "--out", "OUT/trace.json"),
}
REFUSED: dict[str, tuple[str, ...]] = {
    "evaluate": ("evaluate", "study", "--out", "OUT", "--attack", "pgd", *(f"--set={option}" for option in QUICK)),
    "explain": ("explain", "study", "--out", "OUT", "--tsne-rows", "0"),
    "calibrate": ("calibrate", "study", "--out", "OUT/found.yaml"),
    "verify --rerun": ("verify", "study", "--rerun"),
    "verify --rerun a sweep": ("verify", "sweep", "--rerun"),
    "replay": ("replay", "study", "--out", "OUT/again"),
    "plot a figure from there": ("plot", "study", "--kind", f"{NAME}:Shown", "--out", "OUT/it.svg"),
    "plot a figure from there, of a sweep": ("plot", "sweep", "--kind", f"{NAME}:Shown", "--out", "OUT/it.svg"),
}
"""Commands that need a module of the results, or may name one."""
OF_SCENARIOS = {
    "analyze", "check", "collect", "data", "delays", "explore", "keys", "list", "live", "new", "party", "plan", "run",
    "scenarios", "schema", "sweep", "timing", "tune", "work",
}  # fmt: skip
"""Commands that import what the scenario names that they are given."""


def test_every_command_that_reads_results_is_tried_here() -> None:
    tried = {each[0] for each in (*COMMANDS.values(), *REFUSED.values())}
    assert tried | OF_SCENARIOS | {"export", "watch"} == {*get_command(app).commands}  # type: ignore[attr-defined]
    assert not tried & OF_SCENARIOS


def _said(command: tuple[str, ...], received: Path, out: Path) -> list[str]:
    places = {"study", "other", "sweep"}
    return [str(received / each) if each in places else each.replace("OUT", str(out)) for each in command]


@pytest.mark.usefixtures("unrendered")
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", REFUSED)
def test_commands_that_need_a_module_of_results_ask_for_trust(
    name: str, received: Path, tmp_path: Path, vflsim: Vflsim
) -> None:
    said = _said(REFUSED[name], received, tmp_path)
    ended = vflsim(*said)
    assert ended.status == 2
    for words in ("scenario.yaml", f"{NAME} ({received / NAME}.py)", "repeat the command with --trust"):
        assert words in ended.err
    assert not (received / "marker").exists()
    vflsim(*said, "--trust")  # it may end in another error: these results lack events, and are not live
    assert (received / "marker").exists()


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_that_need_no_module_import_none(name: str, received: Path, tmp_path: Path, vflsim: Vflsim) -> None:
    ended = vflsim(*_said(COMMANDS[name], received, tmp_path))
    assert ended.status == 0, ended.err
    assert not (received / "marker").exists()


@pytest.mark.usefixtures("unrendered")
def test_a_page_that_is_watched_imports_no_module(received: Path) -> None:
    assert "wait" in Follower(received / "study").page()
    assert not (received / "marker").exists()


REBUILDS: dict[str, Callable[[Results], object]] = {
    "model": lambda results: results.model("wait"),
    "evaluate": lambda results: evaluate_runs(results, chosen(["pgd"], QUICK)),
    "explain": lambda results: explain_runs(results, rows=0),
    "plot": lambda results: package.plot(results, f"{NAME}:Shown"),
}


@pytest.mark.parametrize("name", REBUILDS)
def test_python_rebuilds_models_of_received_results_only_with_trust(name: str, received: Path) -> None:
    with pytest.raises(ResultsError, match=r"open_results\(.*study', trust=True\)"):
        REBUILDS[name](package.open_results(received / "study"))
    assert not (received / "marker").exists()
    assert REBUILDS[name](package.open_results(received / "study", trust=True)) is not None


def test_compared_results_are_trusted_one_by_one(received: Path) -> None:
    joint = package.compare([package.open_results(received / "study", trust=True), received / "other"])
    with pytest.raises(ResultsError, match=r"other/scenario\.yaml: names modules"):
        joint.model("wait (other)")
    assert not (received / "marker").exists()
    assert joint.model("wait (study)").score()


def test_results_of_ones_own_run_need_no_further_trust(received: Path, tmp_path: Path) -> None:
    own = load(raw(WAIT, modules=str(received), stop={"rounds": 2}, seeds=[0]))
    assert package.run(own, tmp_path / "own").model("wait").score()


@pytest.mark.parametrize("name", ["study", "sweep"])
def test_an_export_imports_no_module(name: str, received: Path) -> None:
    assert all([*log.rows] for log in logs_of(received / name))  # what every tracker is given
    assert not (received / "marker").exists()


TAMPERINGS: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "the scenario": (
        lambda study, module: (study / "scenario.yaml").write_text((study / "scenario.yaml").read_text() + "# new\n"),
        "scenario.yaml has changed since it was written",
    ),
    "the run's page": (
        lambda study, module: edit(study / "wait/seed-0/run.json", lambda page: page.update(wall_clock_s=1)),
        "wait/seed-0/run.json has changed since it was written",
    ),
    "the weights": (
        lambda study, module: (study / "wait/seed-0/weights.safetensors").write_bytes(b"none"),
        "weights.safetensors has changed since it was written",
    ),
    "the module": (
        lambda study, module: module.write_text(f"{MODULE}\n# and more\n"),
        f"{NAME}.py has changed since it was written",
    ),
}


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("name", TAMPERINGS)
def test_changed_results_are_refused_before_a_module_is_imported(
    name: str, trust: bool, received: Path, copied: Path
) -> None:
    change, sentence = TAMPERINGS[name]
    try:
        change(copied, received / f"{NAME}.py")
        with pytest.raises(ResultsError, match=sentence):
            REBUILDS["model"](package.open_results(copied, trust=trust))
        assert not (received / "marker").exists()
    finally:
        (received / f"{NAME}.py").write_text(MODULE)


def test_a_command_named_as_a_model_is_not_called(received: Path, copied: Path) -> None:
    text = (copied / "scenario.yaml").read_text()
    harm = f'{{kind: module, path: "os:system", arguments: {{command: "touch {received}/marker"}}, embedding: 4}}'
    harmful = text.replace(f"modules: {received}\n", "") + f"codec: {harm}\n"
    (copied / "scenario.yaml").write_text(harmful)
    relist(copied)
    with pytest.raises(ResultsError, match=rf"os \(.*\), {NAME}|{NAME} \(.*\), os \("):
        package.open_results(copied).model("wait")
    assert not (received / "marker").exists()


def test_a_study_in_a_folder_of_received_results_imports_none_of_their_modules(
    received: Path, copied: Path, vflsim: Vflsim
) -> None:
    longer = load(raw({"wait": {"kind": "synchronous"}}, stop={"rounds": 2}, seeds=[0]))
    run_study(longer, copied)
    assert not (received / "marker").exists()


def test_a_folder_of_modules_that_nothing_names_is_not_searched(tmp_path: Path) -> None:
    assert look_in_folder({"modules": str(tmp_path)}) == []
    assert str(tmp_path) not in sys.path


def test_two_received_studies_with_a_module_are_compared_as_written(received: Path) -> None:
    joint = JoinedResults.of([Results.open(received / each) for each in ("study", "other")])
    assert "timing.server" in joint.unpaired("wait (study)", "wait (other)")
    assert not (received / "marker").exists()


def test_modules_of_models_do_not_keep_studies_from_being_paired(received: Path, tmp_path: Path) -> None:
    other = load(raw({"async": {"kind": "asynchronous"}}, stop={"rounds": 4}, seeds=[0]))
    run_study(other, tmp_path / "own")
    joint = JoinedResults.of([Results.open(received / "study"), Results.open(tmp_path / "own")])
    assert joint.unpaired("wait", "async") == ""


def test_the_module_made_sound_results(received: Path) -> None:
    assert verify_folder(received / "study") == []
