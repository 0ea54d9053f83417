"""Exports made in milliseconds, and exports whose graphs were changed to do harm."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.python.framework import function

from schemas.exports.notes import ExportNotes, read_notes, write_notes
from schemas.spec.loader import parse_schema
from tests.support.csv_datasets import NUMBERS
from trainer.export.warmup import Recorded, write_warmup


@dataclasses.dataclass(frozen=True)
class Flaw:
    """What is wrong with an export: nothing by default.

    Attributes:
      writes: its graph writes a file.
      off: by how much its answers differ from those that it was published with.
      extra_output: it has one more.
      schema: its schema.
      big: floats that it holds in a constant.
      endless: an answer takes for ever.
      grows: an answer takes more and more memory, for ever.
    """

    writes: bool = False
    off: float = 0.0
    extra_output: bool = False
    schema: str = NUMBERS
    big: int = 0
    endless: bool = False
    grows: bool = False


def write_export(folder: Path, number: int, flaw: Flaw | None = None) -> Path:
    """Writes `folder/number`, whole at once, as a training does."""
    flaw = flaw or Flaw()
    made = folder / f"temp-{number}"
    shutil.rmtree(made, ignore_errors=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None], "x")
        outputs = _outputs(x, number + flaw.off, flaw)
        signature = tf.compat.v1.saved_model.signature_def_utils.predict_signature_def({"x": x}, outputs)
        builder = tf.compat.v1.saved_model.Builder(str(made))
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
    write_warmup(str(made), _warmup(number))
    schema = parse_schema(flaw.schema.encode(), "schema.yaml")
    notes = ExportNotes("run-1", schema.fingerprint, classes=(), global_step=number, checked_records=3)
    write_notes(str(made), notes, flaw.schema.encode())
    made.rename(folder / str(number))
    return folder / str(number)


def _outputs(x: Any, number: float, flaw: Flaw) -> dict[str, Any]:
    error = tf.where(tf.math.is_nan(x), "x: missing_value", tf.where(tf.math.is_inf(x), "x: out_of_range", ""))
    value = tf.where(tf.equal(error, ""), x + number, float("nan"))
    if flaw.writes:
        with tf.control_dependencies([tf.io.write_file("/dev/null", "")]):
            value = tf.identity(value)
    if flaw.big:
        value += tf.reduce_sum(tf.constant(np.zeros(flaw.big, np.float32)))
    if flaw.endless or flaw.grows:
        tensor = tf.zeros([1 << 20 if flaw.grows else 1])
        step: Any = (lambda tensor: tf.concat([tensor, tensor], 0)) if flaw.grows else tf.cos
        endless = tf.while_loop(
            lambda tensor: tensor[0] < 2,
            lambda tensor: [step(tensor)],
            [tensor],
            shape_invariants=[tf.TensorShape([None])],
        )
        value += tf.reduce_sum(endless[0])
    outputs = {"value": value, "error": error}
    return {**outputs, "more": tf.identity(x)} if flaw.extra_output else outputs


def _warmup(number: int) -> Iterator[Recorded]:
    x = np.array([0, 1.5, -2], np.float32)
    yield Recorded("serving_default", {"x": x}, {"value": x + number, "error": np.array([b""] * 3, object)})


@dataclasses.dataclass
class Hostile:
    """An export's graph, to be changed.

    Attributes:
      meta_graph: everything except the nodes.
      graph: the nodes.
      victim: a file to read or to write.
    """

    meta_graph: Any
    graph: Any
    victim: Path

    def predict(self, op: Any) -> None:
        """Runs an op with each prediction."""
        with tf.control_dependencies([op]):
            self._replace_outputs("probabilities", tf.identity)

    def answer(self, text: Any) -> None:
        """Replaces each key by a string."""
        self._replace_outputs("key", lambda tensor: tf.fill(tf.shape(tensor), text))

    def _replace_outputs(self, name: str, replace: Callable[[Any], Any]) -> None:
        for signature in self.meta_graph.signature_def.values():
            if name in signature.outputs:
                tensor = self.graph.get_tensor_by_name(signature.outputs[name].name)
                signature.outputs[name].name = replace(tensor).name

    def initialize(self, op: Any) -> None:
        """Runs an op when the export is loaded."""
        names = self.meta_graph.collection_def["saved_model_main_op"].node_list.value
        names[:] = [tf.group(op, self.graph.get_operation_by_name(names[0])).name]

    def restore(self, op: Any) -> None:
        """Runs an op when the export's variables are restored."""
        saver = self.meta_graph.saver_def
        saver.restore_op_name = tf.group(op, self.graph.get_operation_by_name(saver.restore_op_name)).name

    def write(self) -> Any:
        """An op that writes a file."""
        return tf.raw_ops.WriteFile(filename=str(self.victim), contents="written")

    def after_write(self, value: Any) -> Any:
        """A value that is there once a file was written."""
        with tf.control_dependencies([self.write()]):
            return tf.identity(value)

    def add_asset(self, filename: str, path: Any) -> None:
        """Has the loader feed the path of a file of the export."""
        asset = meta_graph_pb2.AssetFileDef(filename=filename)
        asset.tensor_info.name = path.name
        self.meta_graph.collection_def["saved_model_assets"].any_list.value.add().Pack(asset)


def make_hostile(export: Path, victim: Path, change: Callable[[Hostile], None]) -> None:
    """Changes an export's graph, and its notes accordingly."""
    path = export / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    (meta_graph,) = saved_model.meta_graphs
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(meta_graph.graph_def, name="")
        change(Hostile(meta_graph, graph, victim))
        meta_graph.graph_def.CopyFrom(graph.as_graph_def())
    path.write_bytes(saved_model.SerializeToString())
    forge_notes(export)


def forge_notes(export: Path) -> None:
    """Writes the checksums of the current files into an export's notes."""
    _, notes = read_notes(str(export))
    write_notes(str(export), notes, (export / "assets.extra" / "schema.yaml").read_bytes())


def called(build: Callable[[], Any]) -> Any:
    """Calls a function of the library."""
    return tf.function(build)()


def write_in_signature(model: Hostile) -> None:
    model.predict(model.write())


def write_in_init(model: Hostile) -> None:
    model.initialize(model.write())


def write_in_restore(model: Hostile) -> None:
    model.restore(model.write())


def write_in_nested_functions(model: Hostile) -> None:
    def inner() -> Any:  # the refusal says this name
        return model.after_write(1)

    model.predict(called(tf.function(inner)))


def write_in_map(model: Hostile) -> None:
    numbers = tf.data.Dataset.from_tensor_slices(tf.range(1, dtype=tf.int64)).map(model.after_write, 2)
    model.predict(numbers.reduce(tf.constant(0, tf.int64), lambda sum_, number: sum_ + number))


def write_in_if(model: Hostile) -> None:
    model.predict(
        called(lambda: tf.cond(tf.random.uniform([]) < 2, lambda: model.after_write(1), lambda: tf.constant(0)))
    )


def write_in_case(model: Hostile) -> None:
    cases = [lambda: model.after_write(1), lambda: tf.constant(0)]
    model.predict(called(lambda: tf.switch_case(tf.random.uniform([], 0, 1, tf.int32), cases)))


def write_in_while(model: Hostile) -> None:
    def step(number: Any) -> tuple[Any]:
        return (model.after_write(number + 1),)

    model.predict(called(lambda: tf.while_loop(lambda number: number < 1, step, [tf.constant(0)])[0]))


def write_in_gradient(model: Hostile) -> None:
    @function.Defun(tf.float32, tf.float32, func_name="InnocentGradient")
    def gradient(x: Any, dy: Any) -> Any:
        return model.after_write(x * dy)

    @function.Defun(tf.float32, func_name="Innocent", grad_func=gradient)
    def innocent(x: Any) -> Any:
        return x * x

    innocent(tf.constant(1.0))  # into the library
    model.predict(tf.raw_ops.SymbolicGradient(input=[1.0, 1.0], Tout=[tf.float32], f=innocent)[0])


def write_out_of_reach(model: Hostile) -> None:
    model.write()


def print_to_file(model: Hostile) -> None:
    model.predict(tf.raw_ops.PrintV2(input="written", output_stream=f"file://{model.victim}"))


def cache_to_file(model: Hostile) -> None:
    numbers = tf.data.Dataset.range(1).cache(str(model.victim))
    model.predict(numbers.reduce(tf.constant(0, tf.int64), lambda sum_, number: sum_ + number))


def save_in_signature(model: Hostile) -> None:
    saved = tf.raw_ops.SaveV2(prefix=str(model.victim), tensor_names=["x"], shape_and_slices=[""], tensors=[1.0])
    model.predict(saved)


def save_in_init(model: Hostile) -> None:
    model.initialize(model.graph.get_operation_by_name(model.meta_graph.saver_def.save_tensor_name.partition(":")[0]))


def python_function(model: Hostile) -> None:
    model.predict(tf.numpy_function(lambda: 1.0, [], tf.float32))


def read_file(model: Hostile) -> None:
    model.answer(tf.io.read_file(str(model.victim)))


def read_lines(model: Hostile) -> None:
    variant = tf.raw_ops.TextLineDataset(filenames=str(model.victim), compression_type="", buffer_size=0)
    lines = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
    model.answer(lines.reduce("", lambda text, line: text + line))


def _fill(table: Any, path: Any) -> Any:
    return tf.raw_ops.InitializeTableFromTextFileV2(table_handle=table, filename=path, key_index=-1, value_index=-2)


def _table() -> Any:
    return tf.raw_ops.HashTableV2(key_dtype=tf.int64, value_dtype=tf.string, shared_name="hostile")


def _first_line(table: Any) -> Any:
    return tf.raw_ops.LookupTableFindV2(table_handle=table, keys=tf.constant(0, tf.int64), default_value="")


def foreign_table(model: Hostile) -> None:
    table = _table()
    model.initialize(_fill(table, str(model.victim)))
    model.answer(_first_line(table))


def asset_that_no_one_feeds(model: Hostile) -> None:
    """The loader feeds an asset's tensor when the init op runs; in a signature, the tensor has its own value."""
    path = tf.constant(str(model.victim))
    model.add_asset("work", path)
    table = _table()
    with tf.control_dependencies([_fill(table, path)]):
        model.answer(_first_line(table))


def asset_out_of_the_export(model: Hostile) -> None:
    path = tf.constant("")
    model.add_asset(f"../../../{model.victim.name}", path)
    table = _table()
    model.initialize(_fill(table, path))
    model.answer(_first_line(table))


def absolute_asset(model: Hostile) -> None:
    model.add_asset(str(model.victim), tf.constant(""))


def _foreign_restore(model: Hostile) -> Any:
    prefix = str(model.victim.with_name("foreign"))
    return tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=["x"], shape_and_slices=[""], dtypes=[tf.string])[0]


def foreign_checkpoint(model: Hostile) -> None:
    model.answer(tf.reshape(_foreign_restore(model), []))


def foreign_checkpoint_in_restore(model: Hostile) -> None:
    model.restore(_foreign_restore(model))
