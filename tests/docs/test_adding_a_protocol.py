"""The protocol of ``docs/adding-a-protocol.md``, as it stands there, when clients crash and return."""

import ast
import json
from dataclasses import fields
from inspect import getsource
from itertools import pairwise
from pathlib import Path
from runpy import run_path
from typing import Any, ClassVar

import pytest
from fault_worlds import availability, random
from pages import ROOT, defined_on
from tiny_worlds import data_of, rounds, run, tiny

import vflsim
from vflsim.protocols import Protocol
from vflsim.protocols.base import ROUNDS, Traits
from vflsim.protocols.synchronous import Synchronous
from vflsim.scenario.models import Scenario
from vflsim.simulation.run import Outcome, run_protocol

PAGE = ROOT / "docs" / "adding-a-protocol.md"
BEGINS_AT_0 = (
    ("from typing import Literal", "from itertools import count\nfrom typing import Literal"),
    ('for k in node.rounds(over="gradient")', "for k in count()"),
)


def hedged(*changes: tuple[str, str], **said: Any) -> Scenario:
    """Four equal clients; at 20 ms, in round 2, client 3 crashes for 25 ms."""
    timing = {
        "server": {"compute": "1 ms"},
        "clients": [
            {"select": "all", "compute": "2 ms", "upload_delay": "3 ms"},
            {"select": "3", "availability": {"kind": "intervals", "down": [["20 ms", "45 ms"]], "interrupted": "lost"}},
        ],
    }
    protocol: Protocol = defined_on(PAGE, "Hedged", *changes)(patience=0.004)
    return tiny(timing=timing, stop={"rounds": 57}, **said).with_protocols({"hedged": protocol})


def used_by(outcome: Outcome, client: int, since: float) -> list[bool]:
    """Whether each round that began ``since`` a time or later used the client."""
    frame = rounds(outcome)
    return [client in used for used in frame.loc[frame["start_s"] >= since, "used"]]


def test_the_reference_explains_every_trait() -> None:
    reference = run_path(str(ROOT / "docs" / "_site" / "python_reference.py"))
    assert "protocol.Traits" in reference["PAGES"]["protocol"][2]
    body = ast.parse(getsource(Traits)).body[0].body  # type: ignore[attr-defined]
    explained = [
        each.target.id
        for each, after in pairwise(body)
        if isinstance(each, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    ]
    assert explained == [field.name for field in fields(Traits)]


@pytest.mark.parametrize("wrong", [{"active_features": True}, ROUNDS.waits_for_all, None])
def test_traits_that_are_no_traits_are_refused_when_the_class_is_made(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"Wrong.traits is .*; allowed: Traits\(…\), from vflsim.protocol"):

        class Wrong(Synchronous):
            traits: ClassVar[Traits] = wrong


@pytest.mark.parametrize("timing_only", [True, False], ids=["timing only", "training"])
def test_a_documented_client_that_crashed_is_used_in_every_round_after_its_return(timing_only: bool) -> None:
    outcome = run(hedged(), "hedged", timing_only=timing_only)
    used = used_by(outcome, 3, since=0.045)
    assert used == [True] * len(used)
    assert len(used) > 45
    assert not all(used_by(outcome, 3, since=0.0))


@pytest.mark.parametrize("record", ["events", "rounds", "summary"])
def test_a_run_says_that_a_client_which_begins_at_round_0_after_a_crash_has_stalled(record: str) -> None:
    scenario = hedged(*BEGINS_AT_0, record=record)
    outcome = run_protocol(scenario, "hedged", 0, data_of(scenario), timing_only=True)
    (stalled,) = outcome.info.stalled
    assert (stalled.client, stalled.kind, stalled.round) == (3, "gradient", 0)
    assert stalled.since_s == pytest.approx(0.045 + 0.002 + 0.003)  # it has come back, embedded and uploaded
    if record != "summary":
        assert not any(used_by(outcome, 3, since=0.045))
        assert stalled.rounds == (rounds(outcome)["end_s"] > stalled.since_s).sum() > 40
    assert outcome.note.startswith("client 3 has waited for 'gradient' of round 0 since 0.05 s; ")


def test_run_json_and_the_summary_name_a_stalled_client(tmp_path: Path) -> None:
    scenario = hedged(*BEGINS_AT_0, record="rounds", seeds=[0])
    vflsim.run(scenario, out=tmp_path / "out", timing_only=True)
    said = json.loads((tmp_path / "out" / "hedged" / "seed-0" / "run.json").read_text())["stalled"]
    assert [(one["client"], one["kind"], one["round"]) for one in said] == [(3, "gradient", 0)]
    page = (tmp_path / "out" / "summary.md").read_text()
    assert "- hedged, seed 0: client 3 has waited for 'gradient' of round 0 since 0.05 s; " in page
    assert "- synchronous, seed 0" not in page


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(12))
def test_the_documented_protocol_survives_random_crashes(seed: int) -> None:
    pick = random.Random(seed)
    timing = {
        "server": {"compute": "1 ms"},
        "clients": [
            {"select": "all", "compute": "1 ms", "upload_delay": {"kind": "exponential", "mean": "3 ms"}},
            *({"select": str(client), "availability": availability(pick, "lost")} for client in (2, 3, 4)),
        ],
    }
    scenario = tiny(timing=timing, stop={"rounds": 150}).with_protocols(
        {"hedged": defined_on(PAGE, "Hedged")(patience=0.004)}
    )
    run(scenario, "hedged", seed=seed, timing_only=True)  # which asserts that no client has stalled
