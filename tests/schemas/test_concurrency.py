"""Work in threads changes when things are done, and nothing else."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from schemas.concurrency import ByteBudget, map_in_order, one_behind, prefetch

PATIENCE = 300.0  # seconds; only a hang takes them


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
        before = threading.active_count()
        ready = prefetch(iter(range(10**9)))
        next(ready)
        ready.close()
        assert threading.active_count() == before


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
