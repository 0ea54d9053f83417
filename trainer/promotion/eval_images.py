"""The image files of a dataset's split, found again by the names in its records: see `trainer.promotion.eval_rows`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from schemas import storage
from schemas.dataset import Dataset
from schemas.dataset.input_files import read_inputs
from schemas.errors import MillraceError
from schemas.images.listing import Listing, list_csv, list_folders
from schemas.spec import images as keys
from schemas.spec.images import SAMENESS, ImageSchema
from trainer.promotion.eval_rows import MOST_ROWS, RawBatch

BATCH = 64
MOST_IMAGES = MOST_ROWS // 64  # that are scored: of more, a random sample


@dataclasses.dataclass
class EvalImages:
    """The image files of one split, or pairs of them; the attributes are those of `EvalRows`."""

    dataset: Dataset
    schema: ImageSchema
    split: str
    paths: Mapping[str, str]  # by the names in the records
    expected: int | None
    read: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)

    def batches(self) -> Iterator[RawBatch]:
        """Reads all files.

        Raises:
          MillraceError: none of them is there any more.
        """
        images, label = self.schema.image_names, self.schema.text_key or self.schema.label_key
        found: list[tuple[list[str], bytes]] = []
        gone = 0
        for names, text in self._records([self.schema.stored_key(image, keys.FILENAME) for image in images], label):
            paths = [self.paths.get(name, "") for name in names]
            if all(path and storage.exists(path) for path in paths):
                found.append((paths, text))
            else:
                gone += 1
        if not found:
            raise MillraceError(
                f"{self.dataset.path}: none of the files of the split {self.split!r} is where it was read; restore "
                "them, or give --eval_input: where they are now, as the --input of preprocessing"
            )
        if gone:
            self.notes.append(
                f"{gone:,} {self.schema.records} of the split {self.split!r} were not scored: files are gone"
            )
        if len(found) > MOST_IMAGES:
            self.notes.append(f"{MOST_IMAGES:,} of {len(found):,} {self.schema.records} were scored, a random sample")
            chosen = np.random.default_rng(0).choice(len(found), MOST_IMAGES, replace=False)
            found = [found[i] for i in sorted(chosen.tolist())]
        for start in range(0, len(found), BATCH):
            some = found[start : start + BATCH]
            self.read += len(some)
            columns = {
                image: np.array([*(storage.read_bytes(paths[i]) for paths, _ in some), None], object)[:-1]
                for i, image in enumerate(images)
            }
            yield RawBatch(columns, np.array([*(text for _, text in some), None], object)[:-1], None)

    def _records(self, names: Sequence[str], label: str) -> Iterator[tuple[list[str], bytes]]:
        """The names of each record's images, and its class's name."""
        import tensorflow as tf

        text = self.schema.text_key is not None
        spec = {name: tf.io.FixedLenFeature([], tf.string) for name in names}
        spec[label] = tf.io.FixedLenFeature([], tf.string if text else tf.int64)
        records = tf.data.TFRecordDataset(list(self.dataset.shards(self.split)), self.dataset.compression)
        for record in records.batch(256).map(lambda some: tf.io.parse_example(some, spec)).as_numpy_iterator():
            for place, value in enumerate(record[label].tolist()):
                told = value if text else SAMENESS[value].encode()
                yield [record[name][place].decode("utf-8", "surrogateescape") for name in names], told


def eval_images(dataset: Dataset, schema: ImageSchema, split: str, inputs: Sequence[str] = ()) -> EvalImages:
    """Lists the files that the dataset was read from, or other ones.

    Args:
      dataset: whose inputs are read.
      schema: the dataset's.
      split: its name.
      inputs: where the files are now, as the `--input` of preprocessing.
    """
    (listed,) = [file.path for part in read_inputs(dataset.path, dataset.manifest) for file in part.inputs]
    root = schema.images.root
    listing: Listing
    if root is None:
        listing = list_folders(storage.expand(tuple(inputs) or tuple(listed.split(" "))))
    else:
        listing = list_csv(inputs[0] if inputs else listed, root)
    paths = dict(zip(listing.names, listing.paths, strict=True))
    return EvalImages(dataset, schema, split, paths, dataset.rows(split))
