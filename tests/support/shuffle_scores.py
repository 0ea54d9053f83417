"""How well rows are shuffled: whether a row's place in the output depends on its place in the input."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from schemas.dataset import open_dataset
from trainer.data.input_fn import stored_records
from trainer.data.input_options import InputOptions

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
    dataset, spec = open_dataset(data_dir), {"place": tf.io.FixedLenFeature([], tf.string)}
    out = []
    for shard in dataset.shards("train"):
        batches = tf.data.TFRecordDataset(shard).batch(4096)
        places = [tf.io.parse_example(batch, spec)["place"].numpy().astype(np.int64) for batch in batches]
        out.append(np.concatenate([np.zeros(0, np.int64), *places]))
    return out


def read_places(data_dir: str, **options: Any) -> np.ndarray:
    """The places in the order in which training reads them in one epoch, with some of `InputOptions`."""
    spec = {"place": tf.io.FixedLenFeature([], tf.string)}
    batches = stored_records(open_dataset(data_dir), "train", "train", InputOptions(num_epochs=1, **options))
    return np.concatenate([tf.io.parse_example(b, spec)["place"].numpy().astype(np.int64) for b in batches])
