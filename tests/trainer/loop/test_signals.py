"""A signal ends the work, wherever it finds it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer.loop.signals import Terminated, interruptible

ROOT = Path(__file__).parents[3]


def waiting(begin) -> None:
    """A long work that begins with `begin`."""
    with interruptible():
        begin()
        time.sleep(300)  # which the signal ends


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_raises(number, raised):
    def send() -> None:
        os.kill(os.getpid(), number)

    with pytest.raises(raised):
        waiting(send)


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_one_that_python_drops_comes_again(number, raised):
    class Collected:
        def __del__(self) -> None:
            os.kill(os.getpid(), number)
            sum(range(100))  # the handler runs here, and what it raises is dropped

    with pytest.raises(raised):
        waiting(Collected)


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_one_that_other_code_makes_an_error_of_is_told_from_it(number, raised):
    def as_code_in_c_does() -> None:
        try:
            os.kill(os.getpid(), number)
            sum(range(100))
        except KeyboardInterrupt as interrupt:
            raise SystemError("<built-in function __import__> returned a result with an exception set") from interrupt

    with pytest.raises(raised) as told:
        waiting(as_code_in_c_does)
    assert isinstance(told.value.__cause__, SystemError)


def test_an_error_without_a_signal_is_the_error():
    with pytest.raises(ValueError, match="of its own"), interruptible():
        raise ValueError("of its own")


def handlers() -> tuple[object, ...]:
    return signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), sys.unraisablehook


def test_the_handlers_are_given_back():
    before = handlers()
    with interruptible():
        assert not set(handlers()) & set(before)
    assert handlers() == before


def test_a_ctrl_c_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
            sum(range(100))
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_a_thread_it_does_nothing():
    program = "import threading; from trainer.loop.signals import interruptible\n"
    program += "t = threading.Thread(target=lambda: interruptible().__enter__()); t.start(); t.join(); print('fine')"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("fine\n", "")
