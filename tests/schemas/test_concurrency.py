"""Threads in order and within budgets, and how interrupts end them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from schemas import interrupts
from schemas.concurrency import ByteBudget, available_memory, map_in_order, one_behind, prefetch, usable_cores
from schemas.interrupts import Terminated, interruptible
from tests.support.commands import run_program
from tests.support.processes import InterruptedAndSilent

PATIENCE = 300.0  # seconds; only a hang takes them


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        pytest.param(None, {}, 64, id="no control groups"),
        pytest.param("0::/\n", {"cpu.max": "200000 100000\n"}, 2, id="version 2"),
        pytest.param("0::/\n", {"cpu.max": "150000 100000\n"}, 2, id="a part of a core counts as one"),
        pytest.param(
            "0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3, id="of a group above"
        ),
        pytest.param("no such line\n", {"cpu.max": "200000 100000\n"}, 64, id="not as it should be"),
    ],
)
def test_the_cores_of_affinity_and_control_groups(tmp_path, monkeypatch, own, files, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    write_system(tmp_path, own, files)
    assert usable_cores(system=str(tmp_path)) == cores


def write_system(folder: Path, own: str | None, files: dict[str, str]) -> None:
    """Writes what the system says of this process's control groups, and the files of the groups."""
    written = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in (written if own is None else {**written, "proc/self/cgroup": own}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def memory(most: object, used: int, cached: int, *, files: int = 0, group: str = "") -> dict[str, str]:
    """The files of a control group that limits memory; `files`: what is cached of a file system in memory."""
    values = {"max": most, "current": used, "stat": f"anon 7\nfile {cached}\nshmem {files}\nfile_mapped 9"}
    return {f"{group}memory.{name}": f"{value}\n" for name, value in values.items()}


@pytest.mark.parametrize(
    ("own", "files", "available"),
    [
        pytest.param(None, {}, 8 << 20, id="no control groups"),
        pytest.param("0::/\n", memory(1000, 600, 0), 400, id="version 2"),
        pytest.param("0::/\n", memory(1000, 600, 250), 650, id="what caches hold can be taken"),
        pytest.param("0::/\n", memory(1000, 600, 250, files=150), 500, id="but not a file system in memory"),
        pytest.param("0::/\n", memory(9 << 20, 0, 0), 8 << 20, id="more than the machine has"),
        pytest.param(
            "0::/a/b\n",
            memory("max", 5, 0, group="a/b/") | memory(1000, 600, 0, group="a/"),
            400,
            id="of a group above",
        ),
        pytest.param("no such line\n", memory(1000, 600, 0), 8 << 20, id="not as it should be"),
    ],
)
def test_the_memory_of_the_machine_and_its_control_groups(tmp_path, own, files, available):
    write_system(tmp_path, own, files)
    (tmp_path / "proc").mkdir(exist_ok=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 16384 kB\nMemAvailable: 8192 kB\n")
    assert available_memory(system=str(tmp_path)) == available


def two_then_error():
    yield 1
    yield 2
    raise ValueError("broken")


def noted(taken: list[int], count: int):
    """Numbers, each noted as it is taken."""
    for i in range(count):
        taken.append(i)
        yield i


class TestPrefetch:
    def test_items_come_in_order_and_all(self):
        assert list(prefetch(iter(range(100)))) == list(range(100))

    def test_an_error_arrives_after_the_items_before_it(self):
        ready = prefetch(two_then_error())
        assert [next(ready), next(ready)] == [1, 2]
        with pytest.raises(ValueError, match="broken"):
            next(ready)

    def test_the_next_item_is_made_while_the_present_one_is_used(self):
        made = [threading.Event() for _ in range(3)]

        def items():
            for event in made:
                event.set()
                yield event

        ready = prefetch(items())
        next(ready)
        assert made[1].wait(PATIENCE)
        assert not made[2].is_set()
        ready.close()

    def test_stopping_early_ends_the_thread(self):
        threads = set(threading.enumerate())
        ready = prefetch(iter(range(10**9)))
        next(ready)
        ready.close()
        assert not set(threading.enumerate()) - threads


class TestMapInOrder:
    def test_results_come_in_order_and_all(self):
        with ThreadPoolExecutor(4) as pool:
            assert list(map_in_order(pool, str, range(100), max_pending=8)) == [str(i) for i in range(100)]

    def test_no_more_are_begun_than_may_wait(self):
        taken: list[int] = []
        with ThreadPoolExecutor(2) as pool:
            results = map_in_order(pool, str, noted(taken, 100), max_pending=5)
            assert next(results) == "0"
            assert len(taken) == 5
            del results  # which ends it

    def test_an_error_arrives_in_its_place(self):
        with ThreadPoolExecutor(2) as pool:
            results = map_in_order(pool, lambda x: 1 // x, [2, 1, 0, 1], max_pending=4)
            assert [next(results), next(results)] == [0, 1]
            with pytest.raises(ZeroDivisionError):
                next(results)


class TestOneBehind:
    def test_an_item_comes_once_the_next_one_is_taken(self):
        taken: list[int] = []
        items = one_behind(noted(taken, 3))
        assert (next(items), taken) == (0, [0, 1])
        assert list(items) == [1, 2]

    def test_an_error_comes_last(self):
        items = one_behind(two_then_error())
        assert [next(items), next(items)] == [1, 2]
        with pytest.raises(ValueError, match="broken"):
            next(items)


class TestByteBudget:
    def test_what_does_not_fit_waits(self):
        budget, entered, done = ByteBudget(100), threading.Event(), threading.Event()

        def second():
            with budget.reserve(60):
                entered.set()
            done.set()

        with budget.reserve(60):
            thread = threading.Thread(target=second)
            thread.start()
            with budget.reserve(40):  # fits beside the first
                assert not entered.is_set()
        assert done.wait(PATIENCE)
        thread.join()

    def test_an_oversized_request_runs_exclusively(self):
        budget, entered = ByteBudget(100), threading.Event()

        def large():
            with budget.reserve(1000):
                entered.set()

        with budget.reserve(1):
            thread = threading.Thread(target=large)
            thread.start()
            assert not entered.is_set()
        assert entered.wait(PATIENCE)
        thread.join()


SIGNALS = pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)]
)


@pytest.fixture(autouse=True)
def pythons_own_handler() -> Iterator[None]:
    """Python's handler of SIGINT, which a shell that runs tests in the background has taken away."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@SIGNALS
def test_the_next_step_raises_a_dropped_exception(number, raised):
    dropped = []

    @interruptible(sigterm=True)
    def work() -> None:
        InterruptedAndSilent(number)
        dropped.append(True)
        interrupts.check()

    with pytest.raises(raised):
        work()
    assert dropped
    interrupts.check()  # that of other work


@SIGNALS
def test_what_nothing_has_raised_in_a_block_is_raised_after_it(number, raised):
    @interruptible(sigterm=True)
    def work() -> None:
        with interruptible():
            InterruptedAndSilent(number)
        interrupts.check()

    with pytest.raises(raised):
        work()


def test_an_exception_that_has_left_a_block_is_not_raised_again():
    @interruptible()
    def work() -> None:
        with contextlib.suppress(KeyboardInterrupt), interruptible():
            signal.raise_signal(signal.SIGINT)
        interrupts.check()

    work()


def test_an_exception_that_was_handled_is_not_raised_again():
    @interruptible()
    def work() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        interrupts.handled()
        interrupts.check()

    work()


@SIGNALS
def test_a_block_in_another_one_begins_with_what_was_dropped_before_it(number, raised):
    @interruptible(sigterm=True)
    def work() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        with interruptible():
            pytest.fail("it goes on as if nobody had interrupted it")

    with pytest.raises(raised):
        work()


def test_an_interrupt_that_an_import_drops_is_raised_when_tensorflow_has_started():
    done = run_program("""
import contextlib, signal
from schemas import interrupts, libraries
signal.signal(signal.SIGINT, signal.default_int_handler)
with contextlib.suppress(KeyboardInterrupt), interrupts.interruptible():
    with libraries.starting_tensorflow(), contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    print("goes on")
print("ends")
""")
    assert done.stdout == "ends\n"


@SIGNALS
def test_an_error_that_c_code_raises_instead_becomes_the_cause(number, raised):
    def as_c_code_does() -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt as interrupt:
            raise SystemError("<built-in function __import__> returned a result with an exception set") from interrupt

    with pytest.raises(raised) as caught, interruptible(sigterm=True):
        as_c_code_does()
    assert isinstance(caught.value.__cause__, SystemError)


def test_an_error_after_a_dropped_interrupt_is_an_interrupt():
    @interruptible()
    def work() -> None:
        InterruptedAndSilent()
        raise ValueError("half a graph")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert repr(caught.value.__cause__) == "ValueError('half a graph')"


def test_a_handler_that_does_not_raise_interrupts_nothing():
    received = []
    signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    with interruptible():
        signal.raise_signal(signal.SIGINT)
        interrupts.check()
    assert received == [signal.SIGINT]


def handlers() -> tuple[object, ...]:
    return signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)


def test_restores_the_handlers():
    before = handlers()
    with interruptible(sigterm=True):
        assert not set(handlers()) & set(before)
    assert handlers() == before


def test_an_ignored_ctrl_c_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible(sigterm=True):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(100))
        interrupts.check()


def test_does_nothing_in_another_thread():
    program = "import threading; from schemas.interrupts import interruptible\n"
    program += "t = threading.Thread(target=lambda: interruptible().__enter__()); t.start(); t.join(); print('fine')"
    done = run_program(program)
    assert (done.stdout, done.stderr) == ("fine\n", "")


@SIGNALS
@pytest.mark.parametrize("fails", [False, True])
def test_a_signal_in_work_that_must_not_be_left_half_done_takes_effect_after_it(number, raised, fails):
    done = []

    @interruptible(sigterm=True)
    def work() -> None:
        before = signal.getsignal(number)
        try:
            with interrupts.deferred():
                os.kill(os.getpid(), number)
                time.sleep(0.01)
                done.append("all")
                if fails:
                    raise ValueError("a full disk")
        finally:
            assert signal.getsignal(number) is before

    with pytest.raises(raised):
        work()
    assert done == ["all"]
