import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from vflsim.remote.keys import make_identities
from vflsim.remote.world import precise_loop


@pytest.fixture(scope="session")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Identities of three authorities: ``ours``, ``theirs``, and of the ``past``."""
    folder = tmp_path_factory.mktemp("identities")
    make_identities(folder / "ours", clients=4)
    make_identities(folder / "theirs", clients=3)
    make_identities(folder / "past", clients=2, days=0)  # they ended when they began, five minutes ago
    return folder


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = precise_loop()
    yield made
    made.close()
