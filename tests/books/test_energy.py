"""The energy of random spans against sums of fractions, however they are told; and one module that adds it up."""

from __future__ import annotations

import ast
import math
import random
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import vflsim
from vflsim.books import COMPUTE, DOWN, RADIO, PartySpans
from vflsim.books.energy import BY_PARTY, Energy
from vflsim.timing.party import Power

POWERS = {
    0: Power(idle=7.0, compute=20.0, radio=3.0),
    2: Power(idle=0.1, compute=0.3, per_byte=1e-7, per_flop=2e-9),
    5: Power(idle=0.1, compute=0.7, radio=1.1, per_byte=2e-9),
}
OTHER = 1
"""A party that does not say what it draws."""
END = 40.0


def random_spans(pick: random.Random) -> PartySpans:
    """Spans that overlap at will, but for those of outages."""
    rows = []
    for party in (*POWERS, OTHER):
        for _ in range(pick.randrange(30)):
            state, began = pick.choice((COMPUTE, RADIO)), pick.choice((pick.uniform(0, 30), float(pick.randrange(30))))
            rows.append((state, party, began, began + pick.choice((0.0, pick.expovariate(0.5))), pick.randrange(3)))
        cuts = sorted(pick.uniform(0, 35) for _ in range(2 * pick.randrange(3)))
        rows += [(DOWN, party, *pair, 0) for pair in zip(cuts[::2], cuts[1::2], strict=True)]
    rows = [(state, party, began, min(ends, END), amount) for state, party, began, ends, amount in rows]
    columns = zip(*rows, strict=True)
    types = (np.int8, np.int32, np.float64, np.float64, np.int64)
    return PartySpans(*(np.array(each, type_) for each, type_ in zip(columns, types, strict=True)))


def seconds(spans: PartySpans, party: int, until: float) -> tuple[Fraction, Fraction, Fraction]:
    """How long a party was idle, computed, and had its radio on."""
    own = spans.only(spans.parties == party)
    marks = sorted({0.0, until, *(at for at in (*own.began.tolist(), *own.ends.tolist()) if at < until)})
    found = [Fraction(0)] * 3
    for since, to in pairwise(marks):
        there = {*own.states[(own.began <= since) & (own.ends >= to)].tolist()}
        if DOWN not in there:
            length = Fraction(to) - Fraction(since)
            found[COMPUTE if COMPUTE in there else 0] += length
            found[RADIO] += length if RADIO in there else 0
    return found[0], found[1], found[2]


def joules(spans: PartySpans, until: float) -> float:
    """The energy of all, of sums over parties that draw the same in a state, each rounded once."""
    drawn: dict[tuple[int, float], Fraction] = {}
    counted: dict[float, int] = {}
    for party, power in POWERS.items():
        watts = power.idle, power.computing, power.radio
        for key, own in zip(enumerate(watts), seconds(spans, party, until), strict=True):
            drawn[key] = drawn.get(key, Fraction(0)) + own
        for state, each in ((COMPUTE, power.per_flop), (RADIO, power.per_byte)):
            ended = (spans.parties == party) & (spans.states == state) & (spans.ends <= until)
            counted[each] = counted.get(each, 0) + int(spans.amounts[ended].sum())
    powers = (watts * float(own) for (_, watts), own in drawn.items())
    return math.fsum((*powers, *(each * amount for each, amount in counted.items())))


@pytest.mark.sampled(14)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("chunks", [1, 7])
def test_the_energy_is_that_of_fractions_in_one_chunk_or_many(seed: int, chunks: int) -> None:
    pick = random.Random(seed)
    spans = random_spans(pick)
    moments = sorted({*(pick.uniform(0, END) for _ in range(10)), 3.0, 8.0, END})
    slots = (np.searchsorted(moments, each) for each in (spans.began, spans.ends))
    energy, bounds, found = Energy(POWERS), spans.bounds(*slots), list[float]()
    for part in np.array_split(np.arange(len(moments)), chunks):
        own = bounds.only(np.isin(bounds.slots, part))
        own.slots[:] -= part[0]
        found += energy.take(own, [moments[place] for place in part])
    assert found == [joules(spans, now) for now in moments]
    table = energy.by_party(END)
    expected = [float(own) for party in POWERS for own in seconds(spans, party, END)]
    assert table["seconds"] == expected
    assert math.fsum(table["joules"]) == pytest.approx(found[-1], rel=1e-12)


def test_what_ends_at_a_moment_counts_by_its_slot() -> None:
    power = Power(per_byte=1.0)
    one = PartySpans(*(np.array([each]) for each in (RADIO, 0, 1.0, 2.0, 10)))
    zero = np.zeros(1, np.int64)
    assert Energy({0: power}).take(one.bounds(zero, zero), [2.0, 2.0]) == [10.0, 10.0]
    assert Energy({0: power}).take(one.bounds(zero, zero + 1), [2.0, 2.0]) == [0.0, 10.0]
    energy = Energy({0: power})
    assert energy.take(one.bounds(zero, zero + 2), [2.0, 2.0]) == [0.0, 0.0]
    assert energy.take(one.only(zero[:0]).bounds(zero[:0], zero[:0]), [3.0]) == [10.0]


def test_amounts_without_an_energy_stay_out_of_the_table() -> None:
    spans = PartySpans(*(np.array(each) for each in ([RADIO, COMPUTE], [0, 0], [1.0, 1.0], [2.0, 2.0], [10, 20])))
    energy, zeros = Energy({0: Power(idle=1.0, per_flop=0.5)}), np.zeros(2, np.int64)
    assert energy.take(spans.bounds(zeros, zeros), [2.0]) == [12.0]
    table = energy.by_party(2.0)
    assert [*table] == [*BY_PARTY]
    assert table["amount"] == [0, 20, 0]
    assert table["joules"] == [1.0, 11.0, 0.0]


def test_only_one_module_multiplies_watts_by_seconds() -> None:
    package, found = Path(vflsim.__file__).parent, set[str]()
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if any(word in text for word in ENERGIES) else ():
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and names(node) & ENERGIES:
                found.add(path.relative_to(package).as_posix())
    assert found == {"books/energy.py"}


ENERGIES = {"watts", "joules", "joules_each", "computing", "per_flop"}


def names(node: ast.AST) -> set[str]:
    """The names, attributes and keys in an expression."""
    found = ((getattr(each, "id", None), getattr(each, "attr", None)) for each in ast.walk(node))
    keys = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str))
    return {*keys, *(str(name) for pair in found for name in pair if name is not None)}
