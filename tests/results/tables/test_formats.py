"""Tables as LaTeX, Markdown, CSV and HTML."""

from __future__ import annotations

import csv
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from vflsim.results import Results
from vflsim.tables import DataTable
from vflsim.tables.formats import escaped, packed, unpacked, written
from vflsim.vocabulary.amounts import Amount, Bound, limit, quantity

HOSTILE = "50 % & #1 $x_i^2$ {a} \\input{/etc/passwd} ~ < > | \" ` ' -- --- “q” ≥ − µ …"


def ratio(value: float, low: float, high: float, bound: Bound = "") -> Amount:
    return Amount(value, "×", low=low, high=high, bound=bound, form="three")


TABLE = DataTable(
    ("protocol", "time to 0.9", "bytes", "speed-up vs wait", "seeds"),
    [
        ("wait", quantity(2.51, "s", 1.1), quantity(1.234e6, "B"), "—", 3),
        ("t-sync", quantity(0.0361, "s", 0.0015), quantity(12e3, "B", 3e3), ratio(13.2, 9.1, 19), 10),
        (HOSTILE, limit("least", 52, "s"), quantity(-5e3, "B", 11e3), ratio(math.nan, 1.7, 2.75, "least"), 3),
    ],
    title=f"a_b: {HOSTILE}",
    notes=["Means over seeds ± 95 % Student-t intervals.", f"Not in the caption: {HOSTILE}"],
)


def rows_of(text: str) -> list[list[str]]:
    """The cells between the rules of the only table, as written."""
    body = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0].replace(r"\midrule", "")
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    assert all(line.endswith(r" \\") for line in lines)
    return [re.split(r"(?<!\\) & ", line.removesuffix(r" \\")) for line in lines]


def test_latex_is_well_formed_whatever_the_texts_are() -> None:
    text = written([TABLE], "latex")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert code.isascii()
    bare = re.sub(r"\\[\\{}&%$#_]", "", code)
    assert bare.count("{") == bare.count("}")
    depth = 0
    for character in bare:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert not re.search(r"[%#$]", bare)
    assert r"\input" not in code
    begun = re.findall(r"\\(begin|end)\{(\w+)\}", code)
    assert begun == [("begin", "table"), ("begin", "tabular"), ("end", "tabular"), ("end", "table")]
    assert {len(row) for row in rows_of(text)} == {len(TABLE.header)}
    assert text.startswith("% in the preamble: ")


def test_columns_of_amounts_are_siunitxs_with_one_unit_and_the_digits_shown() -> None:
    text = written([TABLE], "latex")
    head, *rows = rows_of(text)
    assert head[1:3] == [r"{time to 0.9 [\si{\second}]}", r"{bytes [\si{\mega\byte}]}"]
    assert [row[1] for row in rows] == ["2.5(11)", "0.0361(15)", r"{\ensuremath{>} 52 s}"]
    assert [row[2] for row in rows] == ["1.234", "0.012(3)", "-0.005(11)"]
    assert rows[1][3] == r"13.2 (9.1 \ldots{} 19) \ensuremath{\times}"
    kinds = re.findall(r"S\[table-format=([^,]+), separate-uncertainty\]", text)
    assert kinds == ["1.4(2)", "-1.3(2)", "2"]


def test_the_caption_says_what_the_sign_means_and_other_notes_are_comments() -> None:
    text = written([TABLE], "latex")
    (caption,) = re.findall(r"\\caption\{(.*)\}\n", text)
    assert caption.endswith(r"Means over seeds \ensuremath{\pm} 95 \% Student-t intervals.")
    assert "Not in the caption" not in caption
    cells = [("0.1", Amount(0.9, before="* ")), ("0.2", Amount(0.8))]
    scores = DataTable(("lr", "wait"), cells, title="t", notes=["Score: a mean.", "Other."])
    assert r"\caption{t. Score: a mean.}" in written([scores], "latex")
    assert "% Not in the caption: 50 % & #1" in text
    assert escaped("a--b_c") == r"a-{}-b\_c"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on the PATH")
def test_latex_compiles(tmp_path: Path, results: Results) -> None:
    lines = [r"\documentclass{article}\usepackage{booktabs}\usepackage{siunitx}\begin{document}"]
    lines += [written([TABLE, results.summary(pairing=True)], "latex"), r"\end{document}"]
    (tmp_path / "t.tex").write_text("\n".join(lines))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "t.pdf").stat().st_size > 10_000


def test_csv_has_every_cell_and_behind_it_its_numbers_in_one_unit() -> None:
    head, *rows = csv.reader(written([TABLE], "csv").splitlines())
    assert head[:5] == ["protocol", "time to 0.9", *(f"time to 0.9: {what} [s]" for what in ("value", "low", "high"))]
    assert [row[1:5] for row in rows] == [
        ["2.5 ± 1.1 s", "2.51", "1.41", "3.61"],
        ["36.1 ± 1.5 ms", "0.0361", "0.0346", "0.0376"],
        ["> 52 s", "", "52", ""],
    ]
    assert [row[head.index("speed-up vs wait: low")] for row in rows] == ["", "9.1", "1.7"]
    assert head[-1] == "seeds"  # numbers already
    assert rows[2][0] == TABLE.rows[2][0]
    two = written([TABLE, TABLE], "csv").splitlines()
    assert [line for line in two if line.startswith('"a_b')] == [two[0], two[6]]


def test_markdown_and_html_have_title_rows_and_notes() -> None:
    page = written([TABLE, TABLE], "markdown")
    assert page.startswith("## a_b: ")
    assert page.count("\n| t-sync | 36.1 ± 1.5 ms |") == page.count("\n- Means over seeds") == 2
    html = written([TABLE], "html")
    assert "<td>36.1 ± 1.5 ms</td>" in html
    assert "&lt; &gt;" in html


def test_json_keeps_every_cell() -> None:
    (read,) = unpacked(packed([TABLE]))
    assert (read.rows, [*read.notes], read.title) == (TABLE.rows, TABLE.notes, TABLE.title)
    assert [row[-1] for row in read.cells] == [3, 10, 3]


def test_rows_are_sorted_by_amounts_and_counts_in_si_units() -> None:
    keys = [[key for _, key in row] for row in TABLE.sortable()]
    assert keys == [[None, 2.51, 1.234e6, None, 3], [None, 0.0361, 12e3, 13.2, 10], [None, 52, -5e3, 1.7, 3]]
