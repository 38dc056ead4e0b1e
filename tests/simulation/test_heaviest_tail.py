"""Which delay of a run has the heaviest tail, and what tables say about it."""

from __future__ import annotations

import pytest

from vflsim.results.facts import HeavyTail
from vflsim.simulation import variation as module
from vflsim.simulation.variation import heaviest
from vflsim.timing.delays import Constant, Exponential, MarkovModulated, Pareto, State
from vflsim.timing.delays.base import Delay
from vflsim.timing.floats import Floats
from vflsim.timing.laws.law import Law
from vflsim.timing.laws.order import tail_share
from vflsim.timing.party import PartyTiming

SERVER = PartyTiming()
QUICK = PartyTiming(upload_delay=Exponential(mean=0.01))
SLOW = PartyTiming(upload_delay=Pareto(shape=1.5, minimum=1.0))


def test_the_heaviest_delay_of_those_that_take_part_is_named_with_its_clients() -> None:
    found = heaviest((SERVER, QUICK, SLOW, SLOW), (1, 2, 3), 50, 100.0)
    assert found == HeavyTail(
        activity="upload delay", kind="pareto", draws=50, clients=(2, 3), share=1.0, infinite=True
    )
    alone = heaviest((SERVER, QUICK, SLOW, SLOW), (1,), 50, 100.0)
    assert alone is not None
    assert (alone.clients, alone.worrying) == ((1,), False)


def test_bursts_count_by_their_cycles() -> None:
    states = (State(sojourn=1000, delay=Constant(value=0.1)), State(sojourn=250, delay=Constant(value=1.0)))
    timings = (SERVER, PartyTiming(upload_delay=MarkovModulated(states=states)))
    short, long = (heaviest(timings, (1,), 100_000, seconds) for seconds in (2_500.0, 10**6))
    assert short is not None
    assert long is not None
    assert (short.draws, short.worrying, long.worrying) == (2, True, False)


def test_without_rounds_or_variation_there_is_none() -> None:
    assert heaviest((SERVER, SLOW), (1,), 0, 0.0) is None
    assert heaviest((SERVER, PartyTiming(upload_delay=Constant(value=2.0))), (1,), 50, 1.0) is None


class Listed(Delay):
    """A delay of one's own, with a field that has no hash."""

    kind: str = "listed"
    longest: list[float]

    def inverse_cdf(self, u: Floats) -> Floats:
        return u * self.longest[0]


def test_a_delay_of_ones_own_need_not_be_hashable() -> None:
    found = heaviest(
        (SERVER, PartyTiming.model_construct(**dict(SERVER) | {"upload_delay": Listed(longest=[2.0])})), (1,), 50, 9.0
    )
    assert found is not None
    assert found.kind == "listed"


def test_delays_that_differ_in_scale_alone_share_one_quadrature(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Law] = []

    def counted(law: Law, draws: float) -> float:
        asked.append(law)
        return tail_share(law, draws)

    module._share_of.cache_clear()
    monkeypatch.setattr(module, "tail_share", counted)
    means = [0.1 + 0.001 * k for k in range(500)]
    found = heaviest(
        [PartyTiming(), *(PartyTiming(upload_delay=Exponential(mean=mean)) for mean in means)], range(1, 501), 10, 1.0
    )
    assert sum(isinstance(law, Exponential) for law in asked) == 1
    assert found is not None
    assert found.clients == tuple(range(1, 501))
    assert found.share == pytest.approx(tail_share(Exponential(mean=means[7]), 10), abs=1e-6)
