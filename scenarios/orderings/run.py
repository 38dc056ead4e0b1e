"""Tune and run every protocol in every world on every data set; write the tables of the study of orderings.

A block is a data set in a world: ``handwritten/lte``. In each, every protocol is tuned by its seconds to the target on
validation rows, on seeds that are not reported: first its learning rate, on a grid that grows until the best rate lies
inside, then its own key. It then runs with the best of both on the seeds that are reported. plan.md has
the rules. Finished runs are kept, so the command may be repeated after an interruption. With ``--only``, several
machines share the blocks; ``--collect`` makes the tables of all that is there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from ruamel.yaml import YAML

import vflsim
from vflsim.errors import RunError, VflsimError
from vflsim.results.read import Results
from vflsim.results.statistics import outcomes

HERE = Path(__file__).parent
LADDER = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
FIRST = (2, 3, 4)
"""Places of the rates on the ladder that every protocol tries first."""
SEEDS, SEEDS_OF_FIFO, TUNING_SEEDS = "200:220", "200:205", "10000:10003"
LEVELS = {"low": 0.9, "high": 0.97}
"""Shares of the best protocol's plateau that are the targets."""
IN_A_ROW = "3 evaluations"

OWN: Mapping[str, Mapping[str, Any]] = {
    "fastest": {"fastest": (3, 4, 5)},
    "t-sync": {"t": (2, 3, 4)},
    "fedvs": {"K": (1, 2)},
    "fedbcd": {"local_steps": (2, 3, 5)},
    "c-vfl": {"codec.bits": (2, 4, 8)},
    "ef-vfl": {"codec.fraction": (0.05, 0.1, 0.3)},
    "bs-vfl": {"window": (2, 4, 8)},
    "celu-vfl": {"uses": (3, 5, 8)},
    "flex-vfl": {"local_time": (0.5, 1, 2)},
    "laser-vfl": {"deadline": (0.5, 1, 2)},
    "vimadmm": {"rho": (0.3, 1, 3)},
}
"""What is tuned after the rate, for six clients; times are factors of the block's. Others tune the server's rate."""
SERVER_FACTORS = (0.3, 1, 3)


@dataclass(frozen=True)
class Block:
    """A data set in a world; times in seconds."""

    data: str
    world: str
    horizon: float
    """When runs end: some 60 rounds of ``wait`` on handwritten, more on phones."""
    deadline: float
    """Of answers, and of ``laser-vfl`` before it is tuned: about the mean round of ``fastest``."""
    local: float
    """What ``flex-vfl`` steps for in a round before it is tuned: three steps of a client of median speed."""

    @property
    def name(self) -> str:
        """Its folder, and what ``--only`` calls it."""
        return f"{self.data}/{self.world}"

    def overrides(self, network: str = "fair") -> list[str]:
        """Return what the world changes in the data set's scenario."""
        return [
            f"timing.preset=worlds/{self.world}.yaml",
            f"timing.network={network}",
            f"stop.time={self.horizon} s",
            f"evaluate.deadline={self.deadline} s",
        ]


BLOCKS = (
    Block("handwritten", "exponential", 350, 2, 0.006),
    Block("handwritten", "tails", 60, 0.5, 0.006),
    Block("handwritten", "shared", 6, 0.07, 0.015),
    Block("handwritten", "phones", 160, 0.36, 1),
    Block("handwritten", "outages", 60, 0.35, 0.06),
    Block("handwritten", "lte", 11, 0.15, 0.015),
)


# --- settings ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """A protocol with a rate, and a value of its own key."""

    protocol: str
    place: int
    """Of its rate on the ladder."""
    value: float

    @property
    def name(self) -> str:
        """What the scenario calls the protocol with this setting."""
        return f"{self.protocol}_{self.place}_{self.value:g}".replace(".", "p")

    def document(self, block: Block) -> dict[str, Any]:
        """Return the protocol's entry in the scenario."""
        entry: dict[str, Any] = json.loads(json.dumps(base(block.data)["protocols"][self.protocol]))
        client = server = LADDER[self.place]
        times = {"local_time": block.local, "deadline": block.deadline}
        if (own := OWN.get(self.protocol)) is None:
            server *= self.value
        else:
            *path, key = next(iter(own)).split(".")
            inner = entry
            for each in path:
                inner = inner[each]
            inner[key] = f"{self.value * times[key]} s" if key in times else self.value
        entry["training"] = {
            "client_optimizer": {"kind": "adam", "lr": client},
            "server_optimizer": {"kind": "adam", "lr": server},
        }
        return entry


def base(data: str) -> dict[str, Any]:
    """Read a data set's scenario, as it stands in its file."""
    document: dict[str, Any] = YAML(typ="safe").load(HERE / f"{data}.yaml")
    return document


def own_values(protocol: str) -> tuple[Any, ...]:
    """Return the values of what is tuned after the rate."""
    own = OWN.get(protocol)
    return SERVER_FACTORS if own is None else next(iter(own.values()))


def default(protocol: str) -> Any:
    """Return the value that rates are tuned with: the middle one, of two the first."""
    values = own_values(protocol)
    return values[(len(values) - 1) // 2]


def scenario(block: Block, settings: Iterable[Setting] = (), more: Iterable[str] = ()) -> vflsim.Scenario:
    """Load the scenario of a block, with ``settings`` beside its protocols as they are untuned."""
    added = [f"protocols.{each.name}={json.dumps(each.document(block))}" for each in settings]
    return vflsim.load(HERE / f"{block.data}.yaml", [*block.overrides(), *added, *more])


def carried_out(scenario: vflsim.Scenario, folder: Path, names: list[str], **execution: Any) -> Results:
    """Run some protocols; a run that fails is kept as failed, and the others run."""
    try:
        return vflsim.run(scenario, folder, protocols=names, **execution)
    except RunError as error:  # the tables count it
        print(error, file=sys.stderr)
        return vflsim.open_results(folder)


# --- tuning -----------------------------------------------------------------------------------------------------------


def levels(data: str, out: Path, **execution: Any) -> dict[str, float]:
    """Return the targets of a data set: shares of the best plateau on validation rows, of all protocols untuned.

    The plateau is the mean over the tuning seeds in the first world of the data set.
    """
    block = next(each for each in BLOCKS if each.data == data)
    loaded = scenario(block, more=[f"seeds={TUNING_SEEDS}", "evaluate.deadline=null"])
    found = outcomes(carried_out(loaded, out / data / "pilot", [*loaded.protocols], **execution))
    plateaus = found[found["measure"] == "plateau_validation_accuracy"].groupby("protocol")["value"].mean()
    return {name: round(share * float(plateaus.max()), 3) for name, share in LEVELS.items()}


def scores(block: Block, settings: list[Setting], level: float, folder: Path, **execution: Any) -> pd.DataFrame:
    """Run settings on the tuning seeds until the level; return a row each: seconds (mean, missed: horizon), plateau."""
    target = {"validation_accuracy": level, "for": IN_A_ROW}
    more = [f"seeds={TUNING_SEEDS}", "evaluate.deadline=null", f"stop.target={json.dumps(target)}"]
    loaded = scenario(block, settings, more)
    found = outcomes(carried_out(loaded, folder, [each.name for each in settings], **execution), target)
    rows = []
    for each in settings:
        own = found[found["protocol"] == each.name]
        times = own[own["measure"] == "time_to_target"]
        spent = times["value"].where(~times["censored"], block.horizon)
        plateau = own[own["measure"] == "plateau_validation_accuracy"]["value"]
        missed = 3 - len(spent)  # diverged, and not even a cost
        seconds = (spent.sum() + missed * block.horizon) / 3
        rows.append({
            "data": block.data, "world": block.world, "protocol": each.protocol, "place": each.place,
            "rate": LADDER[each.place], "value": float(each.value), "seconds": float(seconds),
            "plateau": float(plateau.sum() / 3), "reached": int((~times["censored"]).sum()),
        })  # fmt: skip
    return pd.DataFrame(rows)


def best(tried: pd.DataFrame, protocol: str) -> Setting:
    """Return the setting with the fewest seconds to the target; of equal ones that with the highest plateau."""
    own = tried[tried["protocol"] == protocol].sort_values(["seconds", "plateau"], ascending=[True, False])
    first = own.iloc[0]
    return Setting(protocol, int(first["place"]), float(first["value"]))


def beyond(tried: pd.DataFrame, protocol: str) -> Setting | None:
    """Return the next setting to try, if the best rate lies at the edge of those that have been tried."""
    chosen = best(tried, protocol)
    places = {*tried[tried["protocol"] == protocol]["place"]}
    for place in (chosen.place - 1, chosen.place + 1):
        if 0 <= place < len(LADDER) and place not in places:
            return Setting(protocol, place, chosen.value)
    return None


def tuned(block: Block, level: float, folder: Path, **execution: Any) -> pd.DataFrame:
    """Tune every protocol of a block; return a row per setting that was tried, the chosen ones marked."""
    names = [*base(block.data)["protocols"]]
    first = [Setting(name, place, default(name)) for name in names for place in FIRST]
    tried = scores(block, first, level, folder / "rates", **execution)
    step = 0
    while more := [each for name in names if (each := beyond(tried, name)) is not None]:
        step += 1
        found = scores(block, more, level, folder / f"rates-{step}", **execution)
        tried = pd.concat([tried, found], ignore_index=True)
    own = []
    for name in names:
        place = best(tried, name).place
        own += [Setting(name, place, value) for value in own_values(name) if value != default(name)]
    tried = pd.concat([tried, scores(block, own, level, folder / "own", **execution)], ignore_index=True)
    chosen = {(each.protocol, each.place, float(each.value)) for name in names if (each := best(tried, name))}
    marks = [key in chosen for key in zip(tried["protocol"], tried["place"], tried["value"], strict=True)]
    return tried.assign(chosen=marks)


# --- tables -----------------------------------------------------------------------------------------------------------

COSTS = {"time": "seconds", "bytes": "bytes", "energy": "joules", "rounds": "rounds"}


def rows(block: Block, network: str, results: Results, aims: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """Yield what is reported of a block: a row per protocol, seed and measure."""
    where = {"data": block.data, "world": block.world, "network": network}

    def row(protocol: str, seed: int, measure: str, value: float, censored: bool = False) -> dict[str, Any]:
        name = protocol.split("_")[0]
        return {**where, "protocol": name, "seed": seed, "measure": measure, "value": value, "censored": censored}

    for level, value in aims.items():
        found = outcomes(results, {"test_accuracy": value, "for": IN_A_ROW})
        for each in found.itertuples(index=False):
            cost = COSTS.get(str(each.measure).removesuffix("_to_target"))
            if cost is not None and str(each.measure).endswith("_to_target"):
                yield row(each.protocol, each.seed, f"{cost}_{level}", each.value, bool(each.censored))
            elif each.measure == "plateau_test_accuracy" and level == "high":
                yield row(each.protocol, each.seed, "plateau", each.value)
            elif each.measure == "end" and level == "high":
                yield row(each.protocol, each.seed, "end", each.value)
    answers = results.answers
    for each in answers[answers["deadline_s"] == block.deadline].to_dict("records"):
        yield row(each["protocol"], each["seed"], "answers", each["test_accuracy"])
    for run in results.failed:
        yield row(run.protocol, run.seed, "failed", 1.0)


def block_of(block: Block, out: Path, tables: Path, **execution: Any) -> None:
    """Tune and run a block, also on serial links; write its part of the tables."""
    aims = levels(block.data, out, **execution)
    folder = out / block.name
    tried = tuned(block, aims["high"], folder / "tuning", **execution)
    settings = [
        Setting(each.protocol, int(each.place), float(each.value)) for each in tried[tried["chosen"]].itertuples()
    ]
    parts = []
    for network, seeds in (("fair", SEEDS), ("fifo", SEEDS_OF_FIFO)):
        loaded = scenario(block, settings, [f"timing.network={network}", f"seeds={seeds}"])
        results = carried_out(loaded, folder / network, [each.name for each in settings], **execution)
        parts.append(pd.DataFrame(rows(block, network, results, aims)))
    tables.mkdir(parents=True, exist_ok=True)
    name = block.name.replace("/", "-")
    frame = pd.concat(parts, ignore_index=True)
    wide = ["data", "world", "network", "protocol", "measure"]
    frame.astype(dict.fromkeys(wide, "category")).to_parquet(tables / f"runs-{name}.parquet", index=False)
    aimed = tried.assign(**{f"target_{level}": value for level, value in aims.items()}, horizon=block.horizon)
    aimed.to_parquet(tables / f"tuning-{name}.parquet", index=False)


def main() -> None:
    """Read the command line, and do as it says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="DATA[/WORLD]", help="these blocks alone")
    parser.add_argument("--out", type=Path, default=Path("results/orderings"), help="where runs go")
    parser.add_argument("--tables", type=Path, default=HERE / "tables", help="where the tables go")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engine", choices=("processes", "ray"), default="processes")
    parser.add_argument("--address", help="Ray's cluster")
    given = parser.parse_args()
    wanted = [each for each in BLOCKS if not given.only or {each.name, each.data} & {*given.only}]
    if not wanted:
        known = ", ".join(dict.fromkeys(each.data for each in BLOCKS))
        parser.error(f"--only: allowed are {known}, and /WORLD behind it")
    on_ray = {"engine": "ray", "address": given.address}  # which starts its workers itself
    execution = on_ray if given.engine == "ray" else {"workers": given.workers}
    for block in wanted:
        print(block.name, flush=True)
        block_of(block, given.out, given.tables, resume=True, **execution)


if __name__ == "__main__":
    try:
        main()
    except VflsimError as error:
        sys.exit(f"error: {error}")
