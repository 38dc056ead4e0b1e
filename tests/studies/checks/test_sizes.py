"""Memory of runs from shapes: counted by part, and refused before any weight is made."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_worlds import data_of, raw, tiny
from torch import nn

from vflsim.errors import ScenarioError
from vflsim.learning.models import build, footprint as footprints
from vflsim.learning.models.footprint import Footprint, footprint
from vflsim.scenario import load
from vflsim.scenario.resolve import setting
from vflsim.studies.checks import data as checks, sizes
from vflsim.studies.checks.data import read_and_check
from vflsim.studies.checks.sizes import Size, size_of

GB = 1e9
WIDE: dict[str, Any] = {"models__server": {"kind": "mlp", "hidden": [4_000_000]}}
FEDVS = {"fedvs": {"kind": "fedvs", "K": 1, "T": 1}}
POLYNOMIAL = {"kind": "polynomial", "degree": 2, "embedding": 4_000_000}


def size(entries: Any = "synchronous", **changes: Any) -> Size:
    scenario = tiny(entries, **changes)
    name = next(iter(scenario.protocols))
    return size_of(scenario.protocols[name].protocol, setting(scenario, name, data_of(scenario)))


def no_weights(*_: Any, **__: Any) -> None:
    raise AssertionError("a model was made")


def test_a_forward_pass_is_counted_by_what_it_keeps_and_by_its_largest_operation() -> None:
    found = footprint(lambda: nn.Sequential(nn.Linear(3, 100), nn.ReLU(), nn.Linear(100, 2)), (3,), 10, torch.float32)
    assert found.kept == 4 * 10 * (3 + 100)  # the input, and what the ReLU puts out
    assert found.largest == 4 * 10 * (100 + 100)
    assert found.output == 4 * 10 * 2


@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_few_rows_tell_what_shapes_tell(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = lambda: [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 6 * 6, 5)]  # noqa: E731
    shape = (1, 14, 14)
    counted = footprint(lambda: nn.Sequential(*layers()), shape, rows, torch.float32)
    monkeypatch.setattr(footprints, "_SMALL", 0)
    assert counted == footprint(lambda: nn.Sequential(*layers()), shape, rows, torch.float32)
    assert counted.kept > 4 * rows * 8 * 12 * 12


@pytest.mark.slow
def test_counting_leaves_no_weights_behind() -> None:
    footprint(lambda: nn.Sequential(nn.Linear(3, 1237), nn.ReLU(), nn.Linear(1237, 2)), (3,), 10, torch.float32)
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is torch.Tensor and each.shape == (1237, 3)]


def test_a_module_that_refuses_zeros_counts_for_nothing() -> None:
    class Picky(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.sum().item() == 0:
                raise ValueError("no zeros")
            return super().forward(x)

    assert footprint(lambda: Picky(3, 2), (3,), 10, torch.float32) == Footprint()


@pytest.mark.parametrize(
    ("optimizer", "slots"),
    [({"kind": "sgd", "lr": 0.1}, 0), ({"kind": "sgd", "lr": 0.1, "momentum": 0.9}, 1), ({"kind": "adam", "lr": 1}, 2)],
)
def test_weights_gradients_and_optimisers_are_parts(optimizer: dict[str, Any], slots: int) -> None:
    found = size(training__client_optimizer=optimizer, training__server_optimizer=optimizer)
    server = 6 * 8 + 8 + 8 * 10 + 10
    assert found.parts["weights"] == 8 * found.parameters
    assert found.parts["gradients"] == 8 * (found.parameters + server)  # the server's once more, as one vector
    assert found.parts["optimisers"] == 8 * found.parameters * slots
    assert found.bytes == sum(found.parts.values())


@pytest.mark.parametrize(
    ("entries", "changes", "least", "most"),
    [
        ("synchronous", {}, 0, 1e-3),
        ("synchronous", WIDE, 2, 16),
        ("synchronous", {**WIDE, "training__batch": "all"}, 8, 16),
        (FEDVS, {"models__client": POLYNOMIAL, "training__batch": 20}, 25, 80),
    ],
)
def test_a_run_that_exceeds_the_machine_is_refused_before_it_is_made(
    entries: Any, changes: dict[str, Any], least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = tiny(entries, **changes)
    monkeypatch.setattr(sizes, "machine_memory", lambda: most * GB)
    monkeypatch.setattr(checks, "_smallest_batch", lambda *_: ())  # would make the models that are accepted
    monkeypatch.setattr(build, "seeded", no_weights)
    read_and_check(scenario)
    monkeypatch.setattr(sizes, "machine_memory", lambda: least * GB)
    with pytest.raises(ScenarioError, match=r"(?s)models.*needs about.*memory of this machine.*narrower"):
        read_and_check(scenario)
    if least:  # without training there are features and weights alone
        read_and_check(scenario, training=False)


@pytest.mark.parametrize("shared", [True, False])
def test_runs_at_a_time_need_their_memory_each_but_one_copy_of_the_features(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, one = tiny(seeds=[0, 1, 2]), size()
    own = one.bytes - one.parts["features"] * shared
    once = (90 + 180) * (64 * 8 + 8) * shared  # 90 training and 180 test rows of 64 features and a label
    monkeypatch.setattr(sizes, "can_share", lambda: shared)
    monkeypatch.setattr(sizes, "machine_memory", lambda: once + 2.5 * own)
    read_and_check(scenario, workers=2)
    for workers in (3, 8):  # never more than there are runs
        with pytest.raises(ScenarioError, match=r"(?s)3 runs of synchronous at a time.*at most --workers 2"):
            read_and_check(scenario, workers=workers)


def test_a_module_of_ones_own_is_refused_before_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from torch import nn\ndef top(inputs, outputs):\n    return nn.Linear(inputs, outputs)\n"
    (tmp_path / "own_top_of_any_size.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(build, "machine_memory", lambda: 200.0)
    monkeypatch.setattr(build, "seeded", no_weights)
    own = {"kind": "module", "path": "own_top_of_any_size:top"}
    with pytest.raises(ScenarioError, match=r"(?s)models.server.*70 weights.*280 bytes.*200 bytes"):
        load(raw("synchronous", models__server=own))


@pytest.mark.parametrize(("aggregate", "summed"), [("mean", True), ("sum", True), ("concat", False)])
def test_embeddings_that_evaluation_only_sums_count_once(aggregate: str, summed: bool) -> None:
    few, many = (
        size(models__aggregate=aggregate, models__client={"kind": "linear", "embedding": 20_000}, partition=cut)
        for cut in ({"clients": 3, "by": "columns"}, {"clients": 6, "by": "columns"})
    )
    grown = many.parts["an evaluation"] - few.parts["an evaluation"]
    assert (grown <= 0) == summed


HIDDEN = {"kind": "mlp", "hidden": [3_000], "embedding": 2}


@pytest.mark.parametrize(
    ("changes", "least", "most"),
    [  # in arrays of all clients' widest layer
        ({"models__client": {"kind": "linear", "embedding": 3_000}}, 1.2, 2.1),  # the sum alone, where it is used
        ({"models__client": {"kind": "linear", "embedding": 3_000}, "models__aggregate": "concat"}, 5.9, 6.5),
        ({"models__client": HIDDEN}, 2.9, 3.5),  # kept, and two in the ReLU of all clients at once
    ],
)
def test_clients_of_a_stack_compute_at_once(changes: dict[str, Any], least: float, most: float) -> None:
    cut = {"clients": 3, "by": "columns"}
    found = size("synchronous", **changes, partition=cut, training__batch=60)
    array = 3 * 60 * 3_000 * 8
    busiest = found.parts.get("activations of a batch") or found.parts["an evaluation"]
    assert least * array < busiest < most * array


def test_servers_without_a_model_of_their_own_are_counted() -> None:
    entry = {"fdml": {"kind": "fdml"}}
    assert size(entry, models__aggregate="concat", models__server={"kind": "linear", "bias": False}).parameters > 0


def test_views_of_a_protocol_that_ends_by_itself_are_those_until_its_end() -> None:
    kind = {"kind": "secureboost", "depth": 2, "bins": 8, "packed": 32, "trees": 3}

    def views(rounds: int) -> float:
        scenario = tiny(
            {"it": kind}, stop={"rounds": rounds}, record={"tables": "rounds", "views": {"rows": 20, "keep": "all"}}
        )
        name, data = "it", data_of(scenario)
        return sizes.run_size(scenario, name, setting(scenario, name, data)).parts["views"]

    assert views(3) == views(300) > views(1)
