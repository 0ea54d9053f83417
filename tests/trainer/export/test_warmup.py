"""The warm-up requests of an export: TensorFlow Serving's own messages read them, and the export answers them alike."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from schemas.errors import MillraceError
from schemas.exports.model import ServedModel
from schemas.exports.notes import read_notes
from trainer.export.warmup import FILE, MAX_BYTES, read_warmup, recorded


@pytest.mark.parametrize("export", ["people_export", "stripes_model", "patterns_model"])
def test_tensorflow_serving_reads_them(export, request):
    found = request.getfixturevalue(export)
    export_dir = str(getattr(found, "export", found))
    _, notes = read_notes(export_dir)
    assert FILE in notes.files
    logs = [
        prediction_log_pb2.PredictionLog.FromString(record.numpy())
        for record in tf.data.TFRecordDataset(f"{export_dir}/{FILE}")
    ]
    with ServedModel(export_dir) as model:
        for log in logs:
            assert log.WhichOneof("log_type") == "predict_log"
            asked, answered = log.predict_log.request, log.predict_log.response
            assert asked.model_spec.signature_name == "serving_default"
            signature = model.signatures["serving_default"]
            assert set(asked.inputs) == set(signature.inputs)
            inputs = {name: tf.make_ndarray(tensor) for name, tensor in asked.inputs.items()}
            outputs = model.predict(inputs)
            assert set(answered.outputs) == set(outputs)
            for name, tensor in answered.outputs.items():
                expected = tf.make_ndarray(tensor)
                if expected.dtype.kind == "f":
                    np.testing.assert_allclose(outputs[name], expected, rtol=1e-4, atol=1e-5)
                else:
                    np.testing.assert_array_equal(outputs[name], expected)
    read = read_warmup(export_dir)
    rows = [len(next(iter(each.inputs.values()))) for each in read]
    assert rows == [log.predict_log.request.inputs[next(iter(asked.inputs))].tensor_shape.dim[0].size for log in logs]
    assert rows[0] == 1
    assert rows[1] > 1


def test_large_records_are_fewer():
    inputs = {"image": np.array([b"x" * (MAX_BYTES // 3)] * 9, object)}
    sizes = [len(each.inputs["image"]) for each in recorded("s", inputs, {"error": np.array([b""] * 9, object)})]
    assert sizes == [1, 3]
    alone = {"image": np.array([b"x" * (MAX_BYTES + 1)] * 2, object)}
    assert [len(each.outputs["error"]) for each in recorded("s", alone, {"error": np.array([b""] * 2, object)})] == [1]


def test_a_file_that_cannot_be_read_is_named(people_export, tmp_path):
    copy = tmp_path / "1"
    shutil.copytree(people_export, copy)
    path = Path(copy, FILE)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(MillraceError, match="tf_serving_warmup_requests: cannot be read"):
        read_warmup(str(copy))
    path.unlink()
    assert read_warmup(str(copy)) == []
