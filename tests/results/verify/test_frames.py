"""Rows of tables as NumPy columns, against pandas."""

import numpy as np
import pandas as pd
import pyarrow as pa

from vflsim.results.verify.frames import Rows

PEERS = ["b", None, "a", "b", "a", None]
FRAME = pd.DataFrame({"peer": pd.Categorical(PEERS), "kind": pd.Categorical([*"xxyxyy"]), "n": [5, 1, 4, 2, 3, 0]})
LISTS = [[1, 2], [], [3], None, [4, 5], []]


def rows() -> Rows:
    table = pa.Table.from_pandas(FRAME, preserve_index=False)
    return Rows(table.append_column("clients", pa.array(LISTS, pa.list_(pa.int32()))))


def test_selections_of_selections_keep_names_and_numbers_together() -> None:
    odd = rows().where(np.array([True, True, False, True, True, False]))
    chosen = odd.where(np.array([3, 0, 1]))
    assert len(chosen) == 3
    assert chosen["n"].tolist() == [3, 5, 1]
    assert chosen.names("peer").tolist() == ["a", "b", None]
    assert [chosen.names("kind").at(row) for row in range(3)] == ["y", "x", "x"]


def test_names_are_matched_and_null_never_is() -> None:
    peers = rows().names("peer")
    assert peers.are("b").tolist() == [name == "b" for name in PEERS]
    assert peers.among(["a", "c"]).tolist() == [name == "a" for name in PEERS]
    assert peers.begin("").tolist() == [name is not None for name in PEERS]
    assert peers.matching(lambda name: name != "a").tolist() == [name == "b" for name in PEERS]


def test_groups_are_those_of_pandas_and_skip_nulls() -> None:
    for columns in (["peer"], ["kind"], ["kind", "peer"]):
        expected = FRAME.groupby(columns, observed=True, sort=False).indices
        found = {names: places.tolist() for names, places in rows().groups(*columns)}
        assert found == {(key if isinstance(key, tuple) else (key,)): own.tolist() for key, own in expected.items()}
        first = [places[0] for places in found.values()]
        assert first == sorted(first)


def test_lists_are_flattened_with_their_rows() -> None:
    places, values = rows().lists("clients")
    assert [*zip(places.tolist(), values.tolist(), strict=True)] == [(0, 1), (0, 2), (2, 3), (4, 4), (4, 5)]


def test_an_empty_table_has_empty_columns() -> None:
    nothing = Rows(pa.Table.from_pandas(FRAME.head(0), preserve_index=False))
    assert nothing.names("peer").tolist() == []
    assert nothing["n"].tolist() == []
    assert [*nothing.groups("peer")] == []
    no_chunk = Rows(pa.schema([("peer", pa.dictionary(pa.int32(), pa.string()))]).empty_table())
    assert no_chunk.names("peer").tolist() == []
