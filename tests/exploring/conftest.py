import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from vflsim.exploring.base import Base, base_of
from vflsim.exploring.server import served
from vflsim.exploring.slow_figures import Later
from vflsim.reporting.serving import LocalServer


@pytest.fixture(scope="session")
def template() -> Base:
    """What the page begins with when no scenario is given."""
    return base_of(None)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server writes scenarios and results."""
    return tmp_path_factory.mktemp("place")


def served_cold(patch: pytest.MonkeyPatch, place: Path) -> AbstractContextManager[tuple[LocalServer, str]]:
    """The server of the template, whose other process imports nothing before it is asked."""
    patch.setattr(Later, "warm", lambda _: None)
    return served(None, 0, place)


@pytest.fixture(scope="session")
def serving(place: Path) -> Iterator[tuple[LocalServer, str]]:
    """The server of the template, and the address of its page."""
    with pytest.MonkeyPatch.context() as patch, served_cold(patch, place) as (server, address):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server, address
        server.shutdown()
