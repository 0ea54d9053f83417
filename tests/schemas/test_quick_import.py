"""Modules are imported without the garbage collector, which is afterwards as it was."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from schemas.quick_import import quick_import


@pytest.fixture
def probe(tmp_path, monkeypatch) -> Iterator[str]:
    """A module that records whether the garbage collector ran while it was imported, and that fails on request."""
    (tmp_path / "collector_probe.py").write_text("import gc\nenabled = gc.isenabled()\n")
    (tmp_path / "collector_failing.py").write_text("raise ImportError('no such library')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "collector_probe"
    sys.modules.pop("collector_probe", None)
    gc.freeze()  # as the whole run has it


def test_the_garbage_collector_is_paused_during_the_import_and_skips_its_objects(probe):
    quick_import("json", probe)
    assert not sys.modules[probe].enabled
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


def test_what_is_imported_already_costs_nothing(probe):
    quick_import(probe)
    gc.unfreeze()
    quick_import(probe, "json")
    assert gc.get_freeze_count() == 0


def test_a_collector_that_is_off_stays_off(probe):
    gc.disable()
    try:
        quick_import(probe)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_failed_import_leaves_the_collector_on(probe):
    with pytest.raises(ImportError, match="no such library"):
        quick_import("collector_failing")
    assert gc.isenabled()
