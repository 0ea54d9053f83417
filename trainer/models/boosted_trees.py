"""`boosted_trees`: evaluates trees that LightGBM has grown, as a plain TensorFlow graph.

`trainer.loop.boosting` grows the trees and saves them as the variables of a checkpoint. The shapes of these variables
depend on the trees, so the graph declares variables of unknown shape, which can hold any trees. This module does not
need LightGBM.

The path of a row through a tree follows LightGBM's `Tree::NumericalDecision` and `Tree::CategoricalDecision`:

* A number x goes left if x <= threshold. Features are float32, but LightGBM's thresholds are float64. A threshold is
  therefore rounded down to float32, which leaves the result of the comparison the same for every float32 x.
* A number whose magnitude is at most 1e-35 counts as 0.
* NaN goes to the side to which the split sends missing values. If the feature had no missing values in training, NaN
  counts as 0.
* A category goes left if it is in the split's set. An unseen or missing category goes right.

The values of leaves are float64, and the sum of a row's leaves is the raw score: a logit, or the label's value.
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
UNSEEN = 1 << 24  # an id above all others; float32 cannot represent every larger integer
CELL_BYTES = 32  # the assumed memory of a row for each test and for each tree
CHUNK_BYTES = 4 << 20  # the memory of rows that are scored at once: it fits in a core's cache


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of the table that trees are grown on: first numbers and buckets, then categories, then counts of ids.

    An input that holds lists of ids (a text, or a bag of ids) has one column for each of its first `list_limit` ids:
    how often the id occurs in the row. The ids of a vocabulary are sorted by frequency, so the first ids are the most
    frequent. Crosses are left out, because trees combine features by themselves, unless the dataset has only crosses.

    Attributes:
      inputs: the model's inputs that become columns.
      list_limit: the most columns for an input that holds lists of ids.
    """

    inputs: tuple[Input, ...]
    list_limit: int

    @classmethod
    def of(cls, inputs: Sequence[Input], list_limit: int) -> Columns:
        """Returns the columns for a model's inputs; leaves out crosses unless there are only crosses."""
        entries = tuple(entry for entry in inputs if not (isinstance(entry, Ids) and entry.crossed))
        return cls(entries or tuple(inputs), list_limit)

    @property
    def numbers(self) -> int:
        """The number of columns that hold numbers or buckets. These columns come first."""
        return sum(entry.width for entry in self._of("numbers")) + _width(self._of("buckets"))

    @property
    def categories(self) -> range:
        """The indices of the columns that hold a category's id."""
        return range(self.numbers, self.numbers + _width(self._of("categories")))

    @property
    def count(self) -> int:
        """The number of columns."""
        return self.categories.stop + sum(min(entry.count, self.list_limit) for entry in self._of("lists"))

    def table(self, features: Mapping[str, Any]) -> tf.Tensor:
        """Returns a batch's features as a table, float32 `[batch, count]`, in training and in serving."""
        numbers = self._of("numbers")
        parts = [prepare(features, numbers)[NUMBERS]] if numbers else []
        single = self._of("buckets") + self._of("categories")
        ids = [tf.reshape(features[entry.name], [-1, entry.length or 1]) for entry in single]
        if ids:
            parts.append(tf.cast(tf.concat(ids, axis=1), tf.float32))
        parts += [_counts(features, entry, self.list_limit) for entry in self._of("lists")]
        return tf.concat(parts, axis=1)

    def _of(self, kind: str) -> list[Any]:
        """Returns the inputs of one kind: numbers, buckets, categories or lists."""
        return [entry for entry in self.inputs if _kind_of(entry) == kind]


def _kind_of(entry: Input) -> str:
    """Returns the kind of columns that an input becomes: numbers, buckets, categories or lists."""
    if isinstance(entry, Dense):
        return "numbers"
    if entry.length == 1 or entry.positional:  # each position has a vocabulary of its own
        return "buckets" if entry.ordered else "categories"
    return "lists"


def _width(entries: Sequence[Ids]) -> int:
    """Returns how many columns single ids take together: one for each position."""
    return sum(entry.length or 1 for entry in entries)


def _counts(features: Mapping[str, Any], entry: Ids, limit: int) -> tf.Tensor:
    """Counts how often each of an input's first ids occurs in each row, float32 `[batch, ids]`.

    If the ids have weights, their weights are summed instead.
    """
    ids, width = features[entry.name], min(entry.count, limit)
    if not isinstance(ids, tf.SparseTensor):  # a text, padded with 0
        ids = tf.reshape(ids, [-1, entry.length])
        return multi_hot(tf.where((ids == 0) | (ids >= width), tf.constant(-1, tf.int64), ids), width)
    # Each pair of row and id is a cell of the flattened table. Other ids become -1, which unsorted_segment_sum ignores.
    cells = tf.where(ids.values < width, ids.indices[:, 0] * width + ids.values, tf.constant(-1, tf.int64))
    weights = features[entry.weights].values if entry.weights else tf.ones_like(cells, tf.float32)
    return tf.reshape(tf.math.unsorted_segment_sum(weights, cells, ids.dense_shape[0] * width), [-1, width])


@dataclasses.dataclass(frozen=True)
class Trees:
    """Grown trees, as NumPy arrays or tensors.

    First, the tests of all trees are computed once for each row. A test is a float. There are three kinds:

    * test 0 is always 0, and is used by leaves;
    * a number's test is the number itself. NaN becomes -inf if the split sends NaN to the left, and 0 if NaN counts as
      0;
    * a test for a set of categories is 0 if the row's category is in the set, and 1 if it is not.

    Then each tree is walked from its root. A node sends a row to the left child if the node's test is at most its
    threshold, else to the right child. NaN is never at most a threshold, so NaN goes right.

    Attributes:
      nodes: int32 `[nodes, 3]`: the index of the node's test, the index of the left child (the right child follows the
        left one), and the bits of the float32 threshold. A leaf uses test 0 and is its own left child.
      values: float64 `[nodes]`: the values of leaves; 0 for other nodes.
      roots: int32 `[rounds, trees per round]`: the node indices of the roots.
      depth: int32 `[]`: the largest number of decisions between a root and a leaf.
      numbers: int32 `[n]`: the columns of the tests that are numbers.
      fills: float32 `[n]`: the value that replaces NaN in such a test.
      sets: int32 `[m, 3]`: for each test for a set: the column, the index of the set's first word, and the number of
        words.
      words: int32 `[words]`: bit sets. Bit i of a set is 0 if the category with id i is in the set, else 1. All bits of
        the last word of a set are 1; ids beyond the set are looked up there.
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
        """The number of rounds of boosting."""
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
    """Parses a model in LightGBM's text format.

    Args:
      model: the text that LightGBM's `Booster.model_to_string` returns.

    Raises:
      MillraceError: the format is not as expected, because another release of LightGBM has written it.
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
    # Tests for sets come after all tests of numbers. While trees are collected, the number of the latter is not known
    # yet, and the sets are counted as -1, -2 and so on. `tests` counts from 1, so set -1 becomes len(tests) + 1.
    of_set = nodes[:, 0] < 0
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
    """Returns the `name=value` lines of a section."""
    return dict(line.partition("=")[::2] for line in section.splitlines() if "=" in line)


class _Collected:
    """The parts of `Trees`, collected tree by tree.

    The nodes of a tree are stored in a row, from its root. The children of split i lie 1 + 2i and 2 + 2i places after
    the root.

    Attributes:
      tests: the index of each test of a number. Its key is the number's column, and whether NaN goes left (None: NaN
        counts as 0).
      sets: column, first word and number of words of all splits by categories. A node with such a split refers to set k
        (from 0) by -(k + 1).
      words: the words of all sets, with bit i set for a category in the set, as in LightGBM.
    """

    def __init__(self) -> None:
        self.nodes: list[np.ndarray] = []
        self.values: list[np.ndarray] = []
        self.tests: dict[tuple[int, bool | None], int] = {}
        self.sets: list[tuple[int, int, int]] = []
        self.words: list[int] = []
        self.depth = 0

    def add(self, fields: Mapping[str, str]) -> int:
        """Adds a tree, given by the fields of its section in LightGBM's text. Returns the node index of its root."""

        def array(name: str, kind: Any) -> np.ndarray:
            return np.array(fields[name].split(), kind) if splits else np.empty(0, kind)

        splits, root = int(fields["num_leaves"]) - 1, sum(map(len, self.nodes))
        if int(fields.get("is_linear", 0)):
            raise ValueError("a tree with linear leaves")
        children = np.stack([array("left_child", np.int32), array("right_child", np.int32)], axis=1)
        flat, leaves = children.ravel(), np.array(fields["leaf_value"].split(), np.float64)
        # Children are numbered row by row, so the k-th entry of `flat` is the node k + 1 places after the root. In
        # LightGBM's format, an entry >= 0 is the number of a split, and an entry < 0 is the bitwise complement of a
        # leaf's number.
        places = np.zeros(splits, np.int64)  # the index of each split's node, from the root; split 0 is the root
        places[flat[flat >= 0]] = 1 + np.flatnonzero(flat >= 0)
        values = np.zeros(1 + 2 * splits)
        values[1:][flat < 0] = leaves[~flat[flat < 0]]
        nodes = np.zeros((1 + 2 * splits, 3), np.int32)
        nodes[:, 1] = root + np.arange(len(nodes))  # a leaf is its own child
        nodes[places, 1] = root + 1 + 2 * np.arange(splits)
        bounds, thresholds = np.full(len(nodes), np.inf, np.float32), array("threshold", np.float64)
        decisions = array("decision_type", np.int32)
        # Bit 0 of LightGBM's decision type marks a split by categories: its test is 0 or 1, so its threshold is 0.5.
        bounds[places] = np.where(decisions & 1, np.float32(0.5), round_down(thresholds))
        nodes[:, 2] = bounds.view(np.int32)
        words, ends = ([int(x) for x in fields.get(name, "").split()] for name in ("cat_threshold", "cat_boundaries"))
        # For a split by categories, LightGBM's threshold is the number of the set; `cat_boundaries` delimits its words.
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
        """Returns the index of a number's test.

        In LightGBM's decision type, bit 1 sends missing values left. Bits 2-3 tell what counts as missing: 0 nothing, 1
        zeros, 2 NaN.
        """
        missing, left = decision >> 2 & 3, bool(decision & 2)
        if missing == 1:
            raise ValueError("a split that takes zeros for missing values")
        return self.tests.setdefault((column, left if missing else None), 1 + len(self.tests))

    def _set(self, column: int, words: Sequence[int]) -> int:
        """Adds the set of a split by categories. Returns its reference: -1 for the first set, -2 for the second."""
        self.sets.append((column, len(self.words), len(words)))
        self.words += [*words, 0]  # the last word is for ids beyond the set
        return -len(self.sets)


def _depth(children: np.ndarray) -> int:
    """Returns the largest number of decisions to a leaf.

    Args:
      children: int `[splits, 2]`: the children of each split: a split's number, or a negative number for a leaf.
    """
    level, depth = np.arange(min(1, len(children))), 0
    while len(level):
        level, depth = children[level], depth + 1
        level = level[level >= 0]
    return depth


def round_down(thresholds: np.ndarray) -> np.ndarray:
    """Returns, for each float64, the largest float32 that is at most as large."""
    with np.errstate(over="ignore"):
        near = thresholds.astype(np.float32)
        return np.where(near > thresholds, np.nextafter(near, np.float32(-np.inf)), near)


def scores(trees: Trees, table: tf.Tensor) -> tf.Tensor:
    """Computes the raw scores of rows.

    The rows are processed in chunks, because the tests of all rows at once could take much memory. The last chunk is
    padded with rows of zeros, whose scores are dropped.

    Args:
      trees: arrays or tensors.
      table: float32 `[batch, columns]`, from `Columns.table`.

    Returns:
      float64 `[batch, trees per round]`.
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
    """Computes the raw scores of one chunk of rows."""
    table = tf.where(tf.abs(table) <= ZERO, 0.0, table)
    numbers = tf.gather(table, trees.numbers, axis=1)
    numbers = tf.where(tf.math.is_nan(numbers), trees.fills, numbers)
    tests = tf.concat([tf.zeros_like(table[:, :1]), numbers, _outside(trees, table)], axis=1)
    nodes, roots = tf.convert_to_tensor(trees.nodes), tf.convert_to_tensor(trees.roots)

    def decide(level: tf.Tensor, places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Moves each row in each tree down to the left child, or to the right child, which follows the left one."""
        node = tf.gather(nodes, places)
        values = tf.gather(tests, node[..., 0], axis=1, batch_dims=1)
        left = values <= tf.bitcast(node[..., 2], tf.float32)
        # Right is `1 - left`. `values > threshold` would be false for NaN, and TensorFlow's graph optimizer turns
        # `~left` into that comparison.
        return level + 1, node[..., 1] + (1 - tf.cast(left, tf.int32))

    places = tf.tile(tf.reshape(roots, [1, -1]), [tf.shape(table)[0], 1])
    # All trees of all rows go down one level at a time. A leaf is its own left child, so rows in a leaf stay there.
    _, leaves = tf.while_loop(
        lambda level, _: level < trees.depth, decide, (tf.constant(0), places), parallel_iterations=1
    )
    values = tf.reshape(tf.gather(trees.values, leaves), tf.concat([[-1], tf.shape(roots)], axis=0))
    return tf.reduce_sum(values, axis=1)


def _outside(trees: Trees, table: tf.Tensor) -> tf.Tensor:
    """Returns 1 where a row's category is outside of a set and 0 where it is inside, float32 `[batch, sets]`."""
    sets = tf.convert_to_tensor(trees.sets)
    ids = tf.cast(
        tf.where((table > -1) & (table < UNSEEN), table, UNSEEN), tf.int32
    )  # computed for the few columns of numbers too
    ids = tf.minimum(
        tf.gather(ids, sets[:, 0], axis=1), 32 * sets[:, 2]
    )  # larger ids become the first bit of the set's last word
    words = tf.gather(trees.words, sets[:, 1] + tf.bitwise.right_shift(ids, 5))
    outside = tf.bitwise.right_shift(words, tf.bitwise.bitwise_and(ids, 31))
    return tf.cast(tf.bitwise.bitwise_and(outside, 1), tf.float32)


def restored() -> Trees:
    """Declares the variables of trees in the default graph and returns them as tensors.

    A checkpoint gives the variables their values and their shapes.
    """
    with tf.name_scope(_SCOPE):
        variables = {
            name: tf.Variable(tf.zeros([n or 0 for n in shape], kind), shape=shape, trainable=False, name=name)
            for name, (kind, shape) in _SHAPES.items()
        }
    return Trees(**{name: tf.convert_to_tensor(variable) for name, variable in variables.items()})


def save(trees: Trees, model_dir: str) -> str:
    """Writes a checkpoint with the trees, and returns its name. Its step is the number of rounds."""
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
    """Builds the graph that computes a checkpoint's trees, for evaluation and prediction.

    Loss and predictions come from the head that the canned models use.

    Args:
      features: transformed features by name.
      labels: class ids or numbers, `[batch]`; None in PREDICT.
      mode: EVAL or PREDICT.
      params: `task_spec`, and the hyper-parameters by name, such as `list_limit`.

    Raises:
      UsageError: the mode is TRAIN. These trees are not trained step by step.
    """
    if mode == tf_estimator.ModeKeys.TRAIN:
        raise UsageError("model 'boosted_trees' is grown by LightGBM and makes no training steps")
    task_spec: TaskSpec = params["task_spec"]
    table = Columns.of(task_spec.inputs, params["list_limit"]).table(features)
    logits = tf.cast(scores(restored(), table), tf.float32)
    logits = tf.ensure_shape(logits, [None, 1 if task_spec.classes in (None, 2) else task_spec.classes])
    scale = task_spec.scale.model_copy(update={"priors": ()})  # the trees' scores already include the priors
    of_scores = head(dataclasses.replace(task_spec, scale=scale), mode)
    return of_scores.create_estimator_spec(features=features, mode=mode, labels=labels, logits=logits)
