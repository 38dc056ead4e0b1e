"""Plans of sweeps: grids and zips, short keys, units, files; what is refused, and which runs are the same."""

from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import raw

from vflsim.errors import ScenarioError
from vflsim.studies.plan import Axis, SweepPlan, axes_of, over_in, planned

BOTH = {"wait": {"kind": "synchronous"}, "fast": {"kind": "t_synchronous", "t": "t"}}


def world(**changes: Any) -> dict:
    slow = {"clients": [{"select": "all", "upload_delay": "slow s"}]}
    return raw(BOTH, **{"constants": {"t": 2, "slow": 1}, "timing": slow, "stop": {"rounds": 2}, **changes})


def plan(over: dict[str, Any], **how: Any) -> SweepPlan:
    return planned(world(), axes_of(world(), over), timing_only=True, **how)


def test_a_grid_has_every_combination_and_the_last_key_changes_fastest() -> None:
    made = plan({"t": "1:3", "slow": [1, 5]})
    assert made.keys == ("constants.t", "constants.slow")
    assert [point.values for point in made.points] == [(1, 1), (1, 5), (2, 1), (2, 5)]
    assert [point.folder.name for point in made.points] == ["t-1_slow-1", "t-1_slow-5", "t-2_slow-1", "t-2_slow-5"]
    assert made.points[3].scenario.symbols["slow"] == 5
    assert made.default_folder == Path("results/tiny-sweep-constants.t_constants.slow-timing")


def test_a_zip_pairs_values_by_position() -> None:
    assert [point.values for point in plan({"t": [1, 1, 3], "slow": "1:4"}, zipped=True).points] == [
        (1, 1),
        (1, 2),
        (3, 3),
    ]


@pytest.mark.parametrize(
    ("over", "zipped", "what"),
    [
        ({"t": [1, 2], "slow": [1, 2, 3]}, True, "different lengths: constants.t has 2, constants.slow has 3"),
        ({"t": [1, 1], "slow": [2, 2]}, True, "the same values stand together twice"),
        ({"t": [1, 1], "slow": [2]}, False, "the value 1 stands twice"),
        ({"t": [1], "constants.t": [2]}, False, "constants.t is swept over twice"),
        ({"protocols.fast": [{"kind": "asynchronous"}], "protocols.fast.t": [2]}, False, "undo each other"),
        ({"t": "0:200", "slow": "0:100"}, False, "the grid has 20,000 points"),
        ({}, False, "a sweep needs a key"),
        ({"upload": [1]}, False, r"--over upload"),
        ({"kind": [1]}, False, r"there are \d+ keys that end in kind"),
    ],
)
def test_what_makes_no_sweep_is_refused(over: dict[str, Any], zipped: bool, what: str) -> None:
    with pytest.raises(ScenarioError, match=what):
        plan(over, zipped=zipped)


@pytest.mark.parametrize(
    ("key", "whole"),
    [
        ("t", "constants.t"),  # the protocol's own t is a formula of it
        ("fast.t", "protocols.fast.t"),
        ("upload_delay", "timing.clients.0.upload_delay"),
        ("client_optimizer.lr, server_optimizer.lr", "training.client_optimizer.lr,training.server_optimizer.lr"),
        ("stop.rounds", "stop.rounds"),
        ("partition", "partition"),
        ("nothing", "nothing"),
    ],
)
def test_short_keys_are_completed_where_only_one_is_meant(key: str, whole: str) -> None:
    assert axes_of(world(), {key: [1]}) == [Axis(whole, (1,))]


def test_keys_and_values_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text("t: 1:4\nupload_delay: 0, 5, 10 ms\nslow: [1, 2.5]\npartition.clients: 4\n")
    assert axes_of(world(), over_in(file)) == [
        Axis("constants.t", (1, 2, 3)),
        Axis("timing.clients.0.upload_delay", ("0 ms", "5 ms", "10 ms")),
        Axis("constants.slow", (1, 2.5)),
        Axis("partition.clients", (4,)),
    ]
    for content, what in (("- 1\n", "holds no keys"), ("t: [", "keys.yaml")):
        file.write_text(content)
        with pytest.raises(ScenarioError, match=what):
            over_in(file)
    with pytest.raises(ScenarioError, match=r"absent\.yaml: the file cannot be read"):
        over_in(tmp_path / "absent.yaml")


def test_runs_that_depend_on_nothing_that_differs_have_one_owner() -> None:
    made = plan({"t": [1, 2], "slow": [1, 5]})
    names = {owner: [] for owner in range(4)}
    for (position, name), owner in made.owners().items():
        names[owner].append((position, name))
    assert names == {
        0: [(0, "wait"), (0, "fast"), (2, "wait")],
        1: [(1, "wait"), (1, "fast"), (3, "wait")],
        2: [(2, "fast")],
        3: [(3, "fast")],
    }
    assert made.runs == 8
