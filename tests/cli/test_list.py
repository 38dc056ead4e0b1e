"""``vflsim list`` describes every kind."""

from collections.abc import Callable
from typing import get_args

import pytest
from command_line import Ended
from pydantic import ValidationError

from vflsim.cli.listing import PARTITIONS, PRESETS, listed
from vflsim.kinds import TABLES
from vflsim.learning.data import Partition


@pytest.mark.parametrize("category", [*TABLES, PARTITIONS, PRESETS])
def test_every_kind_has_its_texts(category: str) -> None:
    assert {len(texts) for texts in listed(category)} == {4 if category == PRESETS else 3}


KEYS = {"clients": 2, "columns": (("a",), ("b",)), "shares": (0.5, 0.5), "alpha": 1.0, "beta": 0.5, "seed": 3}


def test_the_listed_partitions_are_all_and_have_the_listed_keys(vflsim: Callable[..., Ended]) -> None:
    shown = vflsim("list", "partitions").out
    assert {way for way, *_ in listed(PARTITIONS)} == {*get_args(get_args(Partition.model_fields["by"].annotation)[0])}
    for way, keys, line in listed(PARTITIONS):
        assert way in shown
        assert line.split()[0] in shown
        listed_keys = {key.removesuffix("?"): key.endswith("?") for key in keys.split(", ")}
        needed = {key: KEYS[key] for key, optional in listed_keys.items() if not optional}
        Partition(by=way, **needed)
        for left_out in needed:
            with pytest.raises(ValidationError):
                Partition(by=way, **{key: value for key, value in needed.items() if key != left_out})
        for key, value in KEYS.items():
            if key in listed_keys:
                Partition(by=way, **{**needed, key: value})
            else:
                with pytest.raises(ValidationError):
                    Partition(by=way, **{**needed, key: value})
