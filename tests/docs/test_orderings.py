"""The study of orderings: its plan, its script, its tables, its page and its figures belong together."""

import contextlib
import io
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from pages import ROOT
from PIL import Image
from scipy.stats import CensoredData, ecdf

from vflsim.learning.data.files import folders

FOLDER = ROOT / "scenarios" / "orderings"
TABLES = FOLDER / "tables"
IMAGES = ROOT / "docs" / "images" / "orderings"
PAGE = ROOT / "docs" / "orderings.md"
TRACE = "traces/mahimahi/Verizon-LTE-short.up"
PLAN = FOLDER / "plan.md"


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
def costs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("orderings_estimates", ROOT / "plots", monkeypatch)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("orderings_claims", ROOT / "plots", monkeypatch)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    yield module("orderings", ROOT / "plots", monkeypatch)
    plt.close("all")


def test_every_block_is_a_valid_scenario_with_the_same_protocols_and_seeds(run: ModuleType, costs: ModuleType) -> None:
    assert len({block.name for block in run.BLOCKS}) == len(run.BLOCKS) == 6
    low, high = map(int, run.SEEDS.split(":"))
    for block in run.BLOCKS:
        if block.world == "lte" and not any((each / TRACE).is_file() for each in folders()):
            continue  # its files are fetched by hand
        scenario = run.scenario(block)
        assert tuple(scenario.protocols) == costs.PROTOCOLS
        assert scenario.seeds == (*range(low, high),)
        assert scenario.timing.network.kind == "fair"
        assert scenario.stop.time == block.horizon
        assert scenario.evaluate.deadline == (block.deadline,)
        assert scenario.data.validation_fraction > 0
        assert f"`{block.world}`" in PLAN.read_text()
    assert all(f"| `{name}` |" in PLAN.read_text() for name in costs.PROTOCOLS)


def test_every_setting_that_may_be_tried_is_a_valid_protocol_with_its_own_values(run: ModuleType) -> None:
    block = run.BLOCKS[0]
    names = [*run.base(block.data)["protocols"]]
    tried = [run.Setting(name, 3, value) for name in names for value in run.own_values(name)]
    scenario = run.scenario(block, tried)
    assert {each.name for each in tried} <= {*scenario.protocols}
    t_sync = scenario.protocols[run.Setting("t-sync", 3, 4).name].protocol
    assert t_sync.t == 4
    laser = scenario.protocols[run.Setting("laser-vfl", 3, 2).name].protocol
    assert laser.deadline == 2 * block.deadline
    wait = scenario.training_of(run.Setting("wait", 3, 0.3).name)
    assert (wait.client_optimizer.lr, wait.server_optimizer.lr) == (0.01, pytest.approx(0.003))
    assert {*run.OWN} <= {*names}


def test_seeds_of_tuning_are_not_reported(run: ModuleType) -> None:
    (low, high), (first, last) = (map(int, seeds.split(":")) for seeds in (run.TUNING_SEEDS, run.SEEDS))
    assert not {*range(low, high)} & {*range(first, last)}
    assert last - first >= 20


def tried(*rows: tuple[str, int, float, float]) -> pd.DataFrame:
    """Settings with protocol, place on the ladder, seconds and plateau."""
    named = [dict(zip(("protocol", "place", "seconds", "plateau"), row, strict=True)) | {"value": 1.0} for row in rows]
    return pd.DataFrame(named)


def test_the_fewest_seconds_are_best_and_of_equal_ones_the_highest_plateau(run: ModuleType) -> None:
    frame = tried(("a", 2, 5.0, 0.9), ("a", 3, 4.0, 0.1), ("b", 2, 9.0, 0.3), ("b", 3, 9.0, 0.8))
    assert (run.best(frame, "a").place, run.best(frame, "b").place) == (3, 3)


@pytest.mark.parametrize(
    ("places", "further"),
    [
        ({2: 9.0, 3: 5.0, 4: 6.0}, None),  # inside
        ({2: 5.0, 3: 6.0, 4: 7.0}, 1),
        ({2: 7.0, 3: 6.0, 4: 5.0}, 5),
        ({0: 1.0, 1: 5.0}, None),  # the ladder's end
    ],
)
def test_the_grid_of_rates_grows_until_the_best_lies_inside(
    places: dict[int, float], further: int | None, run: ModuleType
) -> None:
    found = run.beyond(tried(*(("a", place, seconds, 0.0) for place, seconds in places.items())), "a")
    assert (None if found is None else found.place) == further


def test_the_script_names_the_blocks_that_it_knows(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", "--only", "mnist"])
    with pytest.raises(SystemExit):
        run.main()
    assert "allowed are handwritten" in capsys.readouterr().err


SMALL = """\
name: small
data: {name: digits, test_fraction: 0.2, validation_fraction: 0.2}
partition: {clients: 6}
models: {client: {kind: linear, embedding: 8}, aggregate: mean, server: {kind: linear}}
training: {batch: 32, client_optimizer: {kind: adam, lr: 0.01}, server_optimizer: {kind: adam, lr: 0.01}}
timing: {clients: {select: all, compute: 1 ms}}
protocols:
  wait: {kind: synchronous}
  t-sync: {kind: t_synchronous, t: 3}
  laser-vfl: {kind: laser_vfl, deadline: 1 s}
stop: {time: 1 s, rounds: 12}
evaluate: {every: 3 rounds, deadline: 1 s}
target: {test_accuracy: 0.3, for: 1 evaluations}
seeds: 0:2
record: rounds
"""


@pytest.mark.slow
def test_a_block_is_tuned_run_and_tabulated_and_once_done_computed_no_more(
    run: ModuleType, costs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "worlds").mkdir()
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "worlds" / "near.yaml").write_text((FOLDER / "worlds" / "tails.yaml").read_text())
    for name, value in {
        "HERE": tmp_path, "FIRST": (3,), "SEEDS": "0:4", "SEEDS_OF_FIFO": "0:2", "LEVELS": {"low": 0.3, "high": 0.5},
        "BLOCKS": (run.Block("small", "near", 20, 0.6, 0.006),),
    }.items():  # fmt: skip
        monkeypatch.setattr(run, name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "--out", "out", "--tables", "tables", "--workers", "1"])
    run.main()
    there = sorted((tmp_path / "tables").iterdir())
    assert [each.name for each in there] == ["runs-small-near.parquet", "tuning-small-near.parquet"]
    first = [each.read_bytes() for each in there]
    run.main()
    assert [each.read_bytes() for each in there] == first
    frame, settings = (pd.read_parquet(each) for each in there)
    assert set(frame["protocol"]) == {"wait", "t-sync", "laser-vfl"}
    wanted = {f"{cost}_{level}" for cost in costs.COSTS if cost != "joules" for level in ("low", "high")}
    assert set(frame["measure"]) == {*wanted, "plateau", "end", "answers"}
    assert frame.groupby("network", observed=True)["seed"].unique().map(sorted).to_dict() == {
        "fair": [0, 1, 2, 3], "fifo": [0, 1],
    }  # fmt: skip
    assert settings.groupby("protocol")["chosen"].sum().eq(1).all()
    assert settings.groupby("protocol")["place"].nunique().min() >= 2, "the grid has grown"
    assert settings.groupby("protocol")["value"].nunique().eq(3).all()
    low, high = (frame[frame["measure"] == f"rounds_{level}"]["value"] for level in ("low", "high"))
    assert (low.to_numpy() <= high.to_numpy()).all()


# --- estimates --------------------------------------------------------------------------------------------------------

BLOCK = ("handwritten", "lte")
HORIZON = 50.0


def made(
    folder: Path,
    values: dict[str, list[float]],
    measure: str = "seconds_high",
    missed: dict[str, list[int]] | None = None,
) -> Path:
    """Write the tables of one block: a measure of protocols by seeds, of which some have missed the target."""
    where = {"data": BLOCK[0], "world": BLOCK[1], "network": "fair", "measure": measure}
    rows = [
        {**where, "protocol": name, "seed": seed, "value": value, "censored": seed in (missed or {}).get(name, [])}
        for name, own in values.items()
        for seed, value in enumerate(own)
    ]
    pd.DataFrame(rows).to_parquet(folder / "runs-handwritten-lte.parquet")
    pd.DataFrame([{"data": BLOCK[0], "world": BLOCK[1], "horizon": HORIZON}]).to_parquet(
        folder / "tuning-handwritten-lte.parquet"
    )
    return folder


def test_a_run_that_misses_the_target_counts_with_the_horizon(costs: ModuleType, tmp_path: Path) -> None:
    frame = costs.runs(made(tmp_path, {"wait": [1.0, 7.0], "async": [2.0, 3.0]}, missed={"wait": [1]}))
    assert costs.table(frame, BLOCK, "seconds_high").loc["wait"].tolist() == [1.0, HORIZON]
    assert costs.reached(frame, BLOCK, "seconds_high").to_dict() == {"wait": 1, "async": 2}


def test_a_run_that_misses_the_target_counts_in_bytes_as_the_greatest_of_its_block(
    costs: ModuleType, tmp_path: Path
) -> None:
    spent = {"wait": [5.0, 9.0], "async": [2.0, 1.0]}
    frame = costs.runs(made(tmp_path, spent, "bytes_high", missed={"async": [1]}))
    assert costs.table(frame, BLOCK, "bytes_high").loc["async"].tolist() == [2.0, 9.0]


def test_the_restricted_mean_is_the_area_under_the_kaplan_meier_curve(costs: ModuleType, tmp_path: Path) -> None:
    times, missed = [3.0, 8.0, 20.0, 31.0, 40.0], [2, 4]
    frame = costs.runs(made(tmp_path, {"wait": times}, missed={"wait": missed}))
    reached = np.array([time for seed, time in enumerate(times) if seed not in missed])
    curve = ecdf(CensoredData(uncensored=reached, right=[HORIZON] * len(missed))).sf
    steps = np.concatenate([[0.0], np.sort(reached), [HORIZON]])
    area = float(np.sum(np.diff(steps) * curve.evaluate(steps[:-1])))
    assert costs.table(frame, BLOCK, "seconds_high").loc["wait"].mean() == pytest.approx(area)


def test_ranks_have_intervals_over_seeds(costs: ModuleType) -> None:
    rng = np.random.default_rng(0)
    values = pd.DataFrame(
        [1 + 0.1 * rng.random(20), 2 + rng.random(20), 2 + rng.random(20), np.full(20, 9.0), np.full(20, 9.0)],
        index=[*"abcde"],
    )
    found = costs.rank_intervals(values)
    assert found.loc["a"].tolist() == [1, 1, 1]
    assert found.loc[["b", "c"], "rank"].tolist() in ([2, 3], [3, 2])
    assert found.loc[["b", "c"], ["low", "high"]].to_numpy().tolist() == [[2, 3], [2, 3]]
    assert found.loc[["d", "e"], ["rank", "low", "high"]].to_numpy().tolist() == [[4, 4, 4], [4, 4, 4]]


def test_the_noise_floor_is_high_if_seeds_agree_and_low_if_they_are_noise(costs: ModuleType) -> None:
    rng = np.random.default_rng(1)
    sure = pd.DataFrame(np.arange(8)[:, None] + 0.01 * rng.random((8, 20)))
    assert costs.noise_floor(sure) == pytest.approx(1)
    assert abs(costs.noise_floor(pd.DataFrame(rng.random((8, 20))))) < 0.3


# --- claims -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "limit", "side"),
    [(0.5, 1.0, "holds"), (2.0, 1.0, "fails"), (0.5, 0.4, "fails"), (0.5, 0.6, "holds"), (1.0, 1.0, "cannot be told")],
)
def test_a_claim_about_costs_compares_paired_ratios_with_its_limit(
    factor: float, limit: float, side: str, claims: ModuleType, costs: ModuleType, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rng = np.random.default_rng(2)
    base = 10 * (1 + rng.random(20))
    frame = costs.runs(made(tmp_path, {"wait": [*base], "async": [*(factor * base * rng.lognormal(0, 0.05, 20))]}))
    monkeypatch.setattr(claims, "CLAIMS", (claims.Claim(1, "async", "wait", "seconds", limit=limit),))
    (found,) = claims.verdicts(frame).to_dict("records")
    assert found["verdict"] == side
    assert found["gap"] == pytest.approx(factor, rel=0.05)


def test_a_pair_of_which_both_miss_the_target_says_nothing(
    claims: ModuleType, costs: ModuleType, tmp_path: Path
) -> None:
    spent = {"wait": [10.0, 30.0, 20.0], "async": [5.0, 2.0, 40.0]}
    frame = costs.runs(made(tmp_path, spent, missed={"wait": [1], "async": [1]}))
    found = claims.gaps(frame, claims.Claim(1, "async", "wait", "seconds"), BLOCK)
    assert found.tolist() == pytest.approx([np.log(2), 0.0, -np.log(2)])


@pytest.mark.parametrize(("limit", "side"), [(0.0, "holds"), (0.2, "fails"), (0.1, "cannot be told")])
def test_a_claim_about_levels_compares_paired_differences(
    limit: float, side: str, claims: ModuleType, costs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    base = 0.7 + 0.1 * rng.random(20)
    frame = costs.runs(made(tmp_path, {"wait": [*(base + 0.1 + rng.normal(0, 0.01, 20))], "async": [*base]}, "plateau"))
    monkeypatch.setattr(claims, "CLAIMS", (claims.Claim(1, "wait", "async", "plateau", limit=limit),))
    assert claims.verdicts(frame)["verdict"].tolist() == [side]


def test_p_values_are_those_of_all_flips_of_signs(claims: ModuleType) -> None:
    gaps = np.array([[0.3, -0.1, 0.4, 0.2, 0.5]])
    means = [float(np.mean(gaps[0] * signs)) for signs in product((1, -1), repeat=5)]
    above, below = (np.mean([side(mean, gaps.mean()) for mean in means]) for side in (np.greater_equal, np.less_equal))
    assert claims.p_values(gaps)[0] == pytest.approx([above, below])


@pytest.mark.parametrize(
    ("sides", "wanted"),
    [
        (["holds", "cannot be told"], "holds"),
        (["fails"], "fails"),
        (["holds", "fails", "cannot be told"], "both"),
        (["cannot be told"] * 2, "cannot be told"),
    ],
)
def test_over_blocks_a_side_wins_if_no_block_says_the_other(sides: list[str], wanted: str, claims: ModuleType) -> None:
    assert claims.over_blocks(pd.Series(sides)) == wanted


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tabulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the script of the tables prints, and the folder of its CSV files."""
    text, folder = io.StringIO(), tmp_path_factory.mktemp("tables")
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(text):
        script = module("orderings_tables", ROOT / "plots", patch)
        patch.setattr(sys, "argv", ["orderings_tables.py", str(TABLES), "--csv", str(folder)])
        script.main()
    return text.getvalue(), folder


@pytest.mark.slow
def test_the_page_has_every_table_as_the_runs_give_it(tabulated: tuple[str, Path]) -> None:
    page = PAGE.read_text()
    tables = [table.partition("\n\n") for table in tabulated[0].removesuffix("\n").split("\n\n### ")]
    assert len(tables) == 7
    missing = [title for title, _, lines in tables if not lines.startswith("| ") or lines.strip("\n") not in page]
    assert not missing


@pytest.mark.slow
def test_the_files_have_every_other_table_as_the_runs_give_it(tabulated: tuple[str, Path]) -> None:
    made, there = ({each.name: each.read_text() for each in folder.glob("*.csv")} for folder in (tabulated[1], TABLES))
    assert len(made) == 7
    assert there == made


def test_the_figures_are_drawn_from_the_tables_of_the_page(figures: ModuleType) -> None:
    wanted = figures.digest(TABLES)
    for name in figures.FIGURES:
        with Image.open(IMAGES / f"{name}.png") as image:
            assert image.info["Description"].endswith(wanted), f"{name}.png: run python plots/orderings.py"
        assert f"images/orderings/{name}.png" in PAGE.read_text()


@pytest.mark.slow
def test_the_script_draws_what_is_in_a_folder_of_tables(
    figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["orderings.py", str(TABLES), "--out", str(tmp_path)])
    figures.main()
    assert capsys.readouterr().out.split() == [str(tmp_path / f"{name}.png") for name in figures.FIGURES]
    assert all((tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG") for name in figures.FIGURES)


def test_the_picture_of_ranks_shows_the_ranks_of_the_tables(figures: ModuleType, costs: ModuleType) -> None:
    frame = costs.runs(TABLES)
    figure = figures.ranks_figure(frame)
    for axis, block in zip(figure.axes, costs.blocks(frame), strict=True):
        assert axis.get_title() == block[1]
        found = costs.rank_intervals(costs.table(frame, block, "seconds_high"))
        marks = [line.get_xdata()[0] for line in axis.lines if line.get_marker() == "o"]
        assert [*marks] == found["rank"].tolist()
