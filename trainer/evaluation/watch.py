"""Measures an evaluation: takes in its predictions, gives Estimator its metrics, and draws pictures for TensorBoard.

Terminal, files, TensorBoard and the report so have the metrics of one computation. Pictures are left out while they
would take too much of a training's time.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from schemas.dataset import Dataset
from schemas.exports.model import CLASS_ID, PROBABILITIES, VALUE
from trainer.data.labels import positive_class
from trainer.evaluation.metrics import OF_POSITIVE_CLASS, evaluation_metrics, summary_content
from trainer.evaluation.page import all_pictures
from trainer.evaluation.predictions import ClassCollector, ValueCollector
from trainer.export.outputs import classes_of
from trainer.export.receivers import weight_name
from trainer.images.hooks import (
    EvaluationHook,
    image_value,
    name_split,
    summary_folder,
    summary_writer,
    table,
    text_value,
)

SHARE = 0.05  # of the time since the training began
AHEAD = 1.0  # seconds: a short training draws its last pictures only


class Budget:
    """Seconds that may be spent: a share of those since the budget was made, from which `AHEAD` are taken at once."""

    def __init__(self, share: float = SHARE, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._begun = clock()
        self._spent = AHEAD

    @property
    def allows(self) -> bool:
        """Whether more may be spent now."""
        return self._spent <= self._share * (self._clock() - self._begun)

    @contextlib.contextmanager
    def spend(self) -> Iterator[None]:
        """Counts the time of its block."""
        before = self._clock()
        try:
            yield
        finally:
            self._spent += self._clock() - before


AnyCollector = ClassCollector | ValueCollector
Summary = tf.compat.v1.Summary
DESCRIPTIONS = {"confusion_matrix": "rows: true; columns: predicted"}
TABLE_CLASSES = 50  # with more, a table of the classes is no reading in TensorBoard


def new_collector(dataset: Dataset, class_weights: Sequence[float] = ()) -> AnyCollector:
    """An empty collector for the predictions of a dataset's models."""
    names = classes_of(dataset)
    return ClassCollector(names, class_weights, positive=positive_class(dataset, names)) if names else ValueCollector()


def add_batch(collector: AnyCollector, batch: Mapping[str, np.ndarray]) -> None:
    """Adds `labels`, the predictions as `with_keys_and_classes` names them, and `weights` if there are any."""
    weights = batch.get("weights")
    if isinstance(collector, ClassCollector):
        collector.add(batch["labels"], batch[PROBABILITIES], weights, batch[CLASS_ID])
    else:
        collector.add(batch["labels"], batch[VALUE], weights)


class Watch:
    """Takes in the predictions of each evaluation, and measures them; `last` is those of the last one.

    Args:
      dataset: whose models are evaluated.
      model_dir: where TensorBoard finds what is drawn.
      budget: of drawing.
      class_weights: those of the training.

    Attributes:
      last: None before the first evaluation, and where the model gives no predictions in EVAL.
    """

    def __init__(self, dataset: Dataset, model_dir: str, budget: Budget, class_weights: Sequence[float] = ()) -> None:
        self.dataset = dataset
        self.class_weights = class_weights
        self.model_dir = model_dir
        self.budget = budget
        self.last: AnyCollector | None = None

    @functools.cached_property
    def _empty(self) -> AnyCollector:
        return new_collector(self.dataset, self.class_weights)

    def new_collector(self) -> AnyCollector:
        """An empty collector for an evaluation."""
        return copy.deepcopy(self._empty)

    @property
    def positive_class(self) -> str | None:
        """The name of the class that binary metrics are of; None where the label has not two classes."""
        empty = self._empty
        return empty.names[empty.positive] if isinstance(empty, ClassCollector) and empty.binary else None

    def __call__(self, features: Any, labels: Any, predictions: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The hooks of an evaluation's graph, and its `eval_metric_ops`.

        Args:
          features: those of a batch, the weight among them.
          labels: those of a batch, `[batch]`.
          predictions: as `trainer.export.outputs` names them.
        """
        asked = {name: predictions[name] for name in (PROBABILITIES, CLASS_ID, VALUE) if name in predictions}
        weight = weight_name(self.dataset)
        if weight is not None and isinstance(features, Mapping) and weight in features:
            asked["weights"] = features[weight]
        hook = _PredictionsHook(self, {"labels": labels, **asked})
        return [hook], hook.metrics()


class _PredictionsHook(EvaluationHook):
    """Takes in labels, predictions and weights by name, and writes what they show for TensorBoard."""

    def __init__(self, watch: Watch, asked: dict[str, tf.Tensor]) -> None:
        super().__init__(watch.model_dir, asked)
        self._watch = watch
        self.start()

    def start(self) -> None:
        self._collector = self._watch.new_collector()
        self._content: dict[str, Any] | None = None

    def add(self, batch: dict[str, np.ndarray]) -> None:
        add_batch(self._collector, batch)

    def metrics(self) -> dict[str, Any]:
        """`eval_metric_ops` of all that was taken in: ops that ask for it when the evaluation ends."""
        names = list(self._measured())
        found = tf.numpy_function(lambda: np.array([*self._measured().values()]), [], tf.float64)
        found.set_shape([len(names)])
        return {name: (found[place], tf.no_op()) for place, name in enumerate(names)}

    def _measured(self) -> dict[str, float]:
        return evaluation_metrics(self._collector, self._summary())

    def _summary(self) -> dict[str, Any]:
        """What is measured once, for the metrics and the pictures."""
        if self._content is None:
            with self._watch.budget.spend():
                self._content = summary_content(self._collector)
        return self._content

    def values(self) -> list[Any]:
        self._watch.last, budget = self._collector, self._watch.budget
        drawn, content = budget.allows, self._summary()
        with budget.spend():
            pngs = {name: chart.png() for name, chart in all_pictures(content).items()} if drawn else {}
            return summaries(content, pngs)


def summaries(content: Mapping[str, Any], pngs: Mapping[str, bytes]) -> list[Any]:
    """Metrics, a table of the classes, and pictures, for TensorBoard."""
    values = [
        Summary.Value(tag=f"report/{name}", simple_value=value)
        for name, value in content["metrics"].items()
        if value is not None
    ]
    if "positive_class" in content:
        positive = next(row for row in content["classes"] if row["class"] == content["positive_class"])
        of_class = {**content["metrics"], **positive}
        for name in OF_POSITIVE_CLASS:
            if of_class.get(name) is not None:
                values.append(
                    Summary.Value(tag=f"report/{name} of {content['positive_class']}", simple_value=of_class[name])
                )
    classes = content.get("classes", ())
    if classes and len(classes) <= TABLE_CLASSES:
        rows = [
            (_plain(c["class"]), f"{c['support']:g}", *(_rounded(c[n]) for n in ("precision", "recall")))
            for c in classes
        ]
        values.append(text_value("classes", table(("class", "support", "precision", "recall"), rows)))
    for name, chart in all_pictures(content).items():
        if name in pngs:
            values.append(image_value(name, pngs[name], chart.pixels, DESCRIPTIONS.get(name, "")))
    return values


def write_summaries(
    model_dir: str, split: str, step: int, content: Mapping[str, Any], pngs: Mapping[str, bytes]
) -> None:
    """Writes a report for TensorBoard, whatever was written of its pictures during the training."""
    shown = {**content, "learning_curves": {}}  # TensorBoard has its own
    with tf.Graph().as_default():
        name_split(split)
        writer = summary_writer(summary_folder(model_dir))
        writer.add_summary(Summary(value=summaries(shown, pngs)), step)
        writer.flush()


def _rounded(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _plain(name: str) -> str:
    """A name that is no Markdown."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>()#+-.!|" else c for c in name)
