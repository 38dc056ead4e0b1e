"""What travels with a study: the files that its scenario names, and where they are afterwards."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from vflsim.learning.data.files import VARIABLE
from vflsim.scenario import load
from vflsim.scenario.resolve import ScenarioData
from vflsim.studies.engines import ray_task
from vflsim.studies.engines.ray_task import Luggage, relocated

SCENARIO = """\
name: tiny
data: {file: rows.csv, label: kind}
partition: {clients: 2}
models: {client: {kind: module, path: "travelling.models:Mine", embedding: 4},
  aggregate: mean, server: {kind: linear}}
training: {batch: 20, client_optimizer: {kind: sgd, lr: 0.2}, server_optimizer: {kind: sgd, lr: 0.1}}
timing: {clients: [{select: all, compute: {kind: empirical, file: times.csv, unit: ms}}]}
protocols: {wait: {kind: synchronous}}
stop: {rounds: 4}
"""
MODEL = """\
from torch import nn
class Mine(nn.Linear):
    def __init__(self, feature_shape, embedding):
        super().__init__(feature_shape[0], embedding)
"""


def test_files_are_found_at_their_new_places_when_the_old_ones_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (here / "travelling").mkdir(parents=True)
    (here / "rows.csv").write_text("a,b,kind\n" + "".join(f"{n},{n % 3},{n % 2}\n" for n in range(60)))
    (here / "times.csv").write_text("1\n2\n3\n")
    for name, text in (("__init__", ""), ("models", MODEL)):
        (here / "travelling" / f"{name}.py").write_text(text)
    (here / "notes.txt").write_text("not code")
    (here / "tiny.yaml").write_text(SCENARIO)
    monkeypatch.setattr(sys, "path", [*sys.path])
    scenario = load(here / "tiny.yaml")
    rows = ScenarioData(scenario).of(scenario.training).joint["train"]
    packed = Luggage.of(scenario)
    assert sorted(Path(path).name for path in packed.files) == ["rows.csv", "times.csv"]
    assert sorted(packed.modules) == ["travelling/__init__.py", "travelling/models.py"]
    shutil.rmtree(here)
    moved = relocated(scenario, packed.unpack(tmp_path / "there"))
    assert moved.data.file is not None
    assert Path(moved.data.file).is_relative_to(tmp_path / "there")
    assert ScenarioData(moved).of(moved.training).joint["train"].equal(rows)
    assert str(tmp_path / "there/modules") in sys.path
    assert relocated(scenario, {}) is scenario


def test_files_of_the_catalogue_travel_unless_they_are_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "credit").mkdir()
    from vflsim.learning.data.catalogue import CATALOGUE

    name = CATALOGUE["credit"].files[0].name
    (tmp_path / "credit" / name).write_bytes(b"12345")
    text = SCENARIO.replace("{file: rows.csv, label: kind}", "{name: credit}").replace(
        '{kind: module, path: "travelling.models:Mine", embedding: 4}', "{kind: linear, embedding: 4}"
    )
    scenario = load(text.replace("{kind: empirical, file: times.csv, unit: ms}", "1 ms"))
    packed = Luggage.of(scenario)
    assert packed == Luggage(catalogue={f"credit/{name}": b"12345"})
    packed.unpack(tmp_path / "there")
    assert (tmp_path / "there/catalogue/credit" / name).read_bytes() == b"12345"
    monkeypatch.setattr(ray_task, "MOST_BYTES", 4)
    assert Luggage.of(scenario) == Luggage()
