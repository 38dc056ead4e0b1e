"""What all tests share."""

import contextlib
import functools
import gc
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "support"))  # the helpers of all tests


@contextlib.contextmanager
def _writing_bytecode() -> Iterator[None]:
    """Write bytecode, also where the environment forbids it: else each process rewrites all assertions every time."""
    writes_none = sys.dont_write_bytecode
    sys.dont_write_bytecode = False
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_none


with _writing_bytecode():  # pytest rewrites hypothesis, too
    import thorough
    from browser import CHROMIUM, Browser, browser
    from command_line import Ended

for _library in ("OMP", "OPENBLAS", "MKL"):  # before numpy and PyTorch are imported
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")  # tiny arrays: more threads only wait for each other
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # where a test asks for more threads, they wait asleep


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help=thorough.HELP)
    parser.addoption("--slow", action="store_true", help="run the slow tests too, with as few examples as the others")
    parser.addoption("--device", choices=("cpu", "cuda"), help="run the tests of a device alone, on this one")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Take one process more than there are cores: tests wait for other processes and for timers, too."""
    return 1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def pytest_configure(config: pytest.Config) -> None:
    thorough.begin(config.getoption("--thorough"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not _runs_slow(config):
        terminalreporter.write_line(thorough.SLOW)


def _runs_slow(config: pytest.Config) -> bool:
    return thorough.is_thorough() or bool(config.getoption("--slow"))


def _of_a_device(item: pytest.Item) -> bool:
    return item.get_closest_marker("device") is not None


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    thorough.call_most_slow(items)
    on_device = bool(config.getoption("--device"))
    config.hook.pytest_deselected(items=[item for item in items if _of_a_device(item) != on_device])
    items[:] = [item for item in items if _of_a_device(item) == on_device]
    if not _runs_slow(config):  # leave out, not skip: reports of thousands of skips cost seconds, too
        slow = [item for item in items if item.get_closest_marker("slow")]
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage: what is made here stays. Afterwards collect seldom: it took 4 % of the tests' time."""
    gc.disable()
    try:
        with _writing_bytecode():
            return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        gc.enable()


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, and their files written, but nothing is laid out or drawn: for tests of what figures have."""
    monkeypatch.setattr("vflsim.plotting.fit.Fitting.run", lambda _self: None)
    made = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<svg></svg>"}
    monkeypatch.setattr("vflsim.plotting.style.Picture.rendered", lambda _self, suffix, **_: made[suffix])


@pytest.fixture(scope="session")
def _command_of() -> Callable[..., object]:
    """What typer makes of the command line anew at each call; here once."""
    from typer.main import get_command

    return functools.cache(get_command)


@pytest.fixture
def vflsim(
    _command_of: Callable[..., object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """The console script, in this process."""
    from vflsim.cli import main

    monkeypatch.setattr("typer.main.get_command", _command_of)

    def call(*argv: object) -> Ended:
        # A report takes seconds; tests of it ask for it.
        unreported = ["--no-report"] if argv[:1] == ("run",) and "--report" not in argv else []
        monkeypatch.setattr(sys, "argv", ["vflsim", *map(str, argv), *unreported])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        return Ended(caught.value.code, printed.out, printed.err)

    return call


@pytest.fixture
def warm_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of studies that have imported PyTorch already."""
    from warm import CONTEXT

    monkeypatch.setattr("vflsim.studies.engines.processes._CONTEXT", CONTEXT)


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A tab of headless Chromium."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on the PATH")
    with browser(tmp_path_factory.mktemp("profile")) as made:
        yield made
