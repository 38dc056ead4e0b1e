"""Formats of figures."""

from __future__ import annotations

import pytest

from vflsim.plotting.style import FORMATS, Picture, picture

BEGINS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def drawn() -> Picture:
    with picture(2, 1.5, {}) as figure:
        figure.add_subplot().plot([0, 1], [0, 1])
    return figure


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FORMATS)
def test_equal_figures_give_equal_bytes_in_every_format(suffix: str) -> None:
    first = drawn().rendered(suffix)
    assert first.startswith(BEGINS[suffix])
    assert drawn().rendered(suffix.upper()) == first
