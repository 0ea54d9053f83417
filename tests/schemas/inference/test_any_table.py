"""Whatever a file holds, a schema that reads it is written, or one line says why not."""

from __future__ import annotations

import contextlib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import MillraceError, UsageError
from schemas.init.check import try_out
from schemas.init.survey import survey
from schemas.init.tables import infer_table

CELLS = st.sampled_from(
    ["", "0", "1", "2", "1.0", "-3.5", "1e400", "nan", "NA", "?", "None", "-", "yes", "no", "True", "007", "é"]
    + ["a b c d e f g", '"x, y"', '"two\nlines"', '""""', '"', "x\ty", "2026-01-31", "20260131", "#", ": ", "["]
    + ["\U0001f600", "$1,000", "null", "+5", "a'b"]
)
TEXT = st.one_of(CELLS, st.text(max_size=6), st.integers().map(str), st.floats().map(str))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    width=st.integers(1, 6),
    cells=st.lists(TEXT, min_size=1, max_size=60),
    repeats=st.integers(1, 8),
    delimiter=st.sampled_from(",;\t"),
)
def test_tables_of_odd_cells(tmp_path, width, cells, repeats, delimiter):
    rows = [delimiter.join(cells[i : i + width]) for i in range(0, len(cells), width)]
    path = tmp_path / "t.csv"
    path.write_bytes("\n".join(rows * repeats).encode("utf-8", "surrogatepass"))
    with contextlib.suppress(UsageError):
        inferred = infer_table([str(path)])
        assert try_out(inferred, [str(path)]).text.startswith("# Written by")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_any_bytes(tmp_path, data):
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    with contextlib.suppress(MillraceError):
        assert survey([str(path)], sample=False).rows >= 1
