"""Modules beside the scenario that names them: found from any working directory, and again from stored results."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Ended

from vflsim import load
from vflsim.errors import ScenarioError

PARTS = '''
from typing import Literal

import numpy as np
import torch
from torch import nn

from vflsim.codecs import Codec
from vflsim.learning.models.aggregates import Aggregate
from vflsim.protocols.synchronous import Synchronous
from vflsim.timing.delays.base import Delay
from vflsim.vocabulary.quantities import PositiveSeconds
from {helpers} import HALF


class Tower(nn.Module):
    def __init__(self, feature_shape, embedding):
        super().__init__()
        self.map = nn.Linear(feature_shape[0], embedding)

    def forward(self, x):
        return torch.tanh(self.map(x))


class Top(nn.Module):
    def __init__(self, inputs, outputs, hidden):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))

    def forward(self, joined):
        return self.layers(joined)


class Middle(Aggregate):
    """The median; of those that are present."""

    kind: Literal["middle"] = "middle"

    def combine(self, embeddings, widths):
        return torch.stack([each for each in embeddings if each is not None]).median(0).values


class Narrow(Middle):
    kind: Literal["narrow"] = "narrow"

    def combine(self, embeddings, widths):
        return super().combine(embeddings, widths)[:, :1]


class Fails(Middle):
    kind: Literal["fails"] = "fails"

    def combine(self, embeddings, widths):
        return torch.stack(embeddings).mean(0)  # None has no place in it


class Triangular(Delay):
    kind: Literal["triangular"] = "triangular"
    high: PositiveSeconds

    def inverse_cdf(self, u):
        return self.high * u**HALF

    def cdf(self, t):
        return np.clip(np.asarray(t) / self.high, 0, 1) ** (1 / HALF)


class Wait(Synchronous):
    kind: Literal["wait"] = "wait"


class Halves(Codec):
    kind: Literal["halves"] = "halves"

    def payload_bytes(self, shape, dtype):
        return 2 * int(np.prod(shape))

    def pack(self, x):
        return x.to(torch.float16).contiguous().cpu().numpy().tobytes()

    def unpack(self, payload, shape, dtype):
        return torch.from_numpy(np.frombuffer(payload, np.float16).copy()).reshape(shape).to(dtype)
'''
SCENARIO = """\
name: beside
data: {{name: digits, train_rows: 60, test_fraction: 0.1}}
partition: {{clients: 3, by: columns}}
models:
  client: {{kind: module, path: "{parts}:Tower", embedding: 4}}
  aggregate: {{kind: module, path: "{parts}:{aggregate}"}}
  server: {{kind: module, path: "{parts}:Top", arguments: {{hidden: 5}}}}
training: {{batch: 20, client_optimizer: {{kind: sgd, lr: 0.1}}, server_optimizer: {{kind: sgd, lr: 0.1}}}}
timing:
  clients: {{compute: {{kind: module, path: "{parts}:Triangular", high: 1 ms}},
    upload_delay: {{kind: module, path: "{parts}:Triangular", high: 10 ms}}}}
protocols:
  wait: {{kind: module, path: "{parts}:Wait", codec: {{kind: module, path: "{parts}:Halves"}}}}
stop: {{rounds: 4}}
evaluate: {{every: 2 rounds}}
seeds: [0, 1]
"""
Vflsim = Callable[..., Ended]


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    yield
    for name in [name for name in sys.modules.keys() - before if name.startswith("beside_")]:
        del sys.modules[name]


def write(
    folder: Path, parts: str = "beside_parts", helpers: str = "beside_helpers", aggregate: str = "Middle"
) -> Path:
    """Write a scenario, and beside it the module with its parts, which imports another one beside it."""
    folder.mkdir(exist_ok=True)
    (folder / f"{parts}.py").write_text(PARTS.format(helpers=helpers))
    (folder / f"{helpers}.py").write_text("HALF = 0.5\n")
    scenario = folder / "own.yaml"
    scenario.write_text(SCENARIO.format(parts=parts, aggregate=aggregate))
    return scenario


def forget(*names: str) -> None:
    """Bring Python back to where a new process begins."""
    sys.path[:] = [folder for folder in sys.path if "own" not in Path(folder).name]
    for name in names:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_parts_of_every_category_come_from_beside_the_scenario(tmp_path: Path, vflsim: Vflsim) -> None:
    scenario = write(tmp_path / "own")
    checked = vflsim("check", scenario)
    assert checked.status == 0, checked.err
    ran = vflsim("run", scenario, "--out", "one", "--workers", 2)
    assert ran.status == 0, ran.err
    forget("beside_parts", "beside_helpers")
    assert vflsim("run", scenario, "--out", "two").status == 0
    for run in ("wait/seed-0", "wait/seed-1"):
        assert Path("one", run, "metrics.parquet").read_bytes() == Path("two", run, "metrics.parquet").read_bytes()


def test_a_process_that_changes_its_working_directory_finds_those_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python remembers what the name of a relative folder meant when it first looked there."""
    monkeypatch.chdir(write(tmp_path / "one", "beside_one").parent)
    (tmp_path / "one" / "beside_one.py").rename(tmp_path / "beside_one.py")
    monkeypatch.syspath_prepend(tmp_path)
    sys.path.append(str(tmp_path / "one"))
    assert load("own.yaml").modules is None
    monkeypatch.chdir(write(tmp_path / "other", "beside_other").parent)
    assert load("own.yaml").modules == str(tmp_path / "other")


@pytest.mark.slow
def test_stored_results_find_the_modules_again(tmp_path: Path, vflsim: Vflsim) -> None:
    scenario = write(tmp_path / "own")
    assert vflsim("run", scenario, "--out", "one", "--seeds", "0:1").status == 0
    forget("beside_parts", "beside_helpers")
    again = load(Path("one", "scenario.yaml"))
    assert again.modules == str(tmp_path / "own")
    assert type(again.protocols["wait"].protocol).__module__ == "beside_parts"
    for words in (["run", scenario, "--seeds", "0:1", "--out", "one", "--resume"], ["verify", "one"], ["plot", "one"]):
        forget("beside_parts", "beside_helpers") if "beside_parts" in sys.modules else None
        ended = vflsim(*words)
        assert ended.status == 0, ended.err


def test_the_key_modules_names_another_folder(tmp_path: Path) -> None:
    scenario = write(tmp_path / "own")
    (tmp_path / "own" / "deeper").mkdir()
    moved = scenario.rename(tmp_path / "own" / "deeper" / "own.yaml")
    with pytest.raises(ScenarioError, match=r"no module named beside_parts(.|\n)*scenario's folder(.|\n)*PYTHONPATH"):
        load(moved)
    assert load(moved, ["modules=.."]).modules == str(tmp_path / "own")
    with pytest.raises(ScenarioError, match=r"--set modules=nowhere(.|\n)*there is no folder"):
        load(moved, ["modules=nowhere"])


def test_a_scenario_without_modules_of_its_own_names_no_folder(tmp_path: Path) -> None:
    scenario = write(tmp_path / "own")
    (tmp_path / "own" / "beside_parts.py").rename(tmp_path / "beside_parts.py")
    sys.path += [str(tmp_path), str(tmp_path / "own")]
    assert load(scenario).modules is None


@pytest.mark.parametrize("parts", ["statistics", "beside_twice"])
def test_a_module_whose_name_is_taken_is_refused_with_both_places(tmp_path: Path, parts: str) -> None:
    first = write(tmp_path / "own", parts, "beside_helpers")
    second = write(tmp_path / "own-too", parts, "beside_helpers")
    if parts == "beside_twice":
        load(first)
    with pytest.raises(ScenarioError, match=r"has the same name(.|\n)*rename") as caught:
        load(second)
    assert str(tmp_path / "own-too" / f"{parts}.py") in str(caught.value)
    assert str(sys.modules[parts].__file__) in str(caught.value)
    assert "own.yaml:5" in str(caught.value)


@pytest.mark.parametrize(
    ("aggregate", "words"),
    [
        ("Narrow", ["Narrow.combine returned a Tensor of shape (2, 1)", "(2, 4)"]),
        ("Fails", ["Fails fails: TypeError", "beside_parts.py:"]),
    ],
)
def test_an_aggregate_of_ones_own_is_tried_before_anything_runs(
    tmp_path: Path, vflsim: Vflsim, aggregate: str, words: list[str]
) -> None:
    ended = vflsim("check", write(tmp_path / "own", aggregate=aggregate))
    printed = " ".join(ended.err.split())
    assert ended.status == 2
    assert [word for word in ["own.yaml:6: models.aggregate", *words] if word not in printed] == [], printed
