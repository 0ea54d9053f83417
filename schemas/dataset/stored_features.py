"""The features of a dataset's stored records, by name, dtype and shape."""

from __future__ import annotations

import dataclasses
import math

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.manifest import Manifest
from schemas.errors import MillraceError
from schemas.spec import image_keys as keys
from schemas.spec.features import CategoryLabel
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema


@dataclasses.dataclass(frozen=True)
class StoredFeature:
    """One feature of the stored `tf.Example`s.

    Attributes:
      name: its key.
      dtype: 'int64', 'float32' or 'string'.
      shape: the shape of a record's value, () for a scalar; None if the number of values varies.
      low: the smallest value of an integer feature, if known.
      high: its largest value, if known.
      finite: whether its numbers are never NaN or infinite.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None = ()
    low: int | None = None
    high: int | None = None
    finite: bool = False

    @property
    def length(self) -> int | None:
        """The number of values in a record; None if it varies."""
        return None if self.shape is None else math.prod(self.shape)


def stored_features(data_dir: str, manifest: Manifest, schema: AnySchema) -> tuple[StoredFeature, ...]:
    """The features of a dataset's records, sorted by name.

    Raises:
      MillraceError: the description of the transformed features cannot be read.
    """
    if isinstance(schema, Schema):
        found = _transformed(layout.join(data_dir, manifest.run, layout.TRANSFORMED_METADATA, layout.SCHEMA_PBTXT))
        label = schema.label
        if isinstance(label, CategoryLabel) and label.values is not None and manifest.preprocessing_fn is None:
            highest = len(label.values) - 1
            found = [dataclasses.replace(f, low=0, high=highest) if f.name == label.name else f for f in found]
        found = [dataclasses.replace(f, finite=manifest.finite and f.dtype == "float32") for f in found]
    else:
        found = _image_features(schema, classes=len(manifest.classes))
    return tuple(sorted(found, key=lambda f: f.name))


def _transformed(path: str) -> list[StoredFeature]:
    """The features in tf.Transform's description of its output."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    dtypes = {schema_pb2.INT: "int64", schema_pb2.FLOAT: "float32", schema_pb2.BYTES: "string"}
    try:
        described = text_format.Parse(storage.read_bytes(path), schema_pb2.Schema())
    except (text_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise MillraceError(f"{path}: not a tensorflow_metadata Schema ({error}); write the dataset again") from None
    found = []
    for feature in described.feature:
        shape = tuple(dim.size for dim in feature.shape.dim) if feature.HasField("shape") else None
        low, high = None, None
        if feature.HasField("int_domain"):
            domain = feature.int_domain
            low = domain.min if domain.HasField("min") else None
            high = domain.max if domain.HasField("max") else None
        found.append(StoredFeature(feature.name, dtypes[feature.type], shape, low, high))
    return found


def _image_features(schema: ImageSchema, *, classes: int) -> list[StoredFeature]:
    strings = (keys.ENCODED, keys.FORMAT, keys.FILENAME)
    sizes = (keys.HEIGHT, keys.WIDTH)
    found = [StoredFeature(schema.stored_key(image, key), "string") for image in schema.image_names for key in strings]
    found += [
        StoredFeature(schema.stored_key(image, key), "int64", low=1) for image in schema.image_names for key in sizes
    ]
    found.append(StoredFeature(schema.label_key, "int64", low=0, high=classes - 1))
    return found if schema.text_key is None else [*found, StoredFeature(schema.text_key, "string")]
