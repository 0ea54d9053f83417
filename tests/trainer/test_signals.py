"""A signal ends the work, wherever it finds it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer.signals import Terminated, interruptible

ROOT = Path(__file__).parent.parent.parent


def waiting(begin) -> None:
    """A long work that begins with `begin`."""
    with interruptible():
        begin()
        time.sleep(5)


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


def test_the_handlers_are_given_back():
    before = signal.getsignal(signal.SIGTERM), sys.unraisablehook
    with interruptible():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert (signal.getsignal(signal.SIGTERM), sys.unraisablehook) == before


def test_in_a_thread_it_does_nothing():
    program = "import threading; from trainer.signals import interruptible\n"
    program += "t = threading.Thread(target=lambda: interruptible().__enter__()); t.start(); t.join(); print('fine')"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("fine\n", "")
