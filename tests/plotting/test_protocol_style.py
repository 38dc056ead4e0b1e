"""A colour and a marker belong to a kind of protocol, whatever is drawn beside it."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from story import Story

from vflsim.kinds import TABLES
from vflsim.plotting.looks import DASHES, PALETTE, kinds_in, kinds_of, look, protocol_styles
from vflsim.results import Results
from vflsim.scenario.load import load

KINDS = [part.model_fields["kind"].default for part in TABLES["protocols"]]
QUICKSTART = load("quickstart").protocols
# How the rarer two kinds of colour blindness see linear RGB (Viénot, Brettel and Mollon 1999).
PROTAN = [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, -0.0], [0.00401, -0.00401, 1.0]]
DEUTAN = [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, -0.0], [-0.02234, 0.02234, 1.0]]


def test_a_kind_looks_the_same_under_every_name_beside_any_other() -> None:
    for kind in KINDS:
        alone = protocol_styles({"only": kind})["only"]
        among = protocol_styles({"before": KINDS[3], **{each: each for each in KINDS if each != KINDS[3]}})
        assert kind == KINDS[3] or among[kind] == alone


def test_every_kind_has_a_colour_and_marker_of_its_own() -> None:
    looks = [look(place) for place in range(40)]
    assert len({(style.color, style.marker) for style in looks}) == 40
    assert len(
        {(style.color, style.marker) for style in protocol_styles(dict(zip(KINDS, KINDS, strict=True))).values()}
    ) == len(KINDS)


def test_entries_of_one_kind_keep_its_marker_and_differ_in_line_shade_or_fill() -> None:
    styles = list(protocol_styles({f"t{n}": KINDS[2] for n in range(8)}).values())
    assert {style.marker for style in styles} == {look(2).marker}
    assert protocol_styles({"t": KINDS[2], "u": KINDS[2]})["t"] == look(2)
    darkness = [-sum(to_rgb(style.color)) for style in styles]
    assert darkness == sorted(darkness)  # as of one parameter with growing values
    assert len({(style.color, str(style.dash), style.hollow) for style in styles}) == 8
    for one, other in pairwise(styles):
        assert one.color != other.color
        assert one.dash != other.dash


def test_protocols_of_the_users_own_look_like_no_kind_of_the_table_and_alike_everywhere() -> None:
    known = {(style.color, style.marker) for style in protocol_styles(dict(zip(KINDS, KINDS, strict=True))).values()}
    first = protocol_styles({"a": "mine:TwoTrip"})["a"]
    assert (first.color, first.marker) not in known
    assert protocol_styles({"x": KINDS[0], "b": "mine:TwoTrip"})["b"] == first


def test_leaving_protocols_out_changes_no_look(results: Results) -> None:
    from vflsim.plotting.selection import only

    fewer = only(results, ["async"])
    assert protocol_styles(fewer)["async"] == protocol_styles(results)["async"]


def test_kinds_are_those_of_the_stored_scenario_with_the_path_of_own_classes(tmp_path) -> None:
    results = Story().step(0, 1, [1]).written(tmp_path)
    results.scenario["protocols"]["mine"] = {"kind": "module", "path": "mine:TwoTrip"}
    results.scenario["protocols"]["short"] = "ignore"
    assert kinds_of(results) == {"wait": "synchronous", "mine": "mine:TwoTrip", "short": "ignore"}
    assert kinds_in(load("quickstart"))["fedvs"] == "fedvs"


@pytest.mark.parametrize("seen", [np.eye(3), np.array(PROTAN), np.array(DEUTAN)], ids=["all", "protan", "deutan"])
def test_the_quickstarts_colours_are_clearly_different_also_for_the_colour_blind(seen: np.ndarray) -> None:
    kinds = {name: entry.protocol.kind for name, entry in QUICKSTART.items()}
    colors = [np.array(to_rgb(style.color)) ** 2.2 @ seen.T for style in protocol_styles(kinds).values()]
    assert len(colors) == 6
    for one, other in combinations(colors, 2):
        assert np.linalg.norm(np.clip(one, 0, 1) ** (1 / 2.2) - np.clip(other, 0, 1) ** (1 / 2.2)) > 0.2


def test_neighbouring_colours_and_lines_are_distinct() -> None:
    assert len(set(PALETTE)) == len(PALETTE)
    assert len(set(map(str, DASHES))) == len(DASHES)
