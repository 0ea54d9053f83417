"""Prefetching changes when items are made, and nothing else."""

from __future__ import annotations

import threading

import pytest

from beam_jobs.prefetch import prefetch


def test_items_come_in_order_and_all():
    assert list(prefetch(iter(range(100)), ahead=3)) == list(range(100))


def test_an_error_arrives_after_the_items_before_it():
    def items():
        yield 1
        raise ValueError("broken")

    ready = prefetch(items())
    assert next(ready) == 1
    with pytest.raises(ValueError, match="broken"):
        next(ready)


def test_the_next_item_is_made_while_the_present_one_is_used():
    made = [threading.Event() for _ in range(3)]

    def items():
        for event in made:
            event.set()
            yield event

    ready = prefetch(items())
    next(ready)
    assert made[1].wait(5)


def test_stopping_early_ends_the_thread():
    before = threading.active_count()
    ready = prefetch(iter(range(10**9)))
    next(ready)
    ready.close()
    assert threading.active_count() == before
