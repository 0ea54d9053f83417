"""Vocabularies: counted, looked up, and what is said of a column before and after they are measured."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow_transform as tft

from beam_jobs.transform import vocabularies
from beam_jobs.transform.vocabularies import COUNTED, EMPTY, AddCounts, words_of, write_vocabularies
from schemas.dataset import OpenDataset
from schemas.dataset.show import describe
from schemas.spec.forms import Vocabulary
from tests.support.datasets import rejects_of, written
from tests.support.written_records import examples


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vocabulary", "counts", "words"),
    [
        (Vocabulary("v"), [(1, b"c"), (3, b"a"), (2, b"b")], [b"a", b"b", b"c"]),
        (Vocabulary("v"), [(2, b"a"), (2, b"\xff"), (2, b"b")], [b"\xff", b"b", b"a"]),  # equals: by falling bytes
        (Vocabulary("v", top_k=2), [(1, b"c"), (3, b"a"), (2, b"b")], [b"a", b"b"]),
        (Vocabulary("v", frequency_threshold=2), [(1, b"c"), (3, b"a"), (2, b"b")], [b"a", b"b"]),
        (Vocabulary("v", top_k=1, frequency_threshold=4), [(3, b"a")], [EMPTY]),  # a table needs a word
    ],
)
def test_the_most_frequent_words_come_first(tmp_path, vocabulary, counts, words):
    table = pa.table([[0] * len(counts), [word for _, word in counts], [n for n, _ in counts]], schema=COUNTED)
    shares = [(0, table[:1]), (1, table[1:])]
    (path,) = write_vocabularies(None, shares, (vocabulary,), str(tmp_path))
    assert Path(str(path.value)).read_bytes().split(b"\n")[:-1] == words


@pytest.mark.slow
def test_counts_are_added_up_as_they_come_in_whatever_their_order(monkeypatch):
    monkeypatch.setattr(vocabularies, "PENDING", 2000)
    combine, parts = AddCounts(), dict[int, Any]()
    for first in range(0, 100_000, 500):
        words = np.array([b"%d" % (i % 20_000) for i in range(first, first + 1000)], object)
        for share, table in words_of((np.array([600, 400]), words, np.ones(1000, np.int64))):
            part = parts.setdefault(share, combine.create_accumulator())
            combine.add_input(part, table)
            assert sum(map(len, part.tables)) < 7000  # each share has some 2,500 words
    merged = {share: combine.merge_accumulators([part, combine.create_accumulator()]) for share, part in parts.items()}
    rows = [tuple(row.values()) for part in merged.values() for row in combine.extract_output(part).to_pylist()]
    expected = collections.Counter(
        (int(i - first >= 600), b"%d" % (i % 20_000))
        for first in range(0, 100_000, 500)
        for i in range(first, first + 1000)
    )
    assert len(rows) == len(expected)
    assert {(number, word): count for number, word, count in rows} == expected


SCHEMA = """\
name: words
format: csv
csv: {header: present, quoted_newlines: true}
features:
  - {name: a.b, kind: category, missing: gone}
  - {name: a_b, kind: category, top_k: 1}
  - {name: empty, kind: text}
label: {name: y, kind: category}
split: {by: file, train: train.csv, eval: eval.csv}
"""
HEADER = "a.b,a_b,empty,y\n"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> tft.TFTransformOutput:
    folder = tmp_path_factory.mktemp("vocabularies")
    (folder / "train.csv").write_text(HEADER + "x,x,,no\n,x,,yes\n z ,x,,yes\n,z,,no\n")
    (folder / "eval.csv").write_text(HEADER + "unseen,unseen,unseen,no\n")
    return tft.TFTransformOutput(written(folder, SCHEMA, str(folder / "train.csv"), str(folder / "eval.csv")).run_dir)


@pytest.mark.slow
def test_each_feature_has_the_words_of_its_train_rows_under_its_own_name(output):
    assert output.vocabulary_by_name("a.b") == [b"gone", b"z", b"x"]
    assert output.vocabulary_by_name("a_b") == [b"x"]
    assert output.vocabulary_by_name("empty") == [EMPTY]
    assert output.vocabulary_by_name("y") == [b"yes", b"no"]
    domains = {f.name: (f.int_domain.min, f.int_domain.max) for f in output.transformed_metadata.schema.feature}
    assert domains["a.b"] == (0, 3)  # three words and a bucket for the others
    assert domains["y"] == (-1, 1)


ODD_SCHEMA = """\
name: odd
format: csv
csv: {header: present, quoted_newlines: true, missing: ["?"]}
features:
  - {name: id, kind: key}
  - {name: seen, kind: category}
  - {name: filled, kind: category, missing: gone}
  - {name: hashed, kind: category, hash_buckets: 1000}
  - {name: listed, kind: category, values: ["two\\nlines", plain]}
  - {name: words, kind: text, length: 2}
label: {name: y, kind: category, aliases: {"n\\no": "no"}}
split: {by: file, train: train.csv, eval: eval.csv}
"""
ODD_HEADER = "id,seen,filled,hashed,listed,words,y\n"
# The cells of one row each: what is stored under ids of its own, and what is rejected, with its reason and column.
TAKEN = {
    "plain": "plain,plain,plain,plain,a b,no",
    "ends around": '"\n around\r\n",plain,plain,plain,a b,no',
    "nul": "a\x00b,plain,plain,plain,a b,no",
    "separators": "a\u2028b\x85c\x0bd\x1ce,plain,plain,plain,a b,n\u2028o",
    "like the word for none": f"{EMPTY.decode()},plain,plain,plain,a b,no",
    "a backslash n": "a\\nb,plain,plain,plain,a b,no",
    "elsewhere": 'plain,"","two\nlines","two\nlines","a\nb","n\no"',
    "missing": 'plain,?,"",plain,a b,yes',
}
REFUSED = {
    "two lines": ('"a\nb",x,x,plain,a,no', "line_end_in_value", "seen"),
    "two lines with a carriage return": ('"a\r\nb",x,x,plain,a,no', "line_end_in_value", "seen"),
    "two lines where missing is filled": ('x,"c\nd",x,plain,a,no', "line_end_in_value", "filled"),
    "empty, which is no token for missing": ('" ",x,x,plain,a,no', "missing_value", "seen"),
    "a label of two lines": ('x,x,x,plain,a,"y\nes"', "line_end_in_value", "y"),
    "an empty label": ("x,x,x,plain,a,", "missing_label", "y"),
}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> OpenDataset:
    folder = tmp_path_factory.mktemp("odd")
    rows = TAKEN | {name: cells for name, (cells, _, _) in REFUSED.items()}
    content = ODD_HEADER + "".join(f'"{name}",{cells}\n' for name, cells in rows.items())
    for split in ("train", "eval"):
        (folder / f"{split}.csv").write_bytes(content.encode())
    return written(folder, ODD_SCHEMA, str(folder / "*.csv"), max_reject_fraction=1.0)


@pytest.mark.slow
def test_a_value_that_a_vocabulary_cannot_hold_is_a_reject(odd):
    for split in ("train", "eval"):
        rejects = {r.raw.decode().split('"')[1]: r for r in rejects_of(odd) if r.source.endswith(f"{split}.csv")}
        assert {name: (r.stage, r.reason, r.column) for name, r in rejects.items()} == {
            name: ("decode", reason, column) for name, (_, reason, column) in REFUSED.items()
        }
    (detail,) = {r.detail for r in rejects_of(odd) if r.raw.startswith(b'"two lines",')}
    assert detail == "found 'a\\nb', expected no line end: a vocabulary has one value per line"


@pytest.mark.slow
def test_every_other_value_has_an_id_of_its_own_in_the_vocabulary(odd):
    output = tft.TFTransformOutput(odd.run_dir)
    for split in odd.splits:
        rows = {row["id"][0].decode(): row for row in examples(odd, split)}
        assert set(rows) == set(TAKEN)
        ids = {name: rows[name]["seen"][0] for name in TAKEN if name not in ("elsewhere", "missing")}
        assert len(set(ids.values())) == len(ids)
        assert max(ids.values()) < output.vocabulary_size_by_name("seen")
        assert rows["missing"]["filled"] == rows["elsewhere"]["filled"] != rows["plain"]["filled"]
        assert rows["elsewhere"]["listed"] == [0]
        assert (rows["elsewhere"]["y"], rows["missing"]["y"]) == (rows["plain"]["y"], [1])
    assert describe(odd.path)["classes"] == ["no", "yes", "n\u2028o"]
