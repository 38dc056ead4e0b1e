import sys
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parent)]  # toy_runs; story, closed_curves

from toy_runs import toy_results

from vflsim.results import Results


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_results(tmp_path_factory.mktemp("figures") / "toy", horizon=40)


@pytest.fixture
def results(toy_folder: Path) -> Results:
    return Results.open(toy_folder)
