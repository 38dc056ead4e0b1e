"""Ids of several files, whatever they share: the rows that each rule uses are those that sets say."""

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.errors import DataError
from vflsim.learning.data.user import aligned

FILES = [Path("a.csv"), Path("b.csv"), Path("c.csv"), Path("labels.csv")]
some_ids = st.lists(st.integers(0, 9), min_size=1, max_size=10, unique=True)


@settings(max_examples=examples(60))
@given(st.lists(some_ids, min_size=4, max_size=4), st.integers(0, 3))
def test_the_rows_used_are_those_of_sets(ids: list[list[int]], label: int) -> None:
    indexes, parties = [pd.Index(each) for each in ids], 3
    union, labelled = set().union(*ids[:parties]), set(ids[label])
    for rule, wanted in (("inner", set.intersection(*map(set, ids))), ("outer", union & labelled)):
        if not wanted or any(wanted.isdisjoint(each) for each in ids):
            with pytest.raises(DataError, match=r"a\.csv has"):
                aligned(rule, FILES, indexes, parties, label)
            continue
        used, found = aligned(rule, FILES, indexes, parties, label)
        assert len(used) == len(wanted) == len(set(used) & wanted)
        first = [each for each in ids[0] if each in wanted]
        assert used.tolist()[: len(first)] == first
        if all(set(each) == wanted for each in ids):
            assert found is None
        else:
            assert [(each.rows, each.used) for each in found.files] == [
                (len(each), len(wanted & set(each))) for each in ids
            ]
    if any(set(each) != set(ids[0]) for each in ids):
        with pytest.raises(DataError, match="are missing in"):
            aligned("exact", FILES, indexes, parties, label)
