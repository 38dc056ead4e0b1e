"""The features of several clients as one tensor, against each client's columns by themselves."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from thorough import examples
from torch import Tensor

from vflsim.learning.batches import Batch
from vflsim.learning.learners import inputs
from vflsim.learning.learners.inputs import StackedFeatures

ROWS, TEST = 9, 4
LAYOUTS: dict[str, tuple[int, list[tuple[int, int]]]] = {
    "side by side": (6, [(0, 2), (2, 4), (4, 6)]),
    "some of those side by side": (8, [(2, 4), (4, 6)]),
    "not where pieces begin": (8, [(1, 4), (4, 7)]),
    "pieces that do not fill the row": (7, [(0, 2), (2, 4)]),
    "equally wide, with gaps": (9, [(0, 2), (3, 5), (7, 9)]),
    "ragged": (9, [(0, 4), (4, 5), (5, 8), (8, 9)]),
    "ragged with gaps": (12, [(1, 2), (4, 9), (11, 12)]),
    "the last is narrower": (5, [(0, 2), (2, 4), (4, 5)]),
    "one client": (5, [(0, 5)]),
    "one client of many": (5, [(3, 4)]),
}
layouts = pytest.mark.parametrize("layout", LAYOUTS)


class Case:
    """Features, and each client's by themselves, padded with zeros to the widest."""

    def __init__(self, columns: int, spans: list[tuple[int, int]]) -> None:
        made = torch.Generator().manual_seed(5)
        self.joint = {
            "train": torch.randn(ROWS, columns, generator=made, dtype=torch.float64),
            "test": torch.randn(TEST, columns, generator=made, dtype=torch.float64),
            "validation": torch.zeros(0, columns, dtype=torch.float64),
        }
        self.features = StackedFeatures(self.joint, [slice(*span) for span in spans])
        self.width = max(end - start for start, end in spans)
        self.spans = spans

    def own(self, place: int, split: str, rows: list[int] | slice = slice(None)) -> Tensor:
        start, end = self.spans[place]
        part = self.joint[split][rows, start:end]
        return torch.cat([part, part.new_zeros(len(part), self.width - (end - start))], 1)


def batch(index: int, *ids: int) -> Batch:
    return Batch(index, np.array(ids, np.int64))


@pytest.fixture
def case(layout: str) -> Case:
    return Case(*LAYOUTS[layout])


@layouts
def test_the_same_batch_of_everybody(case: Case) -> None:
    for index, ids in enumerate([[3, 1, 8], [0], [3, 1, 8], [5, 5, 2]]):
        for _ in range(2):
            found = case.features.same_rows(batch(index, *ids))
            expected = [case.own(place, "train", ids) for place in range(len(case.spans))]
            assert torch.equal(found, torch.cat(expected, 1))


@layouts
def test_a_whole_split_of_everybody(case: Case) -> None:
    for split in ("train", "test", "validation"):
        expected = [case.own(place, split) for place in range(len(case.spans))]
        assert torch.equal(case.features.same_rows(split), torch.cat(expected, 1))


@layouts
def test_a_whole_split_in_pieces(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_BLOCK", 4)
    for split, lengths in (("train", [4, 4, 1]), ("test", [4]), ("validation", [0])):
        pieces = list(case.features.blocks(split))
        assert [len(piece) for piece in pieces] == lengths
        assert torch.equal(torch.cat(pieces), case.features.same_rows(split))
    (piece,) = case.features.blocks(batch(0, 3, 1, 8, 0, 2))
    assert torch.equal(piece, case.features.same_rows(batch(0, 3, 1, 8, 0, 2)))


@layouts
def test_batches_of_some(case: Case) -> None:
    everybody = list(range(len(case.spans)))
    for places in (everybody, everybody[1:], everybody[:1], everybody[::2]):
        ids = [[(7 * place + k) % ROWS for k in (3, 1, 4)] for place in places]
        if not places:
            continue
        found = case.features.rows_of(places, [batch(n, *each) for n, each in enumerate(ids)])
        expected = [case.own(place, "train", each) for place, each in zip(places, ids, strict=True)]
        assert torch.equal(found, torch.stack(expected))


@st.composite
def any_layout(draw: st.DrawFn) -> Case:
    widths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    gaps = draw(st.lists(st.integers(0, 2), min_size=len(widths) + 1, max_size=len(widths) + 1))
    spans, at = [], 0
    for width, gap in zip(widths, gaps, strict=False):
        spans.append((at + gap, at + gap + width))
        at += gap + width
    return Case(at + gaps[-1], spans)


@settings(max_examples=examples(50))
@given(any_layout(), st.data())
def test_any_widths_any_clients_any_rows(case: Case, data: st.DataObject) -> None:
    everybody = list(range(len(case.spans)))
    places = sorted(data.draw(st.sets(st.sampled_from(everybody), min_size=1)))
    length = data.draw(st.integers(1, 4))
    ids = [data.draw(st.lists(st.integers(0, ROWS - 1), min_size=length, max_size=length)) for _ in places]
    found = case.features.rows_of(places, [batch(n, *each) for n, each in enumerate(ids)])
    expected = [case.own(place, "train", each) for place, each in zip(places, ids, strict=True)]
    assert torch.equal(found, torch.stack(expected))
    together = case.features.same_rows(batch(99, *ids[0]))
    assert torch.equal(together, torch.cat([case.own(place, "train", ids[0]) for place in everybody], 1))


def test_a_batch_is_gathered_once_for_embedding_and_stepping_and_a_batch_of_somebody_elses_is_another() -> None:
    case = Case(6, [(0, 2), (2, 4), (4, 6)])
    one = case.features.same_rows(Batch(3, np.array([1, 2]), origin=1))
    assert case.features.same_rows(Batch(3, np.array([1, 2]), origin=1)) is one
    other = case.features.same_rows(Batch(3, np.array([4, 5]), origin=2))
    assert torch.equal(other, case.joint["train"][[4, 5]])
