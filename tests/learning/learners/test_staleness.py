"""Ages on a table small enough to write down: 3 clients (numbers 1, 2, 5), 6 rows."""

import numpy as np
import pytest

from vflsim.learning.batches import Batch
from vflsim.learning.learners.staleness import NO_AGES, Ages, ArrivalSteps, Staleness


def batch(*ids: int, index: int = 0) -> Batch:
    return Batch(index, np.array(ids, dtype=np.int64))


def row_ages(staleness: Staleness, of: Batch) -> list[int]:
    """Oldest age among the rows of a batch, for every client in client order."""
    return [staleness.row_age_sums(of, [client])[2] for client in staleness.others([])]


@pytest.fixture
def staleness() -> Staleness:
    return Staleness((1, 2, 5), 6)


def test_what_never_came_counts_from_one_step_before_the_first(staleness: Staleness) -> None:
    assert staleness.client_ages().tolist() == [1, 1, 1]
    staleness.step = 4
    assert staleness.client_ages().tolist() == [5, 5, 5]
    assert row_ages(staleness, batch(0, 3)) == [5, 5, 5]


def test_a_trace_by_hand(staleness: Staleness) -> None:
    staleness.refresh([1], batch(0, 1))  # step 0
    assert staleness.client_ages().tolist() == [0, 1, 1]
    assert row_ages(staleness, batch(0, 1)) == [0, 1, 1]
    assert staleness.row_age_sums(batch(0, 1), (1, 2, 5)) == (4, 6, 1)
    staleness.step = 1
    staleness.refresh([5], batch(1, 2))
    assert staleness.client_ages().tolist() == [1, 2, 0]
    # client 1: rows 1, 2 from steps 0, -1; client 2: never; client 5: now
    assert row_ages(staleness, batch(1, 2)) == [2, 2, 0]
    assert staleness.row_age_sums(batch(1, 2), (1, 2, 5)) == (1 + 2 + 2 + 2, 6, 2)
    assert staleness.row_age_sums(batch(1, 2), (5,)) == (0, 2, 0)
    staleness.step = 2
    staleness.refresh([1], batch(2, 3))
    staleness.refresh([2], batch(0))
    assert staleness.client_ages().tolist() == [0, 0, 1]
    assert staleness.row_age_sums(batch(0, 1, 2, 3), (1, 2, 5)) == (2 + 2 + 0 + 0 + 0 + 3 * 3 + 3 + 1 + 1 + 3, 12, 3)


def test_whoever_refreshes_a_row_twice_does_not_stand_for_another(staleness: Staleness) -> None:
    staleness.refresh([1, 1, 5], batch(0, 1))  # an embedding and an answer to a query
    assert row_ages(staleness, batch(0, 1)) == [0, 1, 0]
    staleness.refresh([5, 2, 1], batch(1, 2))
    assert row_ages(staleness, batch(1, 2)) == [0, 0, 0]
    assert staleness.row_age_sums(batch(0, 3), (1, 2, 5)) == (4, 6, 1)


@pytest.mark.parametrize(
    ("bound", "age", "named"),
    [
        (0, "client_age", [2, 5]),
        (1, "client_age", [2]),
        (2, "client_age", []),
        (1, "row_age", [1, 2]),
        (2, "row_age", []),
    ],
)
def test_older_than_names_the_clients_beyond_the_bound_in_client_order(
    staleness: Staleness, bound: int, age: str, named: list[int]
) -> None:
    staleness.refresh([5], batch(0, 1, 2, 3, 4, 5))
    staleness.step = 1
    staleness.refresh([1], batch(0, 1))
    asked = batch(1, 2)
    assert staleness.older_than(bound, age, [(asked, [])]) == [(client, asked) for client in named]


def test_older_than_names_a_client_once_for_each_batch(staleness: Staleness) -> None:
    one, other = batch(0, index=0), batch(1, index=1)
    arrived = [(one, [1]), (other, [])]
    assert staleness.older_than(0, "client_age", arrived) == [(2, one), (5, one), (2, other), (5, other)]
    assert staleness.older_than(0, "row_age", arrived) == [(2, one), (5, one), (1, other), (2, other), (5, other)]


@pytest.mark.parametrize("age", ["client_age", "row_age"])
def test_asking_who_is_too_old_changes_nothing(staleness: Staleness, age: str) -> None:
    staleness.complete([(batch(0, 1), [1, 5])])
    arrived = [(batch(1, 2), [2]), (batch(2, 3, index=1), [1])]  # row 2 is in both
    before = staleness._rows.copy(), staleness._arrivals.last.copy(), staleness.step
    named = staleness.older_than(0, age, arrived)
    assert {client for client, _ in named} == ({5} if age == "client_age" else {1, 2, 5})
    assert all(map(np.array_equal, before, (staleness._rows, staleness._arrivals.last, staleness.step)))


def test_a_completed_step_refreshes_counts_and_moves_on(staleness: Staleness) -> None:
    staleness.complete([(batch(0, 1), [1])])
    facts = staleness.complete([(batch(1, 2), [1, 5])])
    assert (facts.used, facts.row_ages, staleness.step) == ([1, 5], (0.0, 4, 0), 2)
    assert list(facts.missing) == [2]
    assert list(facts.client_ages) == [0, 2, 0]
    facts = staleness.complete([(batch(0), [2])], used=[2, 5], read=[(batch(0), [1, 2])])
    assert (facts.used, facts.row_ages) == ([2, 5], (2.0, 2, 2))


def test_only_the_rows_of_the_batch_are_refreshed_even_if_the_batch_is_another_clients_own() -> None:
    staleness = Staleness((1, 2), 4)
    staleness.refresh([2], Batch(0, np.array([3, 1]), origin=1))
    assert row_ages(staleness, batch(0)) == [1, 1]
    assert row_ages(staleness, batch(1, 3)) == [1, 0]


def test_the_others_are_all_but_those_named_in_client_order(staleness: Staleness) -> None:
    assert staleness.others([2]).tolist() == [1, 5]
    assert staleness.others([5, 1, 2]).tolist() == []
    assert staleness.others([]).tolist() == [1, 2, 5]


def test_ages_are_those_since_the_step_of_the_last_arrival() -> None:
    stamps = np.array([[3, -1], [2, 3]], dtype=np.int32)
    assert Ages.since(stamps, 3) == Ages.of(3 - stamps) == (5, 4, 4)
    both = Ages(5, 4, 4).plus((1.0, 2, 1))
    assert (both, both.mean, both.maximum) == ((6, 6, 4), 1.0, 4.0)
    assert np.isnan([NO_AGES.mean, NO_AGES.maximum]).all()
    assert Ages.since(stamps[:0], 3) == NO_AGES


@pytest.mark.parametrize("window", [1, 3, 40])
@pytest.mark.parametrize("busy", [0.05, 0.4])
def test_many_steps_at_once_have_the_ages_of_single_ones(window: int, busy: float) -> None:
    arrive = np.random.default_rng(window).random((40, 5)) < busy  # at some steps nobody, at others several
    one_by_one, at_once = ArrivalSteps(5), ArrivalSteps(5)
    for first in range(0, len(arrive), window):
        some = arrive[first : first + window]
        expected = NO_AGES
        for step, places in enumerate(some, first):
            expected = expected.plus(one_by_one.step(step, places))
        steps, places = np.nonzero(some)
        assert at_once.steps(first, len(some), steps + first, places) == expected
    assert at_once.ages(40).tolist() == one_by_one.ages(40).tolist()
