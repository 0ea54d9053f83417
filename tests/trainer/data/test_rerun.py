"""A reader that has a dataset open while a job writes it anew."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

from beam_jobs.core.options import JobOptions
from beam_jobs.runtime.job import run_job
from schemas.dataset import open_dataset
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator

ModeKeys = tf_estimator.ModeKeys
SCHEMA = """\
name: numbers
format: csv
csv: {header: present}
features:
  - {name: x, kind: numeric, transform: none}
label: {name: y, kind: numeric}
split: {by: row, train: 1.0, eval: 0, test: 0}
"""


def write(folder: Path, rows: range, *, overwrite: bool = False) -> None:
    (folder / "numbers.yaml").write_text(SCHEMA)
    (folder / "numbers.csv").write_text("x,y\n" + "".join(f"{i},{i}\n" for i in rows))
    run_job(
        JobOptions(
            schema=str(folder / "numbers.yaml"),
            input=(str(folder / "numbers.csv"),),
            output=str(folder / "out"),
            overwrite=overwrite,
            num_shards=8,
            quiet=True,
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", [ModeKeys.TRAIN, ModeKeys.EVAL])
def test_a_reader_continues_while_a_rerun_commits(tmp_path, mode):
    write(tmp_path, range(400))
    options = InputOptions(batch_size=10, num_epochs=2, shuffle_buffer=0, cycle_length=1, prefetch=1)
    batches = iter(input_fn(open_dataset(str(tmp_path / "out")), "train", mode=mode, options=options))
    read = collections.Counter(int(x) for x in next(batches)[0]["x"])
    write(tmp_path, range(1000, 1300), overwrite=True)
    read.update(int(x) for features, _ in batches for x in features["x"])
    assert read == collections.Counter([*range(400)] * 2)
    after = input_fn(open_dataset(str(tmp_path / "out")), "train", mode=ModeKeys.EVAL, options=options)
    assert {int(x) for features, _ in after for x in features["x"]} == set(range(1000, 1300))
