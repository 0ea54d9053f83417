"""How well rows are shuffled: whether a row's place in the output depends on its place in the input.

    python -m benchmarks.shuffle_quality --rows 100000 --rounds 3

runs the job on numbered rows, and scores their order in the shards and the order in which training reads them. Each
round has its own seed.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import report, results

SCHEMA = """\
name: numbered
format: csv
csv: {header: present}
features:
  - {name: place, kind: key}
  - {name: x, kind: numeric}
label: {name: y, kind: category, values: ["0", "1"]}
split: {by: row, train: 1.0, eval: 0, test: 0}
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """Correlations, each from -1 to 1. In a fair shuffle they are 0 up to chance, about 1/sqrt(rows).

    Attributes:
      place: between a row's place in the input and its place in the output.
      shard: between its place in the input and the number of its shard.
      neighbour: between its place in the input and that of the next row in the output.
      spread: the share of the variance of places that is between shards (eta squared): about shards / rows in a fair
        shuffle. It also shows dependence that is not linear.
      rows: the number of rows scored.
    """

    place: float
    shard: float
    neighbour: float
    spread: float
    rows: int

    @property
    def noise(self) -> float:
        """The standard deviation that chance alone gives a correlation."""
        return 1 / math.sqrt(self.rows)


def score(shards: Sequence[np.ndarray]) -> Score:
    """Scores an order: for each shard, the input places of its rows, in the shard's order."""
    places = np.concatenate(shards).astype(np.float64)
    numbers = np.repeat(np.arange(len(shards)), [len(shard) for shard in shards])
    means = np.array([shard.mean() if len(shard) else 0.0 for shard in shards])[numbers]
    return Score(
        place=_correlation(places, np.arange(len(places))),
        shard=_correlation(places, numbers),
        neighbour=_correlation(places[:-1], places[1:]),
        spread=float(((means - places.mean()) ** 2).sum() / ((places - places.mean()) ** 2).sum()),
        rows=len(places),
    )


def over_rounds(scores: Sequence[Score]) -> Score:
    """Combines scores: root mean squares of the correlations (`noise` by chance alone), and the mean spread."""

    def rms(values: list[float]) -> float:
        return math.sqrt(statistics.fmean(value * value for value in values))

    return Score(
        place=rms([each.place for each in scores]),
        shard=rms([each.shard for each in scores]),
        neighbour=rms([each.neighbour for each in scores]),
        spread=statistics.fmean(each.spread for each in scores),
        rows=scores[0].rows,
    )


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's correlation; 0 if `a` or `b` is constant."""
    if a.std() == 0 or b.std() == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def write_numbered(path: str, rows: int) -> None:
    """Writes a CSV file whose rows contain their place."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("place,x,y\n")
        file.writelines(f"{i},{i % 97},{i % 2}\n" for i in range(rows))


def stored_places(data_dir: str) -> list[np.ndarray]:
    """For each shard of the train split of a dataset of numbered rows, the places in the shard's order."""
    import tensorflow as tf

    from schemas.dataset import open_dataset

    dataset, spec = open_dataset(data_dir), {"place": tf.io.FixedLenFeature([], tf.string)}
    out = []
    for shard in dataset.shards("train"):
        batches = tf.data.TFRecordDataset(shard).batch(4096)
        places = [tf.io.parse_example(batch, spec)["place"].numpy().astype(np.int64) for batch in batches]
        out.append(np.concatenate([np.zeros(0, np.int64), *places]))
    return out


def read_places(data_dir: str, **options: Any) -> np.ndarray:
    """The places in the order in which training reads them in one epoch, with some of `InputOptions`."""
    import tensorflow as tf

    from schemas.dataset import open_dataset
    from trainer.data.input_fn import stored_records
    from trainer.data.input_options import InputOptions

    spec = {"place": tf.io.FixedLenFeature([], tf.string)}
    batches = stored_records(open_dataset(data_dir), "train", "train", InputOptions(num_epochs=1, **options))
    return np.concatenate([tf.io.parse_example(b, spec)["place"].numpy().astype(np.int64) for b in batches])


def orders(rows: int, num_shards: int, seed: int, folder: str) -> dict[str, list[np.ndarray]]:
    """Orders of numbered rows, by name, as arguments of `score`: of the input, a job's shards, and training."""
    from beam_jobs.core.options import JobOptions
    from beam_jobs.runs.job import run_job

    raw, schema, output = (os.path.join(folder, name) for name in ("raw.csv", "numbered.yaml", "out"))
    write_numbered(raw, rows)
    with open(schema, "w", encoding="utf-8") as file:
        file.write(SCHEMA)
    run_job(JobOptions(schema=schema, input=(raw,), output=output, num_shards=num_shards, seed=seed, quiet=True))
    window = rows // 10
    return {
        "the input": [np.arange(rows)],
        f"the job's {num_shards} shards": stored_places(output),
        f"training, in windows as good as a buffer of {window:,}": [
            read_places(output, cache_bytes=0, shuffle_buffer=window)
        ],
        "training, all in memory": [read_places(output)],
    }


def main(argv: list[str] | None = None) -> int:
    """Runs the command. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shuffle_quality", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--num_shards", type=int, default=8, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="each with its seed (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/shuffle.json, and update its table")
    options = parser.parse_args(argv)
    from beam_jobs.runs.run import load_libraries

    load_libraries()
    scores: dict[str, list[Score]] = {}
    for seed in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name, shards in orders(options.rows, options.num_shards, seed, folder).items():
                scores.setdefault(name, []).append(score(shards))
    found = {
        "rows": options.rows,
        "shards": options.num_shards,
        "runs": options.rounds,
        "scores": {name: dataclasses.asdict(over_rounds(each)) for name, each in scores.items()},
    }
    print(report.scores(found))
    if options.keep:
        report.keep(report.SHUFFLE, results.conditions(real_data=False), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
