import json
from pathlib import Path

import pytest
from toy_runs import toy_results, toy_run

from vflsim.reporting import write_report
from vflsim.results import run_folder, write_file, write_run
from vflsim.results.store.pages import read_scenario

EVIL = "<img src=x onerror=alert(1)>"
EVIL_NAME = "</title><script>alert('name')</script>"


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_results(tmp_path_factory.mktemp("report") / "toy", horizon=12, answers=True, energy=True)


@pytest.fixture(scope="session")
def toy_page(toy_folder: Path) -> Path:
    """The report of the invented results, in their folder."""
    return write_report([toy_folder])


@pytest.fixture(scope="session")
def studies(toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three studies: one with events, one of later seeds (so that no run is paired), one that was only timed."""
    place = tmp_path_factory.mktemp("studies")
    later = toy_results(place / "later", seeds=2, record="summary", horizon=40, energy=True)
    timed = toy_results(place / "timed", seeds=2, record="summary", horizon=6, energy=True)
    changed = {later: {"name": "later"}, timed: {"name": "timed", "stop": {"time": 120}}}
    for folder, words in changed.items():
        said = read_scenario(folder / "scenario.yaml")
        write_file(folder / "scenario.yaml", json.dumps({**said, **words}))
    return [toy_folder, later, timed]


@pytest.fixture(scope="session")
def evil_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of results whose texts try to become part of the page."""
    folder = tmp_path_factory.mktemp("evil") / "study"
    page = f"""name: "{EVIL_NAME}"\nprotocols: {{"{EVIL}": {{kind: "{EVIL}"}}}}\nextra: "</script><script>alert(2)"\n"""
    write_file(folder / "scenario.yaml", page)
    tables, info = toy_run("t-sync", 0, horizon=6)
    write_run(run_folder(folder, EVIL, 0), tables, {}, info.model_copy(update={"protocol": EVIL}), "events")
    _, info = toy_run("t-sync", 1, horizon=6)
    failed = {"protocol": EVIL, "status": "failed", "error": "<b>bold</b> error", "stop_reason": None}
    write_run(run_folder(folder, EVIL, 1), tables, {}, info.model_copy(update=failed), "summary")
    return write_report([folder])
