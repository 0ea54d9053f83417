"""Some stored images of each class, for the report of a run."""

from __future__ import annotations

import base64
import collections
import functools
import itertools
from collections.abc import Iterator, Mapping

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.manifest import Manifest
from schemas.libraries import tensorflow
from schemas.spec import images as keys
from schemas.storage.tfrecord import gunzip, read_frames

EACH = 10  # images of a class
CLASSES = 20
BYTES = 1 << 20  # of all images together: they stand in the page
LOOKED_AT = 2_000  # first records of the train split, which are in random order
_CHUNK = 1 << 20


def shown_images(output: str, manifest: Manifest) -> Mapping[str, list[str]]:
    """Images by class, as `data:` URLs; none for rows and for pairs."""
    tf = tensorflow()
    found: dict[str, list[str]] = collections.defaultdict(list)
    used = 0
    for record in itertools.islice(_records(output, manifest), LOOKED_AT):
        example = tf.train.Example.FromString(record).features.feature
        if keys.ENCODED not in example or used > BYTES:
            break
        name = example[keys.TEXT].bytes_list.value[0].decode()
        if len(found[name]) < EACH and (found[name] or len(found) <= CLASSES):
            kind, data = "jpeg", example[keys.ENCODED].bytes_list.value[0]
            if example[keys.FORMAT].bytes_list.value[0] == keys.FORMATS["raw"]:
                shape = [*(example[key].int64_list.value[0] for key in (keys.HEIGHT, keys.WIDTH)), 3]
                kind, data = "png", tf.io.encode_png(tf.reshape(tf.io.decode_raw(data, tf.uint8), shape)).numpy()
            used += len(data)
            found[name].append(f"data:image/{kind};base64,{base64.b64encode(data).decode()}")
    return {name: found[name] for name in sorted(found) if found[name]}


def _records(output: str, manifest: Manifest) -> Iterator[bytes]:
    """The records of the train split."""
    for shard in manifest.splits["train"].shards:
        path = layout.join(output, shard.path)
        with storage.wrap_errors(path), storage.open_read(path) as file:
            chunks: Iterator[bytes] = iter(functools.partial(file.read, _CHUNK), b"")
            for frames in read_frames(gunzip(chunks) if manifest.compression == "gzip" else chunks):
                yield from frames.records
