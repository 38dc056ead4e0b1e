"""Style files give protocols one look, label and order in all figures; captions say what figures show."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from typer.testing import CliRunner

from vflsim.cli import app
from vflsim.errors import ResultsError
from vflsim.plotting import PLOTS, open_folder, plot, protocol_styles
from vflsim.plotting.looks import SHOWN, caption, style_text, written
from vflsim.plotting.theme import read_style
from vflsim.results import Results

pytestmark = pytest.mark.usefixtures("few_pixels")
FILE = """\
style: paper
size: single
protocols:
  async: {label: Asynchronous (VAFL), color: "#DC143C", marker: "P", line: dotted}
  wait: {label: Synchronous}
"""


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    (place := tmp_path / "paper.yaml").write_text(FILE)
    return place


def legend_of(figure) -> dict[str, tuple[str, str]]:
    box = figure.legends[0]
    pairs = zip(box.get_texts(), box.get_lines(), strict=True)
    return {text.get_text(): (to_hex(line.get_color()), line.get_marker()) for text, line in pairs}


def test_labels_order_and_looks_are_those_of_the_file_in_every_figure(results: Results, paper: Path) -> None:
    usual = protocol_styles(results)
    figure = plot(results, "time", style=paper)
    assert figure.get_figwidth() == 3.5
    shown = legend_of(figure)
    assert [*shown] == ["Asynchronous (VAFL)", "Synchronous", "ignore", "t-sync"]
    assert shown["Asynchronous (VAFL)"] == ("#dc143c", "P")
    for label, name in (("Synchronous", "wait"), ("t-sync", "t-sync")):
        assert shown[label] == (usual[name].color.lower(), usual[name].marker)
    rows = [text.get_text() for text in plot(results, "target", style=paper).axes[0].get_yticklabels()]
    assert rows == [*shown]
    assert plot(results, "speedup", style=paper).get_suptitle().splitlines()[0] == "toy: speed-up against Synchronous"
    timeline = plot(results, "timeline", protocols=["async"], style=paper)
    assert timeline.axes[0].get_title(loc="left").startswith("Asynchronous (VAFL), seed 0")
    assert [*results.protocols] == ["wait", "ignore", "t-sync", "async"]  # the results themselves stay


@pytest.mark.parametrize("kind", PLOTS)
@pytest.mark.usefixtures("unrendered")
def test_the_numbers_are_those_without_the_file(kind: str, results: Results, paper: Path) -> None:
    names = {"Asynchronous (VAFL)": "async", "Synchronous": "wait"}
    before, after = plot(results, kind).numbers, plot(results, kind, style=paper).numbers
    for name, frame in after.items():
        renamed = frame.replace(names) if "protocol" in frame else frame
        columns = [*frame.columns]
        order = [one.astype(str).sort_values(columns).to_numpy().tolist() for one in (renamed, before[name])]
        assert order[0] == order[1]


def test_a_sweep_has_the_labels_too(toy_folder: Path, tmp_path: Path, paper: Path) -> None:
    for place in ("0", "1"):
        shutil.copytree(toy_folder, tmp_path / "s" / place)
    entries = [{"values": [int(place)], "folder": place, "finished": True} for place in ("0", "1")]
    page = {"scenario": "toy", "keys": ["a.x"], "timing_only": False, "points": entries}
    (tmp_path / "s" / "sweep.json").write_text(json.dumps(page))
    figure = plot(open_folder(tmp_path / "s"), "sweep", style=paper)
    assert [*legend_of(figure)] == ["Asynchronous (VAFL)", "Synchronous", "ignore", "t-sync"]
    words = caption(open_folder(tmp_path / "s"), "sweep", figure)
    assert words == "Mean round duration [s] against x, toy: mean and 95 % interval over seeds."


def test_a_new_file_changes_nothing_until_it_is_edited(results: Results, tmp_path: Path) -> None:
    (place := tmp_path / "new.yaml").write_text(style_text(results))
    file = read_style(place)
    assert [*file.protocols] == [*results.protocols]
    same = plot(results, "time", style=place).png()
    assert same == plot(results, "time", style="paper", size="single").png()


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("protocols:\n  wait: {color: nonsense}", 2, "'nonsense' is no colour"),
        ("protocols:\n  wait: {}\n  async: {marker: '?'}", 3, "is no marker"),
        ("protocols:\n  wait: {line: wavy}", 2, "'wavy' is no line"),
        ("protocols:\n  wait: {colour: red}", 2, "Extra inputs"),
        ("size: single\nfont: 9", 2, "Extra inputs"),
        ("protocols:\n  wait: {label: async}\n  async: {}", 1, "two protocols have the label 'async'"),
        ("a: [", 1, "the file ends inside a value"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(text: str, line: int, what: str, tmp_path: Path) -> None:
    (place := tmp_path / "wrong.yaml").write_text(text)
    with pytest.raises(ResultsError, match=re.escape(what)) as caught:
        read_style(place)
    assert caught.value.where == f"{place}:{line}"


def test_an_absent_file_says_how_to_write_one(results: Results, tmp_path: Path) -> None:
    with pytest.raises(ResultsError) as caught:
        plot(results, "time", style=tmp_path / "absent.yaml")
    assert "--new-style" in caught.value.remedy


def test_captions_are_one_sentence_that_names_the_study_and_the_marks(results: Results) -> None:
    assert {*SHOWN} == {*PLOTS}
    for kind in PLOTS:
        words = caption(results, kind, plot(results, kind))
        assert "\n" not in words
        assert words.endswith(".")
        assert ", toy" in words
    assert caption(results, "time", plot(results, "time")) == (
        "The metric (test accuracy) against virtual time, toy: mean and 95 % band over seeds; markers: where runs end."
    )
    words = caption(results, "speedup", plot(results, "speedup"))
    assert words.endswith("toy: speed-up against wait; paired over seeds; a round is a server step.")


def test_the_latex_beside_a_figure_includes_it_at_its_width(results: Results) -> None:
    for size, (star, width) in {"single": ("", "column"), "double": ("*", "text")}.items():
        files = written(results, "time", plot(results, "time", size=size), Path("a/time.pdf"))
        tex = files[Path("a/time.tex")]
        assert tex.startswith(f"\\begin{{figure{star}}}\n")
        assert f"\\includegraphics[width=\\{width}width]{{time}}" in tex
        assert "95 \\% band" in tex
        assert files[Path("a/time.txt")] == caption(results, "time", plot(results, "time")) + "\n"


def test_the_command_writes_a_style_captions_and_figures(toy_folder: Path, tmp_path: Path) -> None:
    style, out = tmp_path / "paper.yaml", tmp_path / "figures"
    run = CliRunner()
    assert run.invoke(app, ["plot", str(toy_folder), "--new-style", str(style)]).output == f"{style}\n"
    assert run.invoke(app, ["plot", str(toy_folder), "--new-style", str(style)]).exit_code != 0
    kinds = ["--kind", "time", "--kind", "speedup", "--style", str(style), "--captions", "--out", str(out)]
    ended = run.invoke(app, ["plot", str(toy_folder), *kinds])
    assert ended.exit_code == 0, ended.output
    assert sorted(path.name for path in out.iterdir()) == sorted(
        f"{kind}.{suffix}" for kind in ("time", "speedup") for suffix in ("png", "txt", "tex")
    )


@pytest.mark.slow
def test_files_have_fonts_and_text(results: Results, tmp_path: Path) -> None:
    figure = plot(results, "time")
    assert b"/FontFile2" in figure.rendered(".pdf")
    svg = figure.rendered(".svg").decode()
    assert re.search(r"<text[^>]*>virtual time \[s\]</text>", svg)
    assert "<text" not in figure.rendered(".svg", letters=True).decode()
    figure.savefig(place := tmp_path / "figure.eps")
    assert "/FontType 42 def" in place.read_text(errors="replace")
