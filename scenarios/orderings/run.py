"""Tune and run every protocol in every world on every data set; write the tables of the study of orderings.

A block is a data set in a world: ``fashion_mnist/lte``. In each, every protocol is tuned on validation rows, on a seed
that is not reported, and then runs with its own best rate on the seeds that are. Finished runs are kept, so the command
may be repeated after an interruption. With ``--only``, several machines share the blocks; ``--collect`` makes the
tables of all that is there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

import vflsim
from vflsim.errors import RunError, VflsimError
from vflsim.results.statistics.summary import outcomes

HERE = Path(__file__).parent
RATES = (0.001, 0.003, 0.01, 0.03)
KEYS = "training.client_optimizer.lr,training.server_optimizer.lr"
TUNING_SEEDS = "10000:10001"


@dataclass(frozen=True)
class Block:
    """A data set in a world; times in seconds."""

    data: str
    world: str
    horizon: float
    """When runs end: some 60 rounds of ``wait`` on handwritten, 80 on credit, 40 on fashion_mnist, more on phones."""
    deadline: float
    """Of ``laser-vfl`` and of answers: about the mean round of ``fastest``."""
    local: float
    """What ``flex-vfl`` steps for in a round: three steps of a client of median speed."""

    @property
    def name(self) -> str:
        """Its folder, and what ``--only`` calls it."""
        return f"{self.data}/{self.world}"

    def overrides(self) -> list[str]:
        """Return what the world changes in the data set's scenario."""
        return [
            f"timing.preset=worlds/{self.world}.yaml",
            f"stop.time={self.horizon} s",
            f"evaluate.deadline={self.deadline} s",
            f"protocols.laser-vfl.deadline={self.deadline} s",
            f"protocols.flex-vfl.local_time={self.local} s",
        ]


BLOCKS = (
    Block("handwritten", "exponential", 350, 2, 0.006),
    Block("handwritten", "tails", 60, 0.5, 0.006),
    Block("handwritten", "shared", 6, 0.07, 0.015),
    Block("handwritten", "phones", 160, 0.36, 1),
    Block("handwritten", "outages", 60, 0.35, 0.06),
    Block("handwritten", "lte", 11, 0.15, 0.015),
    Block("credit", "exponential", 600, 3, 0.006),
    Block("credit", "tails", 100, 0.6, 0.006),
    Block("credit", "shared", 10.5, 0.1, 0.015),
    Block("credit", "phones", 30, 0.055, 0.2),
    Block("credit", "outages", 85, 0.55, 0.06),
    Block("credit", "lte", 19, 0.17, 0.015),
    Block("fashion_mnist", "exponential", 400, 3.3, 0.006),
    Block("fashion_mnist", "tails", 80, 0.65, 0.006),
    Block("fashion_mnist", "shared", 30, 0.57, 0.015),
    Block("fashion_mnist", "phones", 80, 0.3, 0.75),
    Block("fashion_mnist", "outages", 200, 3.5, 0.06),
    Block("fashion_mnist", "lte", 43, 0.83, 0.015),
)


def scenario(block: Block) -> vflsim.Scenario:
    """Load the scenario of a block, untuned."""
    return vflsim.load(HERE / f"{block.data}.yaml", block.overrides())


def carried_out(block: Block, folder: Path, **execution: Any) -> None:
    """Tune and run a block; keep what is there already."""
    shorter = [f"stop.time={block.horizon / 2} s", "evaluate.deadline=null"]
    fixed = scenario(block)
    vflsim.tune(fixed, {KEYS: RATES}, folder / "tuning", in_tuning=shorter, seeds=TUNING_SEEDS, **execution)
    try:
        vflsim.run(folder / "tuning" / "tuned.yaml", folder / "runs", **execution)
    except RunError as error:  # all others have run, and the tables count it
        print(error, file=sys.stderr)


MEASURES = ("time_to_target", "rounds_to_target", "bytes_to_target", "energy_to_target", "round_duration", "end")


def rows(block: Block, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what is reported of a block: a row per protocol, seed and measure."""
    results = vflsim.open_results(folder / "runs")
    plateau, metric = f"plateau_{results.main_metric}", results.main_metric
    found = outcomes(results).rename(columns={"target": "of"})
    for row in found[found["measure"].isin((*MEASURES, plateau))].itertuples(index=False):
        named = "plateau" if row.measure == plateau else row.measure
        yield _row(block, row.protocol, row.seed, named, row.value, row.censored)
    answers = results.answers
    for row in answers[answers["deadline_s"] == block.deadline].to_dict("records"):
        yield _row(block, row["protocol"], row["seed"], "answers", row[metric], False)
    for run in results.failed:
        yield _row(block, run.protocol, run.seed, "failed", 1.0, False)


def breakdown(block: Block, folder: Path) -> pd.DataFrame:
    """Return what a round waits for, from the events of seed 0 without training: seconds and share of each part."""
    short = [
        "record=events",
        "stop.rounds=60",
        "protocols.async.stop.rounds=300",
        "seeds=[0]",
        "evaluate.deadline=null",
    ]
    loaded = vflsim.load(HERE / f"{block.data}.yaml", [*block.overrides(), *short])
    numbers = vflsim.plot(vflsim.run(loaded, folder / "timing", timing_only=True), "breakdown").numbers["rounds"]
    shown = numbers[numbers["share"] > 0].drop(columns="before")
    return shown.assign(data=block.data, world=block.world)


def _row(block: Block, protocol: str, seed: int, measure: str, value: float, censored: bool) -> dict[str, Any]:
    where = {"data": block.data, "world": block.world, "protocol": protocol, "seed": seed}
    return where | {"measure": measure, "value": float(value), "censored": bool(censored)}


def chosen(block: Block, folder: Path) -> pd.DataFrame:
    """Return the scores of a block's tuning: a row per protocol and rate."""
    scores = pd.read_parquet(folder / "tuning" / "tuning.parquet")
    scores = scores.rename(columns={"value": "rate"}).astype({"rate": float})
    return scores.assign(data=block.data, world=block.world)


def write_tables(blocks: list[Block], out: Path, into: Path) -> None:
    """Write ``runs.parquet``, ``tuning.parquet`` and ``breakdown.parquet`` of all blocks that have finished."""
    done = [block for block in blocks if (out / block.name / "runs" / "summary.md").is_file()]
    into.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(row for block in done for row in rows(block, out / block.name))
    frame.to_parquet(into / "runs.parquet", index=False)
    pd.concat([chosen(block, out / block.name) for block in done]).to_parquet(into / "tuning.parquet", index=False)
    waits = pd.concat([breakdown(block, out / block.name) for block in done])
    waits.to_parquet(into / "breakdown.parquet", index=False)
    print(f"{len(done)} of {len(blocks)} blocks in {into}")


def expected_s(block: Block, workers: int) -> float:
    """Estimate the real seconds of a block's reported runs on this machine."""
    found = vflsim.check(scenario(block), workers=workers)
    return float(found.frame["run_s"].sum()) * len(found.scenario.seeds) / workers


def main() -> None:
    """Read the command line, and do as it says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="DATA[/WORLD]", help="these blocks alone")
    parser.add_argument("--out", type=Path, default=Path("results/orderings"), help="where runs go")
    parser.add_argument("--tables", type=Path, default=HERE / "tables", help="where the tables go")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engine", choices=("processes", "ray"), default="processes")
    parser.add_argument("--address", help="Ray's cluster")
    parser.add_argument("--dry-run", action="store_true", help="say how long it takes")
    parser.add_argument("--collect", action="store_true", help="write the tables of what is there")
    given = parser.parse_args()
    wanted = [each for each in BLOCKS if not given.only or {each.name, each.data} & {*given.only}]
    if not wanted:
        parser.error(
            f"--only: allowed are {', '.join(dict.fromkeys(each.data for each in BLOCKS))}, and /WORLD behind it"
        )
    if given.dry_run:
        whole = 0.0
        for block in wanted:
            whole += (seconds := expected_s(block, given.workers))
            print(f"{block.name:28} {seconds / 60:6.1f} min, and some {0.4 * seconds / 60:.1f} min to tune", flush=True)
        print(f"in all some {1.4 * whole / 3600:.1f} h with {given.workers} workers")
        return
    on_ray = {"engine": "ray", "address": given.address}  # which starts its workers itself
    execution = on_ray if given.engine == "ray" else {"workers": given.workers}
    if not given.collect:
        for block in wanted:
            print(block.name, flush=True)
            carried_out(block, given.out / block.name, **execution)
    write_tables(list(BLOCKS), given.out, given.tables)


if __name__ == "__main__":
    try:
        main()
    except VflsimError as error:
        sys.exit(f"error: {error}")
