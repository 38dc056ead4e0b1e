"""The scenarios of papers: each says in its comment by what overrides it becomes quick, and then trains."""

import re
import shlex
from pathlib import Path

import pytest

import vflsim
from vflsim.learning.data import data_list
from vflsim.protocols import PROTOCOLS
from vflsim.scenario.models import Scenario

FOLDER = Path(__file__).parents[1] / "scenarios"
ALIKE = sorted(path for paper in ("fedvs", "vafl") for path in (FOLDER / paper).glob("*.yaml"))
OTHERS = sorted(path for paper in ("vim", "easter", "rounding") for path in (FOLDER / paper).glob("*.yaml"))
SCENARIOS = [*ALIKE, *OTHERS]
QUICKEST = {"easter/criteo", "rounding/table1"}
"""Those that train in about a second, a table and images; of the others the quick variant is only read."""
QUICK = re.compile(r"^# Quick: --seeds (?P<seeds>\S+) (?P<overrides>.+)$", re.MULTILINE)


def quick(path: Path) -> Scenario:
    said = QUICK.search(path.read_text())
    assert said is not None, "the comment has a line `# Quick: --seeds … --set …`"
    words = shlex.split(said["overrides"])
    assert set(words[::2]) == {"--set"}
    return vflsim.load(path, [f"seeds={said['seeds']}", *words[1::2]])


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[] if f"{path.parent.name}/{path.stem}" in QUICKEST else pytest.mark.slow)
        for path in SCENARIOS
    ],
    ids=lambda path: path.stem,
)
def test_the_quick_variant_of_a_scenario_trains_every_protocol(path: Path, tmp_path: Path) -> None:
    scenario = quick(path)
    if next(row.where for row in data_list() if row.name == scenario.data.name) == "absent":
        pytest.skip(f"{scenario.data.name} not found: set VFLSIM_DATA")
    results = vflsim.run(scenario, out=tmp_path / "results")
    assert not results.failed
    for name in scenario.protocols:
        own = results.metrics.query("protocol == @name")
        accuracy, loss = own["test_accuracy"].dropna(), own["test_loss"].dropna()
        assert len(accuracy) >= 2, name
        if scenario.protocols[name].mechanism is None:
            rises = accuracy.iloc[1:].max() > accuracy.iloc[0]
            falls = loss.iloc[1:].min() < loss.iloc[0]  # of 50 test rows, accuracy may stay at the larger class's share
            assert rises or falls, f"{name} learns nothing"
        else:  # noise leaves nothing to be learnt in so few rounds
            assert loss.nunique() > 1, f"{name} does not train"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_evaluates_at_most_a_hundred_times_and_has_a_quick_variant(path: Path) -> None:
    scenario = vflsim.load(path)
    assert len(quick(path).seeds) == 1
    assert scenario.record.tables == "summary"
    if scenario.stop.time is not None and scenario.evaluate.every.unit == "seconds":
        assert scenario.stop.time / scenario.evaluate.every.amount <= 100


@pytest.mark.parametrize("path", ALIKE, ids=lambda path: path.stem)
def test_all_protocols_of_a_scenario_train_alike(path: Path) -> None:
    scenario = vflsim.load(path)
    assert all(scenario.training_of(name) == scenario.training for name in scenario.protocols)


@pytest.mark.slow
def test_one_scenario_has_every_protocol(tmp_path: Path) -> None:
    scenario = vflsim.load(FOLDER / "all_protocols.yaml", ["stop={rounds: 2}", "evaluate.every=2 rounds", "seeds=[0]"])
    # Two have no optimiser that could be tuned, and no models in common; two are of other parties or rows. They have
    # scenarios of their own.
    there = {type(entry.protocol) for entry in scenario.protocols.values()}
    alone = {kind.model_fields["kind"].default for kind in set(PROTOCOLS) - there}
    assert alone == {"few_shot", "he_lr", "pubsub_vfl", "secureboost"}
    assert not vflsim.run(scenario, out=tmp_path / "results").failed
