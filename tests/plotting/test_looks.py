"""A colour and a marker belong to a kind of protocol, whatever is drawn beside it; and what a style file changes."""

from __future__ import annotations

import json
import re
import shutil
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from story import Story
from typer.testing import CliRunner

from vflsim.cli import app
from vflsim.errors import ResultsError
from vflsim.kinds import TABLES
from vflsim.plotting import PLOTS, open_folder, plot
from vflsim.plotting.looks import (
    DASHES,
    PALETTE,
    SHOWN,
    caption,
    kinds_in,
    kinds_of,
    look,
    protocol_styles,
    style_text,
    written,
)
from vflsim.plotting.theme import read_style
from vflsim.results import Results
from vflsim.scenario.load import load

KINDS = [part.model_fields["kind"].default for part in TABLES["protocols"]]


QUICKSTART = load("quickstart").protocols


# How the rarer two kinds of colour blindness see linear RGB (Viénot, Brettel and Mollon 1999).
PROTAN = [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, -0.0], [0.00401, -0.00401, 1.0]]


DEUTAN = [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, -0.0], [-0.02234, 0.02234, 1.0]]


def test_a_kind_looks_the_same_under_every_name_beside_any_other() -> None:
    for kind in KINDS:
        alone = protocol_styles({"only": kind})["only"]
        among = protocol_styles({"before": KINDS[3], **{each: each for each in KINDS if each != KINDS[3]}})
        assert kind == KINDS[3] or among[kind] == alone


def test_every_kind_has_a_colour_and_marker_of_its_own() -> None:
    looks = [look(place) for place in range(40)]
    assert len({(style.color, style.marker) for style in looks}) == 40
    assert len(
        {(style.color, style.marker) for style in protocol_styles(dict(zip(KINDS, KINDS, strict=True))).values()}
    ) == len(KINDS)


def test_entries_of_one_kind_keep_its_marker_and_differ_in_line_shade_or_fill() -> None:
    styles = list(protocol_styles({f"t{n}": KINDS[2] for n in range(8)}).values())
    assert {style.marker for style in styles} == {look(2).marker}
    assert protocol_styles({"t": KINDS[2], "u": KINDS[2]})["t"] == look(2)
    darkness = [-sum(to_rgb(style.color)) for style in styles]
    assert darkness == sorted(darkness)  # as of one parameter with growing values
    assert len({(style.color, str(style.dash), style.hollow) for style in styles}) == 8
    for one, other in pairwise(styles):
        assert one.color != other.color
        assert one.dash != other.dash


def test_protocols_of_the_users_own_look_like_no_kind_of_the_table_and_alike_everywhere() -> None:
    known = {(style.color, style.marker) for style in protocol_styles(dict(zip(KINDS, KINDS, strict=True))).values()}
    first = protocol_styles({"a": "mine:TwoTrip"})["a"]
    assert (first.color, first.marker) not in known
    assert protocol_styles({"x": KINDS[0], "b": "mine:TwoTrip"})["b"] == first


def test_leaving_protocols_out_changes_no_look(results: Results) -> None:
    from vflsim.plotting.selection import only

    fewer = only(results, ["async"])
    assert protocol_styles(fewer)["async"] == protocol_styles(results)["async"]


def test_kinds_are_those_of_the_stored_scenario_with_the_path_of_own_classes(tmp_path) -> None:
    results = Story().step(0, 1, [1]).written(tmp_path)
    results.scenario["protocols"]["mine"] = {"kind": "module", "path": "mine:TwoTrip"}
    results.scenario["protocols"]["short"] = "ignore"
    assert kinds_of(results) == {"wait": "synchronous", "mine": "mine:TwoTrip", "short": "ignore"}
    assert kinds_in(load("quickstart"))["fedvs"] == "fedvs"


@pytest.mark.parametrize("seen", [np.eye(3), np.array(PROTAN), np.array(DEUTAN)], ids=["all", "protan", "deutan"])
def test_the_quickstarts_colours_are_clearly_different_also_for_the_colour_blind(seen: np.ndarray) -> None:
    kinds = {name: entry.protocol.kind for name, entry in QUICKSTART.items()}
    colors = [np.array(to_rgb(style.color)) ** 2.2 @ seen.T for style in protocol_styles(kinds).values()]
    assert len(colors) == 6
    for one, other in combinations(colors, 2):
        assert np.linalg.norm(np.clip(one, 0, 1) ** (1 / 2.2) - np.clip(other, 0, 1) ** (1 / 2.2)) > 0.2


def test_neighbouring_colours_and_lines_are_distinct() -> None:
    assert len(set(PALETTE)) == len(PALETTE)
    assert len(set(map(str, DASHES))) == len(DASHES)


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


@pytest.mark.usefixtures("unrendered")
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


@pytest.mark.sampled(2)
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


@pytest.mark.usefixtures("unrendered")
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


@pytest.mark.slow
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
