"""Sweeps: every value's results are those of a run with that override, and whatever stops a sweep loses nothing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from interrupted_steps import interrupt_at
from swept import run_sweep
from tiny_worlds import raw

from vflsim.errors import DataError, ResultsError, ScenarioError
from vflsim.results import Results
from vflsim.results.sweeps import Sweep, SweepPage
from vflsim.results.sweeps.table import measure_tables, sweep_tables
from vflsim.results.verify import verify_folder
from vflsim.scenario import load
from vflsim.studies.plan import folder_names
from vflsim.studies.pool import Study
from vflsim.studies.runs.progress import StudyRun, Watcher
from vflsim.studies.study import run_study
from vflsim.studies.sweep import Step, SweepWatcher
from vflsim.vocabulary.execution_options import RunOptions

KEY = "protocols.fast.t"
BOTH = {"wait": {"kind": "synchronous"}, "fast": {"kind": "t_synchronous", "t": 2}}


def said(**changes: Any) -> dict[str, Any]:
    return raw(BOTH, **{"stop": {"rounds": 4}, "seeds": [0], "record": "rounds", **changes})


class Listening(SweepWatcher):
    """Remembers the runs that began, and what became of earlier points; raises an interrupt at a run."""

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.runs: list[tuple[str, str, int]] = []
        self.gone: list[str] = []
        self.stay = 0
        self._interrupt_at = interrupt_at

    def grown(self, stay: int, gone: Sequence[str]) -> None:
        self.stay, self.gone = stay, [*gone]

    def watching(self, step: Step) -> Watcher:
        outer = self

        class Noting(Watcher):
            def began(self, run: StudyRun) -> None:
                if len(outer.runs) == outer._interrupt_at:
                    raise KeyboardInterrupt
                outer.runs.append((step.setting, run.protocol, run.seed))

        return Noting()


def swept(out: Path, values: list[int], world: dict[str, Any], timing_only: bool = True, **how: Any) -> Listening:
    watcher = Listening(how.pop("interrupt_at", None))
    run_sweep(world, KEY, values, out=out, timing_only=timing_only, watcher=watcher, options=RunOptions(**how))
    return watcher


def tables(out: Path) -> dict[str, bytes]:
    """The tables of the points of a sweep, without those of earlier scenarios."""
    points = {point.folder for point in SweepPage.read(out).points}
    found = {path.relative_to(out): path for path in out.rglob("*.parquet")}
    kept = {name: path for name, path in found.items() if name.parts[0] in points and "earlier" not in name.parts}
    return {name.as_posix(): path.read_bytes() for name, path in kept.items()}


def everything(out: Path) -> set[bytes]:
    return {path.read_bytes() for path in out.rglob("seed-*/*.parquet")}


_known: dict[str, Path] = {}


def computed(values: list[int], world: dict[str, Any], timing_only: bool = True) -> Path:
    """A folder with a finished sweep, computed once."""
    key = json.dumps([values, world, timing_only])
    if key not in _known:
        _known[key] = Path(mkdtemp()) / "out"
        swept(_known[key], values, world, timing_only)
    return _known[key]


def begin(out: Path, values: list[int], world: dict[str, Any], timing_only: bool = True) -> None:
    """Place a finished sweep in a new folder, as if it had been computed there."""
    shutil.copytree(computed(values, world, timing_only), out, symlinks=True)


def assert_like_fresh(out: Path, values: list[int], world: dict[str, Any], timing_only: bool = True) -> None:
    fresh = computed(values, world, timing_only)
    assert tables(out) == tables(fresh)
    assert SweepPage.read(out) == SweepPage.read(fresh)
    assert verify_folder(out) == []


def test_the_same_sweep_again_computes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert len(swept(out, [1, 3], said()).runs) == 3
    assert swept(out, [1, 3], said()).runs == []
    assert_like_fresh(out, [1, 3], said())


@pytest.mark.slow
def test_more_values_and_seeds_compute_what_is_missing(tmp_path: Path) -> None:
    out, more = tmp_path / "out", said(seeds=[0, 1])
    begin(out, [1, 3], said())
    grown = swept(out, [1, 2, 3], more)
    assert (grown.stay, grown.gone) == (2, [])
    assert set(grown.runs) == {
        ("t = 1", "wait", 1),
        ("t = 1", "fast", 1),
        ("t = 2", "fast", 0),
        ("t = 2", "fast", 1),
        ("t = 3", "fast", 1),
    }
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert_like_fresh(out, [1, 2, 3], more)


@pytest.mark.slow
def test_values_that_are_gone_are_named_and_are_there_when_they_are_asked_for_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    begin(out, [1, 2, 3], said())
    grown = swept(out, [3, 4], said())  # the runs of wait, done at t = 1, are kept at t = 3
    assert (grown.stay, grown.gone) == (1, ["t = 1", "t = 2"])
    assert grown.runs == [("t = 4", "fast", 0)]
    assert_like_fresh(out, [3, 4], said())
    assert swept(out, [1, 2, 3], said()).runs == []
    assert_like_fresh(out, [1, 2, 3], said())


@pytest.mark.slow
def test_a_later_end_keeps_the_shorter_runs_which_return(tmp_path: Path) -> None:
    out, longer = tmp_path / "out", said(stop={"rounds": 6})
    swept(out, [1, 3], said(), timing_only=False)
    before = everything(out)
    swept(out, [1, 3], longer, timing_only=False)
    assert before < everything(out)
    assert {path.name for path in out.iterdir()} == {"sweep.json", "t-1", "t-3"}
    assert_like_fresh(out, [1, 3], longer, timing_only=False)
    assert swept(out, [1, 3], said(), timing_only=False).runs == []
    assert_like_fresh(out, [1, 3], said(), timing_only=False)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("run", [0, 1, 2])
def test_a_sweep_that_is_interrupted_while_it_grows_loses_nothing(run: int, tmp_path: Path) -> None:
    out, longer = tmp_path / "out", said(stop={"rounds": 6})
    begin(out, [1, 2, 3], said())
    before = everything(out)
    with pytest.raises(KeyboardInterrupt):
        swept(out, [2, 3, 4], longer, interrupt_at=run)
    assert before <= everything(out)
    assert Sweep.open(out).values
    swept(out, [2, 3, 4], longer)
    assert_like_fresh(out, [2, 3, 4], longer)


def test_anew_and_training_after_timing_alone_keep_no_value(tmp_path: Path) -> None:
    out = tmp_path / "out"
    swept(out, [1], said())
    assert len(swept(out, [1], said(), anew=True).runs) == 2
    assert len(swept(out, [1], said(), timing_only=False).runs) == 2
    assert len([*(out / "t-1" / "earlier").iterdir()]) == 2


def test_pages_of_another_sweep_are_kept_and_return_with_an_interruption(tmp_path: Path) -> None:
    out = tmp_path / "out"
    begin(out, [1, 2], said())
    (out / "figure.png").write_text("drawn")
    before = files(out)
    with pytest.raises(KeyboardInterrupt):
        swept(out, [3], said(), interrupt_at=0)
    assert files(out) == before
    swept(out, [3], said())
    (place,) = (out / "earlier").iterdir()
    assert {path.name for path in place.iterdir()} == {"figure.png", "sweep.json"}
    assert verify_folder(out) == []


def test_resuming_refuses_other_values(tmp_path: Path) -> None:
    swept(tmp_path / "out", [1], said())
    with pytest.raises(ResultsError, match="another scenario"):
        swept(tmp_path / "out", [1, 2], said(), resume=True)


VALUES = [1, 3]


def said_world(**changes: object) -> dict:
    return raw(BOTH, **{"stop": {"rounds": 6}, "seeds": [0, 1], "record": "rounds", **changes})


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def sweep_tables_of(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in files(folder).items() if name.endswith(".parquet")}


# --- what it writes ---------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("timing_only", [False, True])
def test_each_value_has_the_results_of_a_run_with_that_override(timing_only: bool, tmp_path: Path) -> None:
    done = run_sweep(said_world(), KEY, VALUES, ["seeds=[3]"], tmp_path / "sweep", timing_only=timing_only)
    assert done.failures == {}
    for value, found in done.sweep:
        alone = tmp_path / f"alone-{value}"
        run_study(load(said_world(seeds=[3]), {KEY: value}), alone, timing_only=timing_only)
        assert sweep_tables_of(found.folder) == sweep_tables_of(alone)
        assert (found.folder / "scenario.yaml").read_bytes() == (alone / "scenario.yaml").read_bytes()


def test_the_page_says_which_folder_holds_which_value(tmp_path: Path) -> None:
    run_sweep(said_world(), KEY, VALUES, out=tmp_path / "sweep", timing_only=True)
    digests = {k: sha256((tmp_path / f"sweep/t-{k}/scenario.yaml").read_bytes()).hexdigest() for k in VALUES}
    assert json.loads((tmp_path / "sweep" / "sweep.json").read_text()) == {
        "scenario": "tiny",
        "keys": [KEY],
        "timing_only": True,
        "points": [
            {"values": [1], "folder": "t-1", "finished": True, "scenario_sha256": digests[1]},
            {"values": [3], "folder": "t-3", "finished": True, "scenario_sha256": digests[3]},
        ],
    }
    assert {path.name for path in (tmp_path / "sweep").iterdir()} == {"sweep.json", "t-1", "t-3"}


def test_watchers_are_told_value_by_value_and_the_page_is_there_from_the_start(tmp_path: Path) -> None:
    told: list[object] = []

    class Listening(SweepWatcher):
        def prepared(self, folder: Path) -> None:
            told.append((folder.name, [v["finished"] for v in self.page(folder)]))

        def ended(self, step: Step, study: Study) -> None:
            folder = study.results.folder.parent
            told.append((step.number, step.total, step.setting, [v["finished"] for v in self.page(folder)]))

        def page(self, folder: Path) -> list[dict]:
            return json.loads((folder / "sweep.json").read_text())["points"]

    run_sweep(said_world(), KEY, VALUES, out=tmp_path / "sweep", timing_only=True, watcher=Listening())
    assert told == [
        ("sweep", [False, False]),
        (1, 2, "t = 1", [True, False]),
        (2, 2, "t = 3", [True, True]),
    ]


def test_constants_lists_and_whole_mappings_can_be_swept_over(tmp_path: Path) -> None:
    world = said_world(
        constants={"slow": 1}, timing={"clients": [{"select": "all", "upload_delay": "slow s"}]}, stop={"rounds": 3}
    )
    for key, values, means in (
        ("constants.slow", [1, 4], [1, 4]),
        ("timing.clients.0.upload_delay", ["2 s", {"kind": "constant", "value": 5}], [2, 5]),
    ):
        sweep = run_sweep(world, key, values, out=tmp_path / key, timing_only=True).sweep
        frame = sweep.estimates("round_duration").query("protocol == 'wait'")
        assert frame["mean"].tolist() == pytest.approx(means)
        assert frame["value"].tolist() == values


def test_the_default_folder_names_scenario_and_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = run_sweep(said_world(seeds=[0]), KEY, [1], timing_only=True).sweep
    assert sweep.folder == Path("results/tiny-sweep-protocols.fast.t-timing")


@pytest.mark.parametrize(
    ("key", "values", "names"),
    [
        ("a.mean", ["5 ms", "10 ms"], ["mean-5-ms", "mean-10-ms"]),
        ("timing.clients.0", [1], ["clients-0-1"]),
        ("t", [-1, 1, 0.5], ["t-minus-1", "t-1", "t-0.5"]),
        ("x", ["Ab", "aB", "a b", "a/b"], ["x-Ab", "x-aB-2", "x-a-b", "x-a-b-2"]),
        ("x", [None, {"kind": "constant", "value": 1}], ["x-null", "x-kind-constant-value-1"]),
        ("x", ["y" * 100], ["x-" + "y" * 46]),
        ("x", ["../../etc"], ["x-etc"]),
        ("µ", ["λ"], ["value"]),
    ],
)
def test_names_of_folders_are_plain_short_and_different(key: str, values: list[object], names: list[str]) -> None:
    assert folder_names([key], [(value,) for value in values]) == names


# --- what it refuses, before anything is written ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "values", "what"),
    [
        (KEY, [1, 9], r"--over protocols.fast.t=9: protocols.fast.t: .*9"),
        ("protocols.fast.q", [1], r"--over protocols.fast.q=1: .*there is no key 'q'"),
        ("training.batch", [20, 0], r"--over training.batch=0"),
        (KEY, [1, 2, 1], "the value 1 stands twice"),
        (KEY, [], "at least one value"),
        ("seeds", [[0], [1]], "--seeds"),
        ("name", ["a", "b"], "cannot go over name"),
        ("stop", [{"rounds": 3}, {"target": {"test_accuracy": 0.9}}], "never reaches a target alone"),
    ],
)
def test_every_value_is_checked_before_anything_runs(
    key: str, values: list[object], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflsim.studies.sweep.Pool", None)
    with pytest.raises(ScenarioError, match=what):
        run_sweep(said_world(), key, values, out=tmp_path / "sweep", timing_only=True)
    assert not (tmp_path / "sweep").exists()


def test_data_that_one_value_names_are_checked_too(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.csv"):
        run_sweep(said_world(), "data", [raw()["data"], {"file": "nowhere.csv", "label": "y"}], out=tmp_path / "sweep")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["note.txt", "scenario.yaml"])
def test_a_folder_that_is_no_sweeps_is_left_alone(content: str, tmp_path: Path) -> None:
    (tmp_path / content).write_text("mine")
    with pytest.raises(ResultsError, match=r"holds other things than a sweep \(no sweep.json\)"):
        run_sweep(said_world(), KEY, VALUES, out=tmp_path, timing_only=True)
    assert files(tmp_path) == {content: b"mine"}


# --- again, otherwise, and interrupted --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_sweep_again_stays(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    run_sweep(said_world(), KEY, VALUES, out=out, timing_only=True)
    before = files(out)
    run_sweep(said_world(), KEY, VALUES, out=out, timing_only=True)
    assert sweep_tables_of(out) == {name: content for name, content in before.items() if name.endswith(".parquet")}
    assert [path.name for path in tmp_path.iterdir()] == ["sweep"]


def test_an_interrupted_sweep_keeps_the_values_that_have_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "sweep"
    with monkeypatch.context() as patch:
        interrupt_at(24 + 7, patch)  # four runs of six steps at the first value, two at the second; in its second run
        with pytest.raises(KeyboardInterrupt):
            run_sweep(said_world(), KEY, VALUES, out=out, options=RunOptions(together=None))
    sweep = Sweep.open(out)
    assert (sweep.values, sweep.pending) == ((1,), ((3,),))
    assert [(run.protocol, run.seed) for run in Results.open(out / "t-3").runs] == [
        ("wait", 0),
        ("wait", 1),
        ("fast", 0),
    ]
    kept = sweep_tables_of(out / "t-1")
    run_sweep(said_world(), KEY, VALUES, out=out)
    assert Sweep.open(out).pending == ()
    assert sweep_tables_of(out / "t-1") == kept
    assert [path.name for path in tmp_path.iterdir()] == ["sweep"]


def test_the_same_sweep_run_again_keeps_what_had_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "sweep"
    run_sweep(said_world(seeds=[0]), KEY, VALUES, out=out)
    before = files(out)
    interrupt_at(3, monkeypatch)
    run_sweep(said_world(seeds=[0]), KEY, VALUES, out=out)
    assert Sweep.open(out).values == (1, 3)
    assert files(out) == before


@pytest.mark.parametrize("earlier", ["nothing", "another"])
def test_a_sweep_interrupted_in_its_first_run_leaves_everything_as_it_was(
    earlier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "deep" / "sweep"
    if earlier == "another":
        run_sweep(said_world(seeds=[0]), KEY, [4], out=out)
    before = files(tmp_path)
    interrupt_at(3, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(said_world(), KEY, VALUES, out=out)
    assert files(tmp_path) == before
    assert out.exists() is (earlier == "another")
    assert (tmp_path / "deep").exists() is (earlier == "another")


def test_a_run_that_fails_stops_neither_its_value_nor_the_others(tmp_path: Path) -> None:
    key, rates = "protocols.wait.training.server_optimizer", [0.1, 1e300]
    world = said_world(seeds=[0]) | {"protocols": {"wait": {"kind": "synchronous"}, "other": {"kind": "asynchronous"}}}
    done = run_sweep(world, key, [{"kind": "sgd", "lr": lr} for lr in rates], out=tmp_path / "sweep")
    assert set(done.failures) == {(1, "wait", 0)}
    assert done.sweep.pending == ()
    first, second = done.sweep.results
    assert (len(first.failed), len(second.failed)) == (0, 1)
    table, final = measure_tables(done.sweep)
    for each in (table, final):
        assert each.rows[1][1] == "—"
        assert each.rows[1][2] == each.rows[0][2]
    assert any("lr: 1e+300}, wait, seed 0" in note for note in final.notes)


# --- reading ----------------------------------------------------------------------------------------------------------


def page(folder: Path, **changes: object) -> Path:
    said_world = {"scenario": "s", "keys": ["k"], "timing_only": False, "points": [{"values": [1], "folder": "k-1"}]}
    folder.mkdir(exist_ok=True)
    (folder / "sweep.json").write_text(json.dumps(said_world | changes))
    return folder


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ([1, 2.5], (1, 2.5)),
        (["5 ms", 2, "1 min"], (0.005, 2, 60)),
        (["5 Mbps", "unlimited"], (5e6, float("inf"))),
        (["50/s", "2*3"], (50, 6)),
        (["fast", 1], None),
        ([{"kind": "constant"}], None),
        ([True, False], None),
    ],
)
def test_values_as_numbers_in_si_units(values: list, numbers: tuple | None) -> None:
    assert Sweep(Path(), "s", ("k",), True, tuple((value,) for value in values), (), ()).numbers == numbers


def test_what_is_no_sweep_or_a_damaged_one_is_said(tmp_path: Path) -> None:
    for make, what in (
        (lambda: tmp_path / "absent", "no such folder"),
        (lambda: tmp_path, r"no sweep\.json in it"),
        (lambda: page(tmp_path / "a"), "no value of this sweep has finished"),
        (lambda: page(tmp_path / "b", points=[]), "damaged"),
        (lambda: page(tmp_path / "c", points=[{"values": [1], "folder": "../../etc", "finished": True}]), "damaged"),
        (lambda: page(tmp_path / "d", more=1), "damaged"),
        (lambda: page(tmp_path / "e", points=[{"values": [1], "folder": "k-1", "finished": True}]), "no such folder"),
    ):
        with pytest.raises(ResultsError, match=what):
            Sweep.open(make())
    (page(tmp_path / "f") / "sweep.json").write_text("{")
    with pytest.raises(ResultsError, match=r"f/sweep\.json: damaged"):
        Sweep.open(tmp_path / "f")


def test_opening_a_sweep_as_results_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"holds a sweep(.|\n)*vflsim compare"):
        Results.open(page(tmp_path / "sweep"))


def test_a_measure_or_target_that_a_sweep_does_not_have_is_refused_with_those_it_has(tmp_path: Path) -> None:
    target = {"rounds": 6, "target": {"test_accuracy": 0.99}}
    sweep = run_sweep(said_world(seeds=[0], stop=target), KEY, VALUES, out=tmp_path / "sweep").sweep
    reached = "test_accuracy ≥ 0.99 for 5 evaluations"
    assert len(sweep.estimates("time_to_target", reached)) == len(sweep.estimates("end")) == 4
    for arguments, what, allowed in (
        (["nonsense"], "there is no measure 'nonsense'", "time_to_target, "),
        (["time_to_target"], "time_to_target is about a target", f"target: {reached}"),
        (["time_to_target", "test_accuracy"], "there is no target 'test_accuracy' of time_to_target", reached),
        (["end", reached], f"there is no target '{reached}' of end", "none: end is about no target"),
    ):
        with pytest.raises(ResultsError) as caught:
            sweep.estimates(*arguments)
        assert caught.value.what == what
        assert caught.value.allowed.startswith(allowed)


def test_the_tables_of_a_sweep_that_kept_no_rounds_have_dashes(tmp_path: Path) -> None:
    sweep = run_sweep(said_world(seeds=[0], record="summary"), KEY, VALUES, out=tmp_path / "sweep").sweep
    table, _ = measure_tables(sweep)
    assert [row[1:] for row in table.rows] == [("—", "—")] * 2


@pytest.mark.slow
def test_the_tables_have_a_row_a_value_and_a_column_a_protocol(tmp_path: Path) -> None:
    world = said_world(stop={"rounds": 60, "target": {"test_accuracy": 0.5}})
    world["training"]["server_optimizer"]["lr"] = 0.5
    sweep = run_sweep(world, KEY, VALUES, out=tmp_path / "sweep").sweep
    lasting, reaching, final = measure_tables(sweep)
    assert lasting.title == "tiny: mean round"
    assert [*lasting.header] == ["t", "wait", "fast"]
    assert [row[0] for row in lasting.rows] == ["1", "3"]
    assert lasting.rows[0][1] == lasting.rows[1][1]
    assert lasting.rows[0][2] != lasting.rows[1][2]
    assert "±" in lasting.rows[0][1]
    assert reaching.title == "tiny: time to test_accuracy ≥ 0.5 for 5 evaluations"
    assert all(cell.endswith("s") for row in reaching.rows for cell in row[1:])
    assert "Means over seeds" in " ".join(final.notes)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", [{}, {"test_accuracy": 0.999}], ids=["no target", "a target out of reach"])
def test_without_a_target_that_all_reach_the_final_metric_answers(target: dict[str, float], tmp_path: Path) -> None:
    sweep = run_sweep(
        said_world(stop={"rounds": 6, **({"target": target} if target else {})}), KEY, VALUES, out=tmp_path / "s"
    )
    *others, final = measure_tables(sweep.sweep)
    assert len(others) == 1 + len(target)
    assert final.title == "tiny: final accuracy"
    assert all(re.match(r"0\.\d+ ± 0\.\d+$", cell) for row in final.rows for cell in row[1:])
    assert "Means over seeds" in " ".join(final.notes)


def test_timing_alone_has_no_final_metric(tmp_path: Path) -> None:
    sweep = run_sweep(said_world(stop={"rounds": 6}), KEY, VALUES, out=tmp_path / "s", timing_only=True).sweep
    assert [table.title for table in sweep_tables(sweep)] == [
        "tiny: mean round",
        "tiny: mean round, paired over 2 points and their seeds",
    ]
