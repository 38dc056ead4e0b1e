"""The study of orderings: its plan, its script, its tables, its page and its figures belong together."""

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from pages import ROOT
from PIL import Image
from scipy.stats import t as student

from vflsim.learning.data.files import folders

FOLDER = ROOT / "scenarios" / "orderings"
TABLES = FOLDER / "tables"
IMAGES = ROOT / "docs" / "images" / "orderings"
PAGE = ROOT / "docs" / "orderings.md"
TRACE = "traces/mahimahi/Verizon-LTE-short.up"
PLAN = ROOT / "docs" / "orderings-plan.md"


def module(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script of the study as a module, which its own folder's modules may be imported by."""
    monkeypatch.syspath_prepend(folder)
    for known in ("run", "orderings", "orderings_tables", "orderings_claims", "orderings_estimates"):
        monkeypatch.delitem(sys.modules, known, raising=False)
    return __import__(name)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("run", FOLDER, monkeypatch)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("orderings_tables", ROOT / "plots", monkeypatch)


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("orderings_estimates", ROOT / "plots", monkeypatch)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("orderings_claims", ROOT / "plots", monkeypatch)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    yield module("orderings", ROOT / "plots", monkeypatch)
    plt.close("all")


def test_every_block_is_a_valid_scenario_with_the_same_protocols_and_seeds(run: ModuleType) -> None:
    assert len({block.name for block in run.BLOCKS}) == len(run.BLOCKS) == 18
    protocols = set()
    for block in run.BLOCKS:
        if block.world == "lte" and not any((each / TRACE).is_file() for each in folders()):
            continue  # its files are fetched by hand
        scenario = run.scenario(block)
        protocols.add(tuple(scenario.protocols))
        assert scenario.seeds == (0, 1, 2, 3, 4)
        assert scenario.stop.time == block.horizon
        assert scenario.evaluate.deadline == (block.deadline,)
        assert scenario.data.validation_fraction > 0
        assert f"`{block.world}`" in PLAN.read_text()
    (names,) = protocols
    assert len(names) == 14
    assert all(f"| `{name}` |" in PLAN.read_text() for name in names)


def test_seeds_of_tuning_are_not_reported(run: ModuleType) -> None:
    low, high = map(int, run.TUNING_SEEDS.split(":"))
    assert not {*range(low, high)} & {0, 1, 2, 3, 4}


def test_the_script_names_the_blocks_that_it_knows(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", "--only", "mnist"])
    with pytest.raises(SystemExit):
        run.main()
    assert "allowed are handwritten, credit, fashion_mnist" in capsys.readouterr().err


SMALL = """\
name: small
data: {name: digits, test_fraction: 0.2, validation_fraction: 0.2}
partition: {clients: 3}
models: {client: {kind: linear, embedding: 8}, aggregate: mean, server: {kind: linear}}
training: {batch: 32, client_optimizer: {kind: adam, lr: 0.01}, server_optimizer: {kind: adam, lr: 0.01}}
timing: {clients: {select: all, compute: 1 ms}}
protocols:
  wait: {kind: synchronous}
  flex-vfl: {kind: flex_vfl, local_time: 2 ms}
  laser-vfl: {kind: laser_vfl, deadline: 1 s}
  async: {kind: asynchronous}
stop: {time: 1 s, rounds: 20}
evaluate: {every: 6 updates, deadline: 1 s}
target: {test_accuracy: 0.3, for: 1 evaluations}
seeds: 0:2
record: rounds
"""


@pytest.mark.slow
def test_a_block_is_tuned_run_and_tabulated_and_once_done_computed_no_more(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "worlds").mkdir()
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "worlds" / "near.yaml").write_text((FOLDER / "worlds" / "tails.yaml").read_text())
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "RATES", (0.01, 0.02))
    monkeypatch.setattr(
        run, "BLOCKS", (run.Block("small", "near", 20, 0.6, 0.006), run.Block("small", "absent", 1, 1, 1))
    )
    said = ["run.py", "--only", "small/near", "--out", "out", "--tables", "tables", "--workers", "1"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", said)
    run.main()
    assert "1 of 2 blocks in tables" in capsys.readouterr().out
    first = (tmp_path / "tables" / "runs.parquet").read_bytes()
    run.main()
    assert (tmp_path / "tables" / "runs.parquet").read_bytes() == first
    frame = pd.read_parquet(tmp_path / "tables" / "runs.parquet")
    assert set(frame["protocol"]) == {"wait", "flex-vfl", "laser-vfl", "async"}
    assert {"time_to_target", "bytes_to_target", "rounds_to_target", "plateau", "answers"} <= set(frame["measure"])
    assert set(frame["seed"]) == {0, 1}
    waits = pd.read_parquet(tmp_path / "tables" / "breakdown.parquet")
    np.testing.assert_allclose(waits.groupby("protocol")["share"].sum(), 1)
    rates = pd.read_parquet(tmp_path / "tables" / "tuning.parquet")
    assert rates.groupby("protocol")["chosen"].sum().eq(1).all()
    assert set(rates["rate"]) == {0.01, 0.02}


BLOCK = ("credit", "lte")


def made(
    costs: dict[str, list[float]], measure: str = "time_to_target", unreached: tuple[str, ...] = ()
) -> pd.DataFrame:
    rows = [
        {"data": BLOCK[0], "world": BLOCK[1], "protocol": name, "seed": seed, "measure": measure, "value": value}
        | {"censored": name in unreached}
        for name, values in costs.items()
        for seed, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


def test_ranks_count_intervals_below_and_the_unreached_share_the_last_place(costs: ModuleType) -> None:
    spent = {"a": [1.0, 1.1, 1.2], "b": [1.1, 1.0, 1.2], "c": [9.0, 9.5, 10.0], "d": [20.0] * 3, "e": [20.0] * 3}
    frame = made(spent, unreached=("d", "e"))
    found = costs.estimates(frame, BLOCK, "time_to_target")
    assert costs.ranks(found, [*spent]) == {"a": 1, "b": 1, "c": 3, "d": 4, "e": 4}


def test_agreement_is_kendalls_tau_with_the_unreached_tied_at_the_end(costs: ModuleType) -> None:
    infinite = float("inf")
    assert costs.tau(np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 3, 4])) == pytest.approx(1)
    assert costs.tau(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == pytest.approx(-1)
    # pairs: 5 agree, 1 is tied in both lists
    assert costs.tau(np.array([1.0, 2, infinite, infinite]), np.array([5.0, 6, infinite, infinite])) == pytest.approx(1)
    # of six pairs, one is tied on the left alone and none on the right: 5 / √(5 · 6)
    assert costs.tau(np.array([1.0, 2, infinite, infinite]), np.array([1.0, 2, 3, 4])) == pytest.approx(5 / 30**0.5)


@pytest.mark.parametrize(
    ("one", "other", "unreached", "side"),
    [
        ([1.0, 1.1, 1.05], [2.0, 2.1, 2.3], (), "holds"),
        ([2.0, 2.1, 2.3], [1.0, 1.1, 1.05], (), "fails"),
        ([1.0, 2.0, 1.5], [1.5, 1.1, 2.0], (), "cannot be told"),
        ([1.0, 1.1, 1.05], [1.0, 1.0, 1.0], ("other",), "holds"),
        ([1.0, 1.1, 1.05], [1.0, 1.0, 1.0], ("one",), "fails"),
        ([1.0, 1.1, 1.05], [2.0, 2.1, 2.3], ("one", "other"), "cannot be told"),
    ],
)
def test_a_claim_about_costs_holds_if_the_interval_of_the_ratio_lies_on_its_side(
    one: list[float], other: list[float], unreached: tuple[str, ...], side: str, claims: ModuleType
) -> None:
    frame = made({"one": one, "other": other}, unreached=unreached)
    claim = claims.Claim(1, "one", "other", "seconds")
    assert claims.verdict(frame, claim, BLOCK)[0] == side


def test_the_interval_of_a_claim_is_that_of_paired_logarithms(claims: ModuleType) -> None:
    one, other = np.array([1.0, 1.3, 1.2, 0.9]), np.array([1.9, 2.2, 2.0, 1.7])
    logs = np.log(one / other)
    half = student.ppf(0.975, 3) * logs.std(ddof=1) / 2
    low, high = np.exp([logs.mean() - half, logs.mean() + half])
    frame = made({"one": [*one], "other": [*other]})
    for limit, side in ((high * 1.001, "holds"), (low * 0.999, "fails"), ((low + high) / 2, "cannot be told")):
        claim = claims.Claim(1, "one", "other", "seconds", limit=limit)
        assert claims.verdict(frame, claim, BLOCK)[0] == side


@pytest.mark.parametrize(("limit", "side"), [(0.0, "holds"), (0.2, "fails"), (0.09, "cannot be told")])
def test_a_claim_about_levels_compares_paired_differences(limit: float, side: str, claims: ModuleType) -> None:
    frame = made({"one": [0.9, 0.8, 0.7], "other": [0.81, 0.7, 0.62]}, "plateau")
    assert claims.verdict(frame, claims.Claim(1, "one", "other", "plateau", limit=limit), BLOCK)[0] == side


def test_a_front_has_the_points_that_none_beats_in_both(figures: ModuleType) -> None:
    points = pd.DataFrame({"seconds": [3.0, 1, 2, 4, 5], "bytes": [2.0, 5, 3, 4, 1]}, index=[*"abcde"])
    assert [*figures.front(points).index] == ["b", "c", "a", "e"]


@pytest.fixture(scope="module")
def printed() -> str:
    """All tables as their script prints them."""
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(text):
        script = module("orderings_tables", ROOT / "plots", patch)
        patch.setattr(sys, "argv", ["orderings_tables.py", str(TABLES)])
        script.main()
    return text.getvalue()


@pytest.mark.slow
def test_the_page_has_every_table_as_the_runs_give_it(printed: str) -> None:
    page = PAGE.read_text()
    tables = [table.partition("\n\n") for table in printed.removesuffix("\n").split("\n\n### ")]
    assert len(tables) > 10
    missing = [title for title, _, lines in tables if not lines.startswith("| ") or lines.strip("\n") not in page]
    assert not missing


def test_the_figures_are_drawn_from_the_tables_of_the_page(figures: ModuleType) -> None:
    wanted = figures.digest(TABLES)
    for name in figures.FIGURES:
        with Image.open(IMAGES / f"{name}.png") as image:
            assert image.info["Description"].endswith(wanted), f"{name}.png: run python plots/orderings.py"
        assert f"images/orderings/{name}.png" in PAGE.read_text()


@pytest.mark.slow
def test_the_scripts_draw_and_print_what_is_in_a_folder_of_tables(
    figures: ModuleType, tables: ModuleType, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["orderings.py", str(TABLES), "--out", str(tmp_path)])
    monkeypatch.setattr(figures, "FIGURES", {"agreement": figures.agreement_figure})
    figures.main()
    assert capsys.readouterr().out == f"{tmp_path / 'agreement.png'}\n"
    assert (tmp_path / "agreement.png").read_bytes().startswith(b"\x89PNG")
    assert printed.startswith("\n### claims\n\n|  | claim |")
    assert printed.count("\n### ") == len([*tables.sections()])


def test_the_map_of_ranks_shows_the_ranks_of_the_tables(figures: ModuleType, costs: ModuleType) -> None:
    frame = costs.runs(TABLES)
    figure = figures.ranks_figure(frame)
    shown = [axis for axis in figure.axes if axis.images and axis.get_title()]
    assert [axis.get_title() for axis in shown] == [data for data in costs.DATA if data in set(frame["data"])]
    for axis in shown:
        columns = [block for block in costs.blocks(frame) if block[0] == axis.get_title()]
        cells = [text.get_text() for text in axis.texts]
        wanted = figures.rank_matrix(frame, columns, "seconds").ravel()
        assert cells == [f"{rank:.0f}" if np.isfinite(rank) else "–" for rank in wanted]
