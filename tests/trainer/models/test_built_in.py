"""Which of the models that ship read which data."""

from __future__ import annotations

import dataclasses

import pytest

from schemas.errors import UsageError
from schemas.spec.images import ImagePairsSchema, ImageSchema
from schemas.spec.table import Schema
from trainer.models import BUILT_IN


class SequenceSchema(ImageSchema):
    """A format of images that no model reads; its images are called as in pairs."""

    records = "sequences"
    image_names = ImagePairsSchema.image_names


@dataclasses.dataclass(frozen=True)
class OfSchema:
    """What `build` looks at in a task spec."""

    schema_class: type


@pytest.mark.parametrize(
    ("model", "schema", "message"),
    [
        ("squeezenext", Schema, "'squeezenext' reads images; for rows use: linear, dnn, wide_deep, softmax"),
        ("softmax", ImagePairsSchema, "'softmax' reads rows or images; for pairs use: face_pairs"),
        ("face_pairs", SequenceSchema, "'face_pairs' reads pairs; for sequences use: a model of your own"),
    ],
)
def test_a_model_refuses_the_data_of_other_schemas(model, schema, message):
    with pytest.raises(UsageError, match=message):
        BUILT_IN[model].build(OfSchema(schema), None, None)
