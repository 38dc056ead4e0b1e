"""Who is computed together: stacks of alike clients, cut where padding would cost more."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.learning.batching import kernels
from vflsim.learning.batching.kernels import KERNELS, PER_STACK, cut
from vflsim.learning.batching.stack import Stack


def partitions(clients: Sequence[int]) -> Iterator[list[list[int]]]:
    """Every way to cut a set into parts."""
    if not clients:
        yield []
        return
    first, *rest = clients
    for parts in partitions(rest):
        yield [[first], *parts]
        for n, part in enumerate(parts):
            yield [*parts[:n], [first, *part], *parts[n + 1 :]]


def cost(parts: list[list[int]], widths: dict[int, int], per_stack: int) -> int:
    return sum(len(part) * max(widths[client] for client in part) + per_stack for part in parts)


@settings(max_examples=examples(50))
@given(
    st.dictionaries(st.integers(1, 40), st.integers(1, 400), min_size=1, max_size=6), st.sampled_from([1, 100, 1000])
)
def test_no_way_to_cut_costs_less(widths: dict[int, int], per_stack: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "PER_STACK", per_stack)
        found = cut(list(widths), widths)
    assert sorted(client for part in found for client in part) == sorted(widths)
    assert all(part == sorted(part) for part in found)
    best = min(cost(parts, widths, per_stack) for parts in partitions(list(widths)))
    assert cost(found, widths, per_stack) == best


def test_equally_wide_clients_are_one_stack_however_many() -> None:
    assert cut(range(1, 51), dict.fromkeys(range(1, 51), 28)) == [list(range(1, 51))]


def test_many_clients_of_few_widths_are_cut_at_once() -> None:
    """A cut that tried every place between two of 30,000 clients would take hours."""
    widths = {client: 1 + client % 7 for client in range(1, 30_001)}
    assert cut(range(1, 30_001), widths) == [
        [client for client in widths if widths[client] == n] for n in range(2, 8)
    ] + [[client for client in widths if widths[client] == 1]]


def test_a_wide_client_among_narrow_ones_stays_alone() -> None:
    widths = {1: 10, 2: 10 + 2 * PER_STACK, 3: 10, 4: 11}
    assert cut([1, 2, 3, 4], widths) == [[1, 3, 4], [2]]


def test_what_is_not_stacked_has_a_reason() -> None:
    for kind in KERNELS.values():
        assert issubclass(kind, Stack) if isinstance(kind, type) else len(kind) > 20
