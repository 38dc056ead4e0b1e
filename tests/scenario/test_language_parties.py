"""Parties that hold texts: frozen weights stay, adapters learn, and the data are what the script writes."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from command_line import Ended
from safetensors.torch import load_file

from vflsim import check, load, run
from vflsim.shipped import shipped

FILE = shipped()["language/claims"]


@pytest.fixture(scope="module")
def parties() -> Iterator[ModuleType]:
    """The module beside the scenario."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FILE.parent))
        yield import_module("parties")
    sys.modules.pop("parties", None)
    sys.modules.pop("claims", None)


def test_an_adapter_changes_nothing_before_it_is_trained(parties: ModuleType) -> None:
    frozen, x = torch.nn.Linear(6, 4), torch.randn(5, 6)
    adapter = parties.Lora(frozen, rank=2, alpha=8, draws=torch.Generator())
    assert torch.equal(adapter(x), frozen(x))
    torch.nn.init.ones_(adapter.b)
    expected = frozen(x) + 8 / 2 * (x @ adapter.a.T).sum(1, keepdim=True)
    torch.testing.assert_close(adapter(x), expected)


def test_padding_has_no_part_in_an_embedding(parties: ModuleType) -> None:
    long = parties.Reader((12,), 3, vocabulary=20, width=8, heads=2).eval()
    short = parties.Reader((5,), 3, vocabulary=20, width=8, heads=2).eval()
    weights = long.state_dict()
    short.load_state_dict(weights | {"places.weight": weights["places.weight"][:5]})
    x = torch.tensor([[3, 7, 19, 1, 2], [4, 4, 5, 0, 0]], dtype=torch.float32)
    padded = torch.cat([x, torch.zeros(2, 7)], 1)
    torch.testing.assert_close(long(padded), short(x))
    assert long(torch.zeros(1, 12)).isfinite().all()


def test_adapters_learn_and_frozen_weights_stay(parties: ModuleType, tmp_path: Path) -> None:
    run(load(FILE, ["seeds=[0]", "stop={rounds: 3}"]), tmp_path / "run", protocols="wait", progress=False)
    (file,) = (tmp_path / "run").rglob("*.safetensors")
    weights = {name.removeprefix("client-1."): value for name, value in load_file(file).items()}
    fresh = parties.Reader((24,), 16, vocabulary=83, width=32, heads=2, rank=4).state_dict()
    moved = {name for name, value in fresh.items() if not torch.equal(value, weights[name])}
    assert moved == {name for name in fresh if name.endswith((".a", ".b")) or name.startswith("last.")}


def test_trained_weights_are_parameters_and_frozen_ones_take_memory() -> None:
    (row,) = check(FILE, protocols=["wait"], quick=True).frame.to_dict("records")
    adapters, head, table, server = 2 * 2 * 2 * 4 * 32, 33 * 16, 4 * 32 + 33 * 16, 49 * 32 + 33
    assert row["parameters"] == 2 * (adapters + head) + table + server
    assert row["memory_bytes"] > 4 * (row["parameters"] + 28_832 + 28_448)


def test_the_data_are_what_the_script_writes(
    parties: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["claims.py", str(tmp_path)])
    import_module("claims").main()
    for name, read in (
        ("words.txt", Path.read_bytes),
        ("claims.csv.gz", lambda path: gzip.decompress(path.read_bytes())),
    ):
        assert read(tmp_path / name) == read(FILE.parent / name)


def test_a_copy_of_the_scenario_has_its_data_and_its_module(
    vflsim: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert vflsim("new", "mine", "--from", "language/claims").status == 0
    assert {"claims.csv.gz", "parties.py"} < {each.name for each in tmp_path.iterdir()}
    (tmp_path / "parties.py").write_text("mine = 1\n")
    ended = vflsim("new", "other", "--from", "language/claims")
    assert ended.status == 2
    assert "another file has this name" in ended.err
    assert (tmp_path / "parties.py").read_text() == "mine = 1\n"
