"""The statistics of image files in folders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from beam_jobs.comparing.raw import Progress, RawFiles
from beam_jobs.images.facts import described_images, facts_columns
from beam_jobs.images.reader import ImageReader
from beam_jobs.statistics.collect import Collector, Described
from schemas.images.listing import ImageBundle, list_csv, list_folders
from schemas.spec import images as key
from schemas.spec.images import ImageFolderSchema

AT_ONCE = 64


def read_images(
    paths: Sequence[str],
    schema: ImageFolderSchema,
    classes: Sequence[str],
    *,
    sample: int | None = None,
    progress: Progress = lambda done, share: None,
) -> RawFiles:
    """Decodes and resizes images as the dataset's job did, and measures them.

    Args:
      paths: images in folders of their classes, or the CSV file that lists them, as the schema says.
      schema: of the dataset that they are compared with.
      classes: of that dataset. If no folder has such a name, the images are taken to have no label.
      sample: how many images are enough; None: all.
      progress: called with the images read so far and their share.

    Raises:
      UsageError: no image can be read.
    """
    listed = list_folders(paths) if schema.images.root is None else list_csv(paths[0], schema.images.root)
    labelled = bool(set(listed.labels) & set(classes))
    result = RawFiles(len(paths), lacks=() if labelled else (key.TEXT,))
    result.refuse(listed.rejects)
    result.read = len(listed.rejects)
    places = np.arange(len(listed.paths))
    if sample is not None and len(places) > sample:
        places = np.sort(np.random.default_rng(0).permutation(places)[:sample])
        result.complete = False
    found = described_images()
    columns = tuple(column for column in found.columns if labelled or column.role != "label")
    collector = Collector(Described(columns, found.images))
    every = {*classes, *listed.labels}  # a class that is new is no reject here, but unseen
    with ImageReader(schema.images, classes=sorted(every), split=schema.split) as reader:
        for start in range(0, len(places), AT_ONCE):
            some = places[start : start + AT_ONCE].tolist()
            names = (tuple(held[i] for i in some) for held in (listed.paths, listed.names, listed.labels))
            for batch in reader.read(ImageBundle(start, *names)):
                result.read += batch.read
                result.refuse(batch.rejects)
                if batch.records.num_rows:
                    arrays = facts_columns(batch.facts) | {key.TEXT: batch.records.column(key.TEXT)}
                    described = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
                    collector.add(described, np.zeros(described.num_rows, np.int8))
            progress(result.read, min(1.0, (start + len(some)) / len(places)))
    result.describe(collector.finish().to_bytes())
    return result.check(paths[0] if paths else "the input")
