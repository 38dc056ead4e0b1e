"""Ctrl-C and SIGTERM: passed to a run that can end by itself, raised otherwise, and never lost."""

import contextlib
import signal

import pytest

from vflsim.studies.runs.interrupt import Interrupt, Terminated, exit_status


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_raised_as_ever_and_once_more_if_it_was_swallowed() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as interrupt:
        interrupt.check()
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_that_can_end_by_itself_is_asked_once_and_then_cut_off() -> None:
    asked: list[str] = []
    with Interrupt() as interrupt:
        with interrupt.softened(lambda: asked.append("please")):
            ctrl_c()
            interrupt.check()
            assert asked == ["please"]
            with pytest.raises(KeyboardInterrupt):
                ctrl_c()
            assert asked == ["please"]
        with pytest.raises(KeyboardInterrupt):  # the run was over before it could end early: the next one never begins
            interrupt.check()


def test_who_was_interrupted_before_a_run_began_does_not_begin_it() -> None:
    interrupt, entered = Interrupt(), []
    assert not interrupt.wish()
    with contextlib.suppress(KeyboardInterrupt), interrupt.softened(lambda: None):
        entered.append(True)
    assert entered == []


def test_a_wish_from_elsewhere_is_passed_on_without_a_signal() -> None:
    interrupt, asked = Interrupt(), []
    with interrupt.softened(lambda: asked.append(True)):
        assert interrupt.wish()
        assert not interrupt.wish()
    assert asked == [True]


def terminated_and_interrupted() -> None:
    for _ in range(3):  # a batch system sends it to the process and to its group
        signal.raise_signal(signal.SIGTERM)
    ctrl_c()  # a person at the keyboard does not want to wait


def test_sigterm_asks_a_run_as_ctrl_c_does_but_any_number_of_times() -> None:
    before = signal.getsignal(signal.SIGTERM)
    asked: list[str] = []
    with pytest.raises(Terminated) as caught, Interrupt() as interrupt, interrupt.softened(lambda: asked.append("?")):
        terminated_and_interrupted()
    assert asked == ["?"]
    assert exit_status(caught.value) == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_outside_a_run_is_raised_at_once() -> None:
    with pytest.raises(Terminated), Interrupt():
        signal.raise_signal(signal.SIGTERM)
