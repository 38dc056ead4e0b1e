import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))  # tiny_worlds

from vflsim.exploring.base import Base, base_of


@pytest.fixture(scope="session")
def template() -> Base:
    """What the page begins with when no scenario is given."""
    return base_of(None)
