"""Derives the task spec of a model from a dataset: its inputs, its label, and the weight of an example.

The task spec of an image model holds its classes and the size of its input.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from schemas.errors import MillraceError
from schemas.spec.features import CategoryLabel, Feature
from schemas.spec.forms import Dense, Ids, Input, Strict
from schemas.spec.images import ImageSchema
from schemas.spec.table import Schema
from schemas.storage.gcs_access import check_tensorflow

if TYPE_CHECKING:
    import tensorflow_transform as tft

    from schemas.dataset import OpenDataset


@dataclasses.dataclass(frozen=True)
class ImageTaskSpec:
    """The task of an image model. Its `model_fn` finds it in `params["task_spec"]`.

    The features are uint8 `[batch, height, width, 3]`, by the names in `images`. The label is int64 `[batch]`, a class
    id. `trainer.images.inputs` normalizes the pixels inside the model.

    Attributes:
      schema: the schema of the dataset.
      classes: class names by id; for pairs of images ('different', 'same').
      run_dir: the folder of the dataset run; `tft.TFTransformOutput` opens it.
      max_steps: the step at which training ends; learning rates decay towards it. None: no limit.
    """

    schema: ImageSchema
    classes: tuple[str, ...]
    run_dir: str
    max_steps: int | None = None

    @property
    def examples(self) -> str:
        """The kind of examples that the model reads: images or pairs."""
        return self.schema.examples

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images."""
        return self.schema.images.input_size

    @property
    def images(self) -> tuple[str, ...]:
        """The names of an example's images: `image`, or `left` and `right` for pairs."""
        return self.schema.image_names

    @property
    def pairs(self) -> bool:
        """Whether an example is a pair of images with the label "match or not", instead of one image with its class."""
        return self.schema.pairs


class LabelScale(Strict):
    """The scale on which a model learns its label, measured in the train split.

    Attributes:
      transform: how a numeric label y is scaled: `z_score` is `(y - mean) / deviation`. `log` and `log1p` do the same
        with `ln(y)` and `ln(1 + y)` instead of y. `none` does nothing.
      mean: the mean of y, or of its logarithm, in the train split.
      deviation: the standard deviation of y, or of its logarithm, in the train split.
      priors: the share of each class in the train split, multiplied by `class_weights`. A classification starts by
        predicting these shares. Empty: it starts with equal shares.
      class_weights: for each class, a factor on the loss of its examples in training, and in the metric
        `balanced_loss`. Empty: all factors are 1.
    """

    transform: Literal["none", "z_score", "log", "log1p"] = "none"
    mean: float = 0.0
    deviation: float = 1.0
    priors: tuple[float, ...] = ()
    class_weights: tuple[float, ...] = ()

    @property
    def is_logarithm(self) -> bool:
        """Whether the model learns a logarithm of the label: ln(y) or ln(1 + y)."""
        return self.transform in ("log", "log1p")


AS_IT_IS = LabelScale()


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """The task of a model for rows. Its `model_fn` finds it in `params["task_spec"]`.

    Attributes:
      inputs: the features that the model reads, in the schema's order.
      label: the name of the label; it is int64 `[batch]` for classes, float32 `[batch]` for regression.
      classes: the number of classes; None for regression.
      weight: the feature that holds the example weights, float32 `[batch]`, present in TRAIN and EVAL only; None:
        examples have no weights.
      max_steps: the step at which training ends; learning rates decay towards it. None: no limit.
      scale: the scale on which the model learns the label, and the shares of classes with which it starts.
    """

    examples: ClassVar[str] = Schema.examples

    inputs: tuple[Input, ...]
    label: str
    classes: int | None
    weight: str | None = None
    max_steps: int | None = None
    scale: LabelScale = AS_IT_IS


AnyTaskSpec = TaskSpec | ImageTaskSpec


def read_task_spec(
    dataset: OpenDataset, *, max_steps: int | None = None, label: LabelScale | None = None
) -> AnyTaskSpec:
    """Returns the task spec of a dataset of rows or of images.

    Args:
      dataset: the dataset.
      max_steps: the step at which training ends; None: no limit.
      label: the scale of the label, if it was measured; None: the label is learned as it is. Not used for images.

    Raises:
      UsageError: TensorFlow cannot read from the dataset's location.
      MillraceError: a feature cannot become a model input, or the label has a single class.
    """
    check_tensorflow(dataset.run_dir)
    if dataset.image_schema is None:
        return read_table_task_spec(dataset, max_steps=max_steps, label=label)
    return read_image_task_spec(dataset, max_steps=max_steps)


def read_image_task_spec(dataset: OpenDataset, *, max_steps: int | None = None) -> ImageTaskSpec:
    """Returns the task spec of an image dataset.

    Raises:
      MillraceError: the dataset is a CSV dataset, or has a single class.
    """
    schema, classes = dataset.image_schema, dataset.manifest.classes
    if schema is None:
        raise MillraceError(f"{dataset.path}: a CSV dataset; expected images")
    if len(classes) < 2:
        raise MillraceError(f"{dataset.path}: images of {len(classes)} class; expected two or more")
    return ImageTaskSpec(schema, schema.model_classes(classes), dataset.graphs_dir, max_steps)


def read_table_task_spec(
    dataset: OpenDataset, *, max_steps: int | None = None, label: LabelScale | None = None
) -> TaskSpec:
    """Derives the task spec from a CSV dataset's schema and its transform.

    A custom `preprocessing_fn` may give a feature another form than its kind in the schema implies. In this case the
    actual form decides. Floats are used as they are, and int64 is used as ids if the transform declares their range.

    Args:
      dataset: the dataset.
      max_steps: the step at which training ends; None: no limit.
      label: the scale of the label, if it was measured; None: the label is learned as it is.

    Raises:
      MillraceError: a feature cannot become a model input, or the label has a single class.
    """
    import tensorflow_transform as tft

    output = tft.TFTransformOutput(dataset.graphs_dir)
    spec = output.transformed_feature_spec()
    schema = dataset.schema
    if schema.label.name not in spec:
        raise MillraceError(f"{dataset.run_dir}: the transformed records contain no label {schema.label.name!r}")
    not_inputs = {schema.label.name, *(f.name for f in schema.features if not f.is_input)}
    declared = {entry.name: entry for f in schema.inputs for entry in _declared(f, output)}
    weights = {e.weights for e in declared.values() if isinstance(e, Ids) and e.name in spec and _fits(e, spec)}
    # Inputs stand in the order of the schema. Features that only the custom transform declares follow them, except
    # features that hold the weights of ids.
    ordered = [name for name in declared if name in spec] + [n for n in spec if n not in {*declared, *weights}]
    inputs = tuple(
        declared[name] if name in declared and _fits(declared[name], spec) else _undeclared(name, spec, output)
        for name in ordered
        if name not in not_inputs
    )
    if not inputs:
        raise MillraceError(f"{dataset.run_dir}: the transformed records contain no feature that a model can read")
    weight = schema.weight.name if schema.weight else None
    return TaskSpec(inputs, schema.label.name, _classes(dataset, output), weight, max_steps, label or AS_IT_IS)


def _classes(dataset: OpenDataset, output: tft.TFTransformOutput) -> int | None:
    """Returns the number of classes of the label; None if it is a number."""
    label = dataset.schema.label
    if not isinstance(label, CategoryLabel):
        return None
    count = len(label.values) if label.values is not None else int(output.vocabulary_size_by_name(label.name))
    if count < 2:
        raise MillraceError(f"{dataset.run_dir}: the label {label.name!r} has {count} class in the train split")
    return count


def _declared(feature: Feature, output: tft.TFTransformOutput) -> tuple[Input, ...]:
    """Returns the model inputs that a feature of the schema becomes."""
    if feature.vocabulary is None:
        return feature.inputs(0)
    if output.vocabulary_file_by_name(feature.name) is None:
        return ()  # a custom preprocessing_fn made no ids of it
    return feature.inputs(int(output.vocabulary_size_by_name(feature.name)))


def _fits(declared: Input, specs: dict[str, Any]) -> bool:
    """Returns whether the transformed records hold a feature in the form that the schema implies."""
    kind, spec = "float32" if isinstance(declared, Dense) else "int64", specs[declared.name]
    shape = getattr(spec, "shape", None)
    if isinstance(declared, Ids) and declared.length is None:
        weighted = declared.weights is None or declared.weights in specs
        return spec.dtype.name == kind and shape is None and weighted
    length = declared.width if isinstance(declared, Dense) else declared.length
    return spec.dtype.name == kind and shape is not None and math.prod(shape) == length


def _undeclared(name: str, spec: dict[str, Any], output: tft.TFTransformOutput) -> Input:
    """Returns the model input for a feature that a custom `preprocessing_fn` made."""
    entry = spec[name]
    shape = getattr(entry, "shape", None)
    if entry.dtype.name == "float32" and shape is not None:
        return Dense(name, math.prod(shape))
    # A transform declares the range of ids as the feature's int_domain in its metadata.
    domain = next((f.int_domain for f in output.transformed_metadata.schema.feature if f.name == name), None)
    if entry.dtype.name == "int64" and domain is not None and domain.max > 0 and domain.min >= 0:
        return Ids(name, int(domain.max) + 1, None if shape is None else math.prod(shape), positional=bool(shape))
    form = f"{entry.dtype.name}, {'sparse' if shape is None else list(shape)}"
    raise MillraceError(
        f"the transformed feature {name!r} ({form}) is neither dense float32 nor int64 ids with a declared range "
        "(tft.compute_and_apply_vocabulary and tft.bucketize declare one). Change the preprocessing_fn."
    )


__all__ = [
    "AS_IT_IS",
    "AnyTaskSpec",
    "Dense",
    "Ids",
    "Input",
    "LabelScale",
    "TaskSpec",
    "read_image_task_spec",
    "read_table_task_spec",
    "read_task_spec",
]
