from __future__ import annotations

import ast
import runpy
import shutil
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from story import Story
from toy_runs import toy_results, toy_run

import vflsim.plotting
from vflsim.errors import ResultsError
from vflsim.plotting import PLOTS, plot, protocol_styles, save_all
from vflsim.plotting.looks import PALETTE
from vflsim.plotting.style import FORMATS, Picture, picture
from vflsim.results import NotRecordedError, Results, RunTables, run_folder, write_run

OF_THEIR_OWN = (
    "as_csv",
    "gallery",
    "timing_model",
    "fedvs_table1",
    "fedvs_leads",
    "fedvs_tuned",
    "vim_table4",
    "easter_communication",
    "easter_tables",
    "leakage",
    "leakage_tables",
    "rounding_tables",
    "orderings",
    "orderings_claims",
    "orderings_estimates",
    "orderings_tables",
)
"""Scripts that draw (or print) sweeps, evaluations, a study, one particular scenario, or the whole gallery."""


pytestmark = pytest.mark.usefixtures("few_pixels")


PLOTS_FOLDER = Path(__file__).parents[2] / "plots"


def texts(figure: mpl.figure.Figure) -> str:
    axes = [text for a in figure.axes for text in (a.get_xlabel(), a.get_ylabel(), a.get_title(), a.get_title("left"))]
    return " | ".join([*axes, *(t.get_text() for legend in figure.legends for t in legend.get_texts())])


LABELS = {
    "time": "virtual time [s]",
    "rounds": "server steps",
    "epsilon": "ε spent",
    "bytes": "bytes sent by all parties",
    "energy": "energy of all parties [J]",
    "durations": "round duration [s]",
    "survival": "share of rounds that last longer",
    "speedup": "mean round: times faster",
    "waited": "client",
    "breakdown": "share of the average client's time",
    "staleness": "client age [server steps]",
    "answers": "mean time of an answer [s]",
    "utilisation": "virtual time [s]",
    "target": "time to target [s]",
    "timeline": "virtual time [s]",
}
"""What the axes of each figure show, and in which unit."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLOTS)
def test_every_figure_has_labels_a_legend_outside_its_axes_and_stable_bytes_and_touches_no_global_state(
    results: Results, kind: str
):
    before = dict(mpl.rcParams)
    figure = plot(results, kind)
    assert LABELS[kind] in texts(figure)
    png = figure.png()
    assert png.startswith(b"\x89PNG")
    assert plot(results, kind).png() == png
    assert dict(mpl.rcParams) == before
    assert all(axes.get_xlabel() for axes in figure.axes[-1:])
    renderer = figure.canvas.get_renderer()
    for legend in figure.legends:
        box = legend.get_window_extent(renderer)
        assert not any(box.overlaps(axes.get_tightbbox(renderer)) for axes in figure.axes)
        assert figure.bbox.containsx(box.x0)
        assert figure.bbox.containsx(box.x1)


@pytest.mark.usefixtures("unrendered")
def test_every_figure_has_the_colours_of_the_protocols_kinds(results: Results):
    names = list(results.protocols)
    colors = {name: style.color.lower() for name, style in protocol_styles(results).items()}
    for kind in ("time", "rounds", "bytes"):
        legend = plot(results, kind).legends[0]
        drawn = {
            text.get_text(): to_hex(line.get_color())
            for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
        }
        assert drawn == colors
    bars = plot(results, "target").axes[0].patches
    shown = {to_hex(bar.get_edgecolor() if bar.get_hatch() else bar.get_facecolor()) for bar in bars}
    assert shown == set(colors.values())
    assert len(shown) == len(names)


@pytest.mark.usefixtures("unrendered")
def test_the_curve_is_the_mean_of_the_seeds_step_functions(results: Results):
    # "ignore" of the toy never reaches the target: all its seeds are evaluated every 2 s until the end.
    line = plot(results, "time").axes[0].lines
    runs = [toy_run("ignore", seed, horizon=40)[0].metrics for seed in range(3)]
    expected = np.mean([run.column("test_accuracy").to_numpy() for run in runs], axis=0)
    times = runs[0].column("time_s").to_numpy()
    curves = [drawn for drawn in line if to_hex(drawn.get_color()) == PALETTE[1].lower() and len(drawn.get_xdata()) > 2]
    (curve,) = curves
    at = np.isin(times, curve.get_xdata())
    assert at.sum() >= len(times) - 1
    assert curve.get_ydata() == pytest.approx(expected[at])


@pytest.mark.usefixtures("unrendered")
def test_round_durations_are_an_empirical_distribution_function(results: Results):
    axes = plot(results, "durations").axes[0]
    rounds = results.rounds[results.rounds["protocol"] == "wait"]
    seconds = np.sort(rounds["end_s"] - rounds["start_s"])
    curve = axes.lines[0]
    assert curve.get_xdata()[1:] == pytest.approx(seconds)
    assert curve.get_ydata()[-1] == 1
    assert axes.get_xscale() == "log"
    assert len(plot(results, "durations", histogram=True).axes) == 2


@pytest.mark.usefixtures("unrendered")
def test_censored_costs_are_hatched_and_counted(results: Results):
    axes = plot(results, "target").axes[0]
    hatched = [bool(bar.get_hatch()) for bar in axes.patches]
    assert hatched == [True, True, False, False]
    assert [text.get_text() for text in axes.texts] == ["→ 0 of 3"] * 2


@pytest.mark.usefixtures("unrendered")
def test_a_diverged_run_is_among_those_that_did_not_reach_the_target(tmp_path: Path):
    folder = toy_results(tmp_path / "toy", horizon=40, energy=True)
    tables, info = toy_run("async", 1, horizon=4)
    page = info.model_copy(update={"status": "diverged", "stop_reason": None, "error": "the loss is nan"})
    write_run(run_folder(folder, "async", 1), tables, {}, page)
    results = Results.open(folder)
    axes = plot(results, "target").axes[0]
    assert [text.get_text() for text in axes.texts] == ["→ 0 of 3", "→ 0 of 3", "→ 2 of 3"]
    assert "diverged runs: async" in plot(results, "target").get_suptitle()
    assert "diverged runs left out: async" in str([text.get_text() for text in plot(results, "time").axes[0].texts])


@pytest.mark.usefixtures("unrendered")
def test_the_timeline_shows_the_window_asked_for(results: Results):
    figure = plot(results, "timeline", protocols=["async"], seed=1, start=1, end=3)
    (axes,) = figure.axes
    assert axes.get_xlim() == (1, 3)
    assert [label.get_text() for label in axes.get_yticklabels()][:2] == ["server", "client 1"]
    events = results.run("async", 1).frame("events")
    inside = events[(events["start_s"] < 3) & (events["end_s"] > 1)]
    assert sum(len(bars.get_paths()) for bars in axes.collections if bars.get_zorder() == 1) == len(inside)
    with pytest.raises(ResultsError, match="empty window"):
        plot(results, "timeline", start=3, end=3)


@pytest.mark.parametrize(
    ("kind", "options", "allowed"),
    [
        ("timeline", {"protocols": ["nonsense"]}, "wait, ignore, t-sync, async"),
        ("timeline", {"protocols": ["wait", "nonsense"]}, "wait, ignore, t-sync, async"),
        ("timeline", {"seed": 99}, "0, 1, 2"),
        ("utilisation", {"protocols": ["wait"], "seed": 99}, "0, 1, 2"),
        ("speedup", {"baseline": "nonsense"}, "wait, ignore, t-sync, async"),
        ("time", {"metric": "nonsense"}, "test_loss, test_accuracy"),
        ("target", {"target": {"validation_auc": 1.0}}, "test_loss, test_accuracy, train_loss"),
    ],
)
def test_a_name_that_the_results_do_not_have_is_refused_with_those_they_have(
    kind: str, options: dict, allowed: str, results: Results
):
    with pytest.raises(ResultsError) as caught:
        plot(results, kind, **options)
    assert not isinstance(caught.value, NotRecordedError)
    assert caught.value.allowed == allowed


@pytest.mark.usefixtures("unrendered")
def test_sharing_a_model_has_a_name_of_its_own(tmp_path: Path):
    story = Story(clients=1).tell(0, 1, "client-1", "share").message(1, 2, "client-1", "server").step(2, 3, [1])
    results = story.written(tmp_path)
    for kind in ("timeline", "breakdown"):
        shown = [text.get_text() for text in plot(results, kind).legends[0].get_texts()]
        assert "sharing delay" in shown
        assert "other" not in shown


@pytest.mark.slow
@pytest.mark.usefixtures("unrendered")
def test_save_all_writes_every_figure_and_nothing_else(results: Results, tmp_path: Path):
    paths = save_all(results, tmp_path / "figures")
    assert [path.name for path in paths] == [f"{kind}.png" for kind in PLOTS]
    assert sorted(paths) == sorted((tmp_path / "figures").iterdir())


@pytest.mark.usefixtures("unrendered")
def test_save_all_leaves_out_what_was_not_recorded(tmp_path: Path):
    folder = toy_results(tmp_path / "toy", seeds=1, horizon=10, record="summary", energy=True)
    assert [path.stem for path in save_all(Results.open(folder))] == [
        "time", "rounds", "bytes", "energy", "epsilon", "target", "speedup"
    ]  # fmt: skip
    with pytest.raises(NotRecordedError):
        plot(Results.open(folder), "timeline")


@pytest.mark.slow
@pytest.mark.usefixtures("unrendered")
def test_timing_only_results_have_durations_and_a_timeline(tmp_path: Path):
    folder = toy_results(tmp_path / "toy", seeds=1, horizon=10, energy=True)
    for run in Results.open(folder).runs:
        tables = run.tables()
        bare = tables.metrics.drop_columns(["test_accuracy", "test_loss"])
        write_run(run.folder, RunTables(bare, tables.rounds, tables.events), {}, run.info)
    trained = {"time", "rounds", "bytes", "energy", "epsilon", "target", "answers"}
    assert [path.stem for path in save_all(Results.open(folder))] == [name for name in PLOTS if name not in trained]


@pytest.mark.slow
@pytest.mark.usefixtures("unrendered")
def test_failed_and_absent_runs_do_not_stop_the_others(toy_folder: Path, tmp_path: Path):
    folder = Path(shutil.copytree(toy_folder, tmp_path / "toy"))
    shutil.rmtree(folder / "wait" / "seed-0")
    tables, info = toy_run("ignore", 0, horizon=4)
    failed = info.model_copy(update={"status": "failed", "error": "boom"})
    write_run(run_folder(folder, "ignore", 0), tables.kept("summary"), {}, failed)
    results = Results.open(folder)
    assert len(save_all(results)) == len(PLOTS)
    assert "wait, seed 1" in texts(plot(results, "timeline"))


def test_figures_import_no_pyplot():
    for path in Path(vflsim.plotting.__file__).parent.glob("*.py"):
        assert "pyplot" not in {
            alias.name.rpartition(".")[2]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }


NAMED = ("figure", "panels", *OF_THEIR_OWN)
"""Scripts that draw several figures, by name, and others that need more than a folder of results."""


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize(
    "script",
    [
        *([path.name] for path in sorted(PLOTS_FOLDER.glob("*.py")) if path.stem not in NAMED),
        *(["panels.py", name] for name in ("fedvs_fig1", "fedvs_fig2", "fedvs_fig3", "fedvs_fig4", "vafl_fig2")),
        ["figure.py", "time", "--from", "1 s"],
        ["figure.py", "timeline", "--seed", "1"],
        ["figure.py", "durations", "--histogram"],
        ["figure.py", "target", "--target", "test_accuracy=0.5"],
    ],
    ids=" ".join,
)
def test_scripts_draw_from_results_alone(
    toy_folder: Path,
    tmp_path: Path,
    script: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, path = tmp_path / "figure.png", str(PLOTS_FOLDER / script[0])
    monkeypatch.setattr("sys.argv", [path, *script[1:2], str(toy_folder), "--out", str(out), *script[2:]])
    runpy.run_path(path, run_name="__main__")
    assert out.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == f"{out}\n"
    monkeypatch.setattr("sys.argv", [path, *script[1:2], str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(path, run_name="__main__")
    assert ended.value.code == 2
    assert "no scenario.yaml" in capsys.readouterr().err


BEGINS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def drawn() -> Picture:
    with picture(2, 1.5, {}) as figure:
        figure.add_subplot().plot([0, 1], [0, 1])
    return figure


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FORMATS)
def test_equal_figures_give_equal_bytes_in_every_format(suffix: str) -> None:
    first = drawn().rendered(suffix)
    assert first.startswith(BEGINS[suffix])
    assert drawn().rendered(suffix.upper()) == first
