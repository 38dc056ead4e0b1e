"""What a run trains with beside its timing, as ``run.json``, ``summary.md`` and ``vflsim check`` say it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended
from protocols_by_kind import KINDS
from tiny_worlds import EAGER, data_of, run, tiny

from vflsim import run as run_study
from vflsim.reporting import write_report
from vflsim.results.facts import Conditions
from vflsim.studies.checks.estimates import expectation

SGD = ("sgd 0.2",), ("sgd 0.1",)
ACTIVE: dict[str, Any] = {
    "partition": {"clients": 4, "by": "columns", "active": True},
    "models": {
        "active": {"kind": "linear", "embedding": 6},
        "client": {"kind": "linear", "embedding": 6},
        "aggregate": "concat",
        "server": {"kind": "linear", "bias": False},
    },
}
LINEAR = {"fan_in": 6, "kind": "linear", "bias": False}
UNUSED = {"active": None, "aggregate": "concat", "server": LINEAR}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("synchronous", (64, "server", *SGD, 1)),
        ("ignore-exclude", (48, "server", *SGD, 1)),
        ("centralised", (64, "server", *SGD, 1)),
        ("fedbcd", (64, "server", *SGD, 2)),
        ("fedbcd-recomputed", (64, "server and clients", *SGD, 2)),
        ("c_vfl", (64, "server and clients", *SGD, 2)),
        ("ef_vfl", (64, "server and clients", *SGD, 2)),
        ("ef_vfl-private", (64, "server", *SGD, 1)),
        ("vimadmm", (64, "server", *SGD, 2)),
        ("vimadmm_j", (64, "server", ("sgd 0.2", "sgd 0.1"), (), 2)),  # clients hold their heads
        ("fdml", (64, "server", ("sgd 0.2", "sgd 0.1"), (), 1)),
    ],
)
def test_conditions_of_protocols(kind: str, expected: tuple[Any, ...]) -> None:
    features, labels, clients, server, steps = expected
    said = Conditions(
        features=features,
        features_in_data=64,
        labels=labels,
        client_optimizers=clients,
        server_optimizers=server,
        local_steps=steps,
    )
    scenario = tiny({"it": KINDS[kind]}, stop={"rounds": 1})
    assert run(scenario, "it").info.conditions == said
    assert run(scenario, "it", execution=EAGER).info.conditions == said
    assert expectation(scenario, "it", data_of(scenario), 2).conditions == said


def test_an_active_partys_features_count_where_they_are_used() -> None:
    entries = {
        "wait": {"kind": "synchronous"},
        "local": {"kind": "local"},
        "heads": {"kind": "vimsgd", "models": UNUSED},
    }
    scenario = tiny(entries, stop={"rounds": 1}, **ACTIVE)
    found = {name: run(scenario, name).info.conditions for name in entries}
    assert {name: each and (each.features, each.features_in_data) for name, each in found.items()} == {
        "wait": (64, 64),
        "local": (13, 64),
        "heads": (51, 64),
    }
    alone = found["local"]
    assert alone is not None
    assert (alone.client_optimizers, alone.local_steps) == ((), 0)


def test_all_that_was_set_of_an_optimiser_is_said() -> None:
    said = {
        "batch": 20,
        "client_optimizer": [{"select": "all", "kind": "adam", "lr": 0.01}, {"select": 4, "kind": "sgd", "lr": 1}],
        "server_optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True},
    }
    found = run(tiny({"it": {"kind": "synchronous"}}, training=said, stop={"rounds": 1}), "it").info.conditions
    assert found is not None
    assert found.client_optimizers == ("adam 0.01", "sgd 1")
    assert found.server_optimizers == ("sgd 0.1, momentum 0.9, nesterov True",)


def test_timing_alone_has_no_conditions() -> None:
    scenario = tiny({"it": {"kind": "synchronous"}}, stop={"rounds": 1})
    assert run(scenario, "it", timing_only=True).info.conditions is None


@pytest.mark.slow
def test_summary_and_report_have_the_table(tmp_path: Path) -> None:
    entries = {"wait": {"kind": "synchronous"}, "c-vfl": KINDS["c_vfl"]}
    results = run_study(tiny(entries, stop={"rounds": 1}), out=tmp_path / "study")
    summary = (results.folder / "summary.md").read_text()
    assert "## What differs beside timing" in summary
    assert "| c-vfl | 64 of 64 | server and clients | sgd 0.2 | sgd 0.1 | 2 |" in summary
    page = write_report([results.folder]).read_text()
    assert "What differs beside timing" in page
    assert "server and clients" in page


def test_check_prints_the_table(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("check", "quickstart", "--quick")
    assert ended.status == 0
    assert "What differs beside timing" in ended.out
    assert "optimiser of the clients" in ended.out
