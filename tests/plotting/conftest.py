import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # story, closed_curves

from thorough import is_thorough
from toy_runs import toy_results

from vflsim.plotting import style
from vflsim.results import Results


@pytest.fixture
def few_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw a sixteenth of the pixels: for tests that do not look at them."""
    if not is_thorough():
        monkeypatch.setattr(style, "DPI", style.DPI // 4)


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_results(tmp_path_factory.mktemp("figures") / "toy", horizon=40, answers=True, energy=True)


@pytest.fixture
def results(toy_folder: Path) -> Results:
    return Results.open(toy_folder)
