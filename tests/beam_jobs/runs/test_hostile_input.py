"""Input of someone who means harm, through the command: exit code, message, and what becomes of the good records."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from beam_jobs.preprocess import main
from schemas.csv import stream
from schemas.dataset import layout, open_dataset
from tests.support.image_files import png, write_folders

ROWS = """\
name: rows
format: csv
csv: {header: %s, missing: []}
features:
  - {name: text, kind: text, column: 0, length: 2}
  - {name: number, kind: numeric, column: 1, transform: none}
label: {name: y, kind: category, values: [n, p], column: 2}
split: {by: row, train: 1, eval: 0, test: 0}
"""
GOOD = b"".join(b"word%d,%d,%s\n" % (i, i, b"np"[i % 2 : i % 2 + 1]) for i in range(200))

LISTED = """\
name: listed
format: image_folder
images: {listing: csv, root: photos, resize: {exact: [8, 8]}, channels: {means: [123, 117, 104]}}
split: {train: 1, eval: 0, test: 0}
"""


def run(folder: Path, data: Path | str, *more: str, schema: str = ROWS % "none, num_columns: 3") -> int:
    (folder / "schema.yaml").write_text(schema)
    arguments = ["--schema", str(folder / "schema.yaml"), "--input", str(data), "--output", str(folder / "out")]
    return main([*arguments, "--quiet", *more])


def reasons(folder: Path) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for count in open_dataset(str(folder / "out")).manifest.counts:
        counts.update({count.reason: count.rows} if count.reason else {})
    return dict(counts)


@pytest.mark.slow
@pytest.mark.parametrize("quoted_newlines", [False, True])
def test_absurd_records_are_read_or_rejected_among_good_ones(tmp_path, quoted_newlines):
    absurd = [
        b"x" * 10_000_000 + b",1,n",  # a text of 10 MB is too long
        b"a\0b,1,n",
        b"a,1\0,n",
        b"\0\0\0",
        b"," * 999_999,
        b"y" * 17_000_000 + b",1,n",
        b'"' * 100_001 + b",1,n",
        b'"never closed,1,n',
    ]
    path = tmp_path / "rows.csv"
    path.write_bytes(GOOD + b"\n".join(absurd) + b"\n" + (b"" if quoted_newlines else GOOD))
    options = ", quoted_newlines: true" if quoted_newlines else ""
    assert run(tmp_path, path, schema=ROWS % f"none, num_columns: 3{options}") == 0
    assert open_dataset(str(tmp_path / "out")).rows("train") == (201 if quoted_newlines else 401)
    # Where line ends may be quoted, the last two are one record, as the csv module has it.
    quotes = {"stray_quote": 1} if quoted_newlines else {"unterminated_quote": 2}
    expected = {
        "not_a_number": 1,
        "too_few_columns": 1,
        "too_many_columns": 1,
        "record_too_long": 1,
        "too_long": 1,
        **quotes,
    }
    assert reasons(tmp_path) == expected


def test_a_header_of_a_million_columns_is_refused(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"," * 999_999 + b"\n" + GOOD)
    assert run(tmp_path, path, schema=ROWS % "present") == 2  # what compared each with each would take hours
    assert "the header has columns that no feature reads: 999997 columns" in capsys.readouterr().err


@pytest.mark.slow
def test_a_gzip_bomb_fails_the_job_unless_it_is_allowed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(stream, "_FREE_BYTES", 100_000)
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(GOOD + b"w,1,n\n" * 50_000, 9))
    size = path.stat().st_size
    assert run(tmp_path, path, "--max_input_ratio", "100") == 1
    error = capsys.readouterr().err
    assert f"{path}: its {size:,} bytes decompress to more than {100 * size:,}" in error
    assert "--max_input_ratio 100 is allowed" in error
    assert "raise --max_input_ratio" in error
    assert not (tmp_path / "out" / layout.MANIFEST).exists()
    assert run(tmp_path, path) == 0
    assert open_dataset(str(tmp_path / "out")).rows("train") == 50_200


def test_a_bomb_in_the_first_line_is_refused_by_the_first_16_megabytes(tmp_path, capsys):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(bytes(100 << 20), 9))
    assert run(tmp_path, path) == 2
    assert f"{path}: the first line is longer than 16777216 bytes; is this a CSV file?" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--input", "--output", "--transform_from"])
def test_an_address_of_another_store_is_refused_at_once(tmp_path, capsys, option):
    (tmp_path / "rows.csv").write_bytes(GOOD)
    assert run(tmp_path, tmp_path / "rows.csv", option, "hdfs://host/data") == 2
    assert f"{option} hdfs://host/data: unsupported address; use a local path or gs://" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_list_that_leads_out_of_its_root_and_absurd_images_are_rejects(tmp_path):
    write_folders(tmp_path / "photos", per_class=12)
    (tmp_path / "secret.png").write_bytes(png(np.zeros((9, 9, 3), np.uint8)))
    (tmp_path / "photos" / "link.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "photos" / "bomb.png").write_bytes(png(np.zeros((9, 9, 3), np.uint8), size=(2**31 - 1, 2**31 - 1)))
    good = [f"{p.parent.name}/{p.name},{p.parent.name}" for p in sorted((tmp_path / "photos").glob("*/*"))]
    bad = ["../secret.png,disc", "link.png,disc", "/etc/passwd,disc", "bomb.png,disc", '"bar/000.png', 'x",disc']
    (tmp_path / "list.csv").write_text("\n".join([*good, *bad, "a\x01b.png,disc"]) + "\n")
    assert run(tmp_path, tmp_path / "list.csv", schema=LISTED) == 0
    dataset = open_dataset(str(tmp_path / "out"))
    assert dataset.manifest.written == len(good) == 24
    assert {reason: rows for reason, rows in reasons(tmp_path).items() if reason != "unreadable_file"} == {
        "path_outside_root": 3,
        "too_many_pixels": 1,
        "bad_name": 1,
        "too_few_columns": 1,
    }
    assert dataset.manifest.rejected == len(bad) + 1
    rejects_text = "".join(p.read_text() for p in (tmp_path / "out" / dataset.run).glob("rejects-*.jsonl"))
    assert "root:" not in rejects_text  # nothing of /etc/passwd
