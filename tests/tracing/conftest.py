"""Fixtures of the tests of the vectorised path."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def no_variation() -> Iterator[None]:
    """Neither path works out how many rounds a mean needs: for skewed delays it takes seconds, and no table has it."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("simulation.run", "simulation.vectorised.run"):
            patch.setattr(f"vflsim.{module}.variation_of", lambda _protocol, _setting: None)
        yield
