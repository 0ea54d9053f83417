"""`boosted_trees`: trees that LightGBM has grown, computed by gathers in a plain TensorFlow graph.

`trainer.loop.boosting` grows the trees and saves them as the variables of a checkpoint, whose shapes are those of the
trees; a graph with variables of unknown shape takes any of them. Nothing here needs LightGBM.

What a row takes in a tree follows LightGBM's `Tree::NumericalDecision` and `Tree::CategoricalDecision`:

* A number goes left if x <= threshold. Features are float32 and LightGBM's thresholds are float64, so a threshold is
  rounded down: x <= t as before for each x of float32.
* A number whose magnitude is at most 1e-35 is 0.
* NaN goes where the split sends missing values, or counts as 0 where the feature had none in training.
* A category goes left if it is in the split's set; an unseen or a missing one goes right.

Leaf values are float64, and their sum is the raw score: a logit, or the label's value.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from schemas.errors import MillraceError, UsageError
from trainer.estimator import tf_estimator
from trainer.models.canned import NUMBERS, head, multi_hot, prepare
from trainer.spec.task_spec import Dense, Ids, Input, TaskSpec

ZERO = np.float32(1e-35)  # LightGBM's kZeroThreshold
UNSEEN = 1 << 24  # an id above all others: float32 tells no larger ones apart
CELL_BYTES = 32  # about what a row takes for each test and for each tree
CHUNK_BYTES = 4 << 20  # of rows whose scores are computed at once: what a core's cache holds


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of the table that trees are grown on: numbers and buckets, then categories, then counts of ids.

    An input that holds lists of ids (a text, or a bag of ids) has a column for each of its first `list_limit` ids: how
    often it occurs. Ids of vocabularies are in the order of their frequency. Crosses are left out, which trees find
    themselves, unless a dataset has nothing else.
    """

    inputs: tuple[Input, ...]
    list_limit: int

    @classmethod
    def of(cls, inputs: Sequence[Input], list_limit: int) -> Columns:
        """Returns the columns of a model's inputs."""
        entries = tuple(entry for entry in inputs if not (isinstance(entry, Ids) and entry.crossed))
        return cls(entries or tuple(inputs), list_limit)

    @property
    def numbers(self) -> int:
        """How many columns of numbers and of buckets there are; they come first."""
        return sum(entry.width for entry in self._of("numbers")) + _width(self._of("buckets"))

    @property
    def categories(self) -> range:
        """The places of the columns that hold a category's id."""
        return range(self.numbers, self.numbers + _width(self._of("categories")))

    @property
    def count(self) -> int:
        """How many columns there are."""
        return self.categories.stop + sum(min(entry.count, self.list_limit) for entry in self._of("lists"))

    def table(self, features: Mapping[str, Any]) -> tf.Tensor:
        """Returns a batch's features as a table, float32 `[batch, count]`, the same in training and in serving."""
        numbers = self._of("numbers")
        parts = [prepare(features, numbers)[NUMBERS]] if numbers else []
        single = self._of("buckets") + self._of("categories")
        ids = [tf.reshape(features[entry.name], [-1, entry.length or 1]) for entry in single]
        if ids:
            parts.append(tf.cast(tf.concat(ids, axis=1), tf.float32))
        parts += [_counts(features, entry, self.list_limit) for entry in self._of("lists")]
        return tf.concat(parts, axis=1)

    def _of(self, kind: str) -> list[Any]:
        return [entry for entry in self.inputs if _kind_of(entry) == kind]


def _kind_of(entry: Input) -> str:
    """The kind of an input's columns."""
    if isinstance(entry, Dense):
        return "numbers"
    if entry.length == 1 or entry.positional:  # each position holds one id of its own kind
        return "buckets" if entry.ordered else "categories"
    return "lists"


def _width(entries: Sequence[Ids]) -> int:
    return sum(entry.length or 1 for entry in entries)


def _counts(features: Mapping[str, Any], entry: Ids, limit: int) -> tf.Tensor:
    """How often each of the first ids occurs in each row's list, or its weight there, float32 `[batch, ids]`."""
    ids, width = features[entry.name], min(entry.count, limit)
    if not isinstance(ids, tf.SparseTensor):  # a text, padded with 0
        ids = tf.reshape(ids, [-1, entry.length])
        return multi_hot(tf.where((ids == 0) | (ids >= width), tf.constant(-1, tf.int64), ids), width)
    cells = tf.where(ids.values < width, ids.indices[:, 0] * width + ids.values, tf.constant(-1, tf.int64))
    weights = features[entry.weights].values if entry.weights else tf.ones_like(cells, tf.float32)
    return tf.reshape(tf.math.unsorted_segment_sum(weights, cells, ids.dense_shape[0] * width), [-1, width])


@dataclasses.dataclass(frozen=True)
class Trees:
    """Grown trees: NumPy arrays, or tensors.

    A row is tested once for all trees. A test is a number, which is -inf for NaN where the split sends that left, or
    for a category 0 if it is in a set and 1 if not; the first test is 0. A node sends a row left if a test is at most
    its threshold, which NaN is not.

    Attributes:
      nodes: int32 `[nodes, 3]`: the place of the test, that of the left child, after which comes the right one, and the
        bits of the float32 threshold. A leaf takes the first test, and is its own left child.
      values: float64 `[nodes]`: those of leaves.
      roots: int32 `[rounds, trees a round]`: the places of the roots.
      depth: int32 `[]`: the most decisions on a way to a leaf.
      numbers: int32 `[n]`: the columns of the tests that are numbers.
      fills: float32 `[n]`: what such a test takes for NaN.
      sets: int32 `[m, 3]`: the columns of the tests for sets, and the first word and the number of words of each set.
      words: int32 `[words]`: bits of the categories, by id, which are 0 if a category is in the set; each set's last
        word has no bit that is 0.
    """

    nodes: Any
    values: Any
    roots: Any
    depth: Any
    numbers: Any
    fills: Any
    sets: Any
    words: Any

    @property
    def rounds(self) -> int:
        """How many rounds of boosting there are."""
        return int(self.roots.shape[0])


_SHAPES: Mapping[str, tuple[Any, tuple[int | None, ...]]] = {
    "nodes": (tf.int32, (None, 3)),
    "values": (tf.float64, (None,)),
    "roots": (tf.int32, (None, None)),
    "depth": (tf.int32, ()),
    "numbers": (tf.int32, (None,)),
    "fills": (tf.float32, (None,)),
    "sets": (tf.int32, (None, 3)),
    "words": (tf.int32, (None,)),
}
_SCOPE = "boosted_trees"


def trees_of(model: str) -> Trees:
    """Returns the trees of a model in LightGBM's text format.

    Raises:
      MillraceError: the format is not as expected: another release of LightGBM has written it.
    """
    header, *sections = model.partition("\nend of trees")[0].split("\nTree=")
    collected = _Collected()
    try:
        per_round = int(_fields(header)["num_tree_per_iteration"])
        roots = [collected.add(_fields(section)) for section in sections]
    except (KeyError, ValueError, IndexError) as error:
        raise MillraceError(
            f"LightGBM's model cannot be read ({type(error).__name__}: {error}): install the release that "
            "constraints.txt names"
        ) from error
    nodes = np.concatenate(collected.nodes)
    of_set = nodes[:, 0] < 0  # counted from -1 down, until the number of other tests is known
    nodes[of_set, 0] = len(collected.tests) - nodes[of_set, 0]
    return Trees(
        nodes=nodes,
        values=np.concatenate(collected.values),
        roots=np.array(roots, np.int32).reshape(-1, per_round),
        depth=np.array(collected.depth, np.int32),
        numbers=np.array([column for column, _ in collected.tests], np.int32),
        fills=np.array([_FILLS[left] for _, left in collected.tests], np.float32),
        sets=np.array(collected.sets, np.int32).reshape(-1, 3),
        words=~np.array(collected.words, np.uint32).view(np.int32),
    )


_FILLS = {None: 0.0, True: -np.inf, False: np.nan}


def _fields(section: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in section.splitlines() if "=" in line)


class _Collected:
    """The parts of `Trees`, of the trees that were added.

    The children of split i of a tree are 1 + 2i and 2 + 2i places after its root.

    Attributes:
      tests: the place of each number that splits compare, by its column, and whether NaN goes left; None: NaN is 0.
      sets, words: of all splits by categories. A node with such a test has -1 for the first set, -2 for the second one.
    """

    def __init__(self) -> None:
        self.nodes: list[np.ndarray] = []
        self.values: list[np.ndarray] = []
        self.tests: dict[tuple[int, bool | None], int] = {}
        self.sets: list[tuple[int, int, int]] = []
        self.words: list[int] = []
        self.depth = 0

    def add(self, fields: Mapping[str, str]) -> int:
        """Adds a tree. Returns the place of its root."""

        def array(name: str, kind: Any) -> np.ndarray:
            return np.array(fields[name].split(), kind) if splits else np.empty(0, kind)

        splits, root = int(fields["num_leaves"]) - 1, sum(map(len, self.nodes))
        if int(fields.get("is_linear", 0)):
            raise ValueError("a tree with linear leaves")
        children = np.stack([array("left_child", np.int32), array("right_child", np.int32)], axis=1)
        flat, leaves = children.ravel(), np.array(fields["leaf_value"].split(), np.float64)
        places = np.zeros(splits, np.int64)  # of splits; that of the first one is the root
        places[flat[flat >= 0]] = 1 + np.flatnonzero(flat >= 0)
        values = np.zeros(1 + 2 * splits)
        values[1:][flat < 0] = leaves[~flat[flat < 0]]
        nodes = np.zeros((1 + 2 * splits, 3), np.int32)
        nodes[:, 1] = root + np.arange(len(nodes))  # a leaf is its own child
        nodes[places, 1] = root + 1 + 2 * np.arange(splits)
        bounds, thresholds = np.full(len(nodes), np.inf, np.float32), array("threshold", np.float64)
        decisions = array("decision_type", np.int32)
        bounds[places] = np.where(decisions & 1, np.float32(0.5), round_down(thresholds))
        nodes[:, 2] = bounds.view(np.int32)
        words, ends = ([int(x) for x in fields.get(name, "").split()] for name in ("cat_threshold", "cat_boundaries"))
        for place, column, decision, which in zip(
            places, array("split_feature", np.int32), decisions, thresholds, strict=True
        ):
            if decision & 1:
                nodes[place, 0] = self._set(int(column), words[ends[int(which)] : ends[int(which) + 1]])
            else:
                nodes[place, 0] = self._number(int(column), int(decision))
        self.nodes.append(nodes)
        self.values.append(values if splits else leaves[:1].copy())
        self.depth = max(self.depth, _depth(children))
        return root

    def _number(self, column: int, decision: int) -> int:
        missing, left = decision >> 2 & 3, bool(decision & 2)
        if missing == 1:
            raise ValueError("a split that takes zeros for missing values")
        return self.tests.setdefault((column, left if missing else None), 1 + len(self.tests))

    def _set(self, column: int, words: Sequence[int]) -> int:
        self.sets.append((column, len(self.words), len(words)))
        self.words += [*words, 0]  # the last one stands for the ids beyond
        return -len(self.sets)


def _depth(children: np.ndarray) -> int:
    """The most decisions on a way to a leaf, of the children of each split, `[splits, 2]`; leaves are negative."""
    level, depth = np.arange(min(1, len(children))), 0
    while len(level):
        level, depth = children[level], depth + 1
        level = level[level >= 0]
    return depth


def round_down(thresholds: np.ndarray) -> np.ndarray:
    """Returns the largest float32 that is not above each float64."""
    with np.errstate(over="ignore"):
        near = thresholds.astype(np.float32)
        return np.where(near > thresholds, np.nextafter(near, np.float32(-np.inf)), near)


def scores(trees: Trees, table: tf.Tensor) -> tf.Tensor:
    """Returns the raw scores of rows, computed in chunks: the tests of all rows at once may take much memory.

    Args:
      trees: arrays or tensors.
      table: float32 `[batch, columns]`.

    Returns:
      float64 `[batch, trees a round]`.
    """
    (rows, columns), (rounds, trees_per_round) = tf.unstack(tf.shape(table)), tf.unstack(tf.shape(trees.roots))
    cells = 1 + tf.size(trees.numbers) + tf.shape(trees.sets)[0] + rounds * trees_per_round
    chunks = 1 + rows // (1 + CHUNK_BYTES // CELL_BYTES // cells)
    size = (rows + chunks - 1) // chunks
    padded = tf.pad(table, [[0, chunks * size - rows], [0, 0]])
    chunk_scores = tf.map_fn(
        functools.partial(_scores, trees),
        tf.reshape(padded, [chunks, size, columns]),
        fn_output_signature=tf.TensorSpec([None, None], tf.float64),
        parallel_iterations=1,
    )
    return tf.reshape(chunk_scores, [-1, trees_per_round])[:rows]


def _scores(trees: Trees, table: tf.Tensor) -> tf.Tensor:
    """`scores` of a chunk of the rows."""
    table = tf.where(tf.abs(table) <= ZERO, 0.0, table)
    numbers = tf.gather(table, trees.numbers, axis=1)
    numbers = tf.where(tf.math.is_nan(numbers), trees.fills, numbers)
    tests = tf.concat([tf.zeros_like(table[:, :1]), numbers, _outside(trees, table)], axis=1)
    nodes, roots = tf.convert_to_tensor(trees.nodes), tf.convert_to_tensor(trees.roots)

    def decide(level: tf.Tensor, places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        node = tf.gather(nodes, places)
        values = tf.gather(tests, node[..., 0], axis=1, batch_dims=1)
        left = values <= tf.bitcast(node[..., 2], tf.float32)
        # Not `values > ...`, which is false for NaN, nor `~left`, of which TensorFlow's graph optimizer makes that.
        return level + 1, node[..., 1] + (1 - tf.cast(left, tf.int32))

    places = tf.tile(tf.reshape(roots, [1, -1]), [tf.shape(table)[0], 1])
    _, leaves = tf.while_loop(
        lambda level, _: level < trees.depth, decide, (tf.constant(0), places), parallel_iterations=1
    )
    values = tf.reshape(tf.gather(trees.values, leaves), tf.concat([[-1], tf.shape(roots)], axis=0))
    return tf.reduce_sum(values, axis=1)


def _outside(trees: Trees, table: tf.Tensor) -> tf.Tensor:
    """Whether each row's category is outside of each set, float32 `[batch, sets]`, 0 or 1."""
    sets = tf.convert_to_tensor(trees.sets)
    ids = tf.cast(tf.where((table > -1) & (table < UNSEEN), table, UNSEEN), tf.int32)  # of numbers, too: those are few
    ids = tf.minimum(tf.gather(ids, sets[:, 0], axis=1), 32 * sets[:, 2])  # a bit of the set's last word
    words = tf.gather(trees.words, sets[:, 1] + tf.bitwise.right_shift(ids, 5))
    outside = tf.bitwise.right_shift(words, tf.bitwise.bitwise_and(ids, 31))
    return tf.cast(tf.bitwise.bitwise_and(outside, 1), tf.float32)


def restored() -> Trees:
    """Returns the values of variables of the default graph, which a checkpoint gives their values and their shapes."""
    with tf.name_scope(_SCOPE):
        variables = {
            name: tf.Variable(tf.zeros([n or 0 for n in shape], kind), shape=shape, trainable=False, name=name)
            for name, (kind, shape) in _SHAPES.items()
        }
    return Trees(**{name: tf.convert_to_tensor(variable) for name, variable in variables.items()})


def save(trees: Trees, model_dir: str) -> str:
    """Writes a checkpoint with the trees, whose step is their number of rounds. Returns its name."""
    values = {f"{_SCOPE}/{name}": getattr(trees, name) for name in _SHAPES}
    values["global_step"] = np.array(trees.rounds, np.int64)
    name = f"model.ckpt-{trees.rounds}"
    path = f"{model_dir.rstrip('/')}/{name}"
    with tf.init_scope():
        tf.raw_ops.SaveV2(
            prefix=path, tensor_names=[*values], shape_and_slices=[""] * len(values), tensors=[*values.values()]
        )
    return name


def model_fn(features: Mapping[str, Any], labels: tf.Tensor | None, mode: str, params: Mapping[str, Any]) -> Any:
    """Builds the trees of a checkpoint, for evaluation and prediction, with the loss and metrics of the canned models.

    Raises:
      UsageError: it is to be trained step by step.
    """
    if mode == tf_estimator.ModeKeys.TRAIN:
        raise UsageError("model 'boosted_trees' is grown by LightGBM and makes no training steps")
    task_spec: TaskSpec = params["task_spec"]
    table = Columns.of(task_spec.inputs, params["list_limit"]).table(features)
    logits = tf.cast(scores(restored(), table), tf.float32)
    logits = tf.ensure_shape(logits, [None, 1 if task_spec.classes in (None, 2) else task_spec.classes])
    scale = task_spec.scale.model_copy(update={"priors": ()})  # which the scores hold
    of_scores = head(dataclasses.replace(task_spec, scale=scale), mode)
    return of_scores.create_estimator_spec(features=features, mode=mode, labels=labels, logits=logits)
