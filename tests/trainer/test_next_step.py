"""The command that a training suggests next fits the data that it was trained on."""

from __future__ import annotations

import pytest

from trainer.loop.evaluations import Trained
from trainer.spec.options import TrainOptions
from trainer.task import summary


@pytest.mark.parametrize(
    ("kind", "files"), [("people", "raw.csv"), ("stripes", "'photos/*'"), ("patterns", "pairs.csv")]
)
def test_predict_is_given_files_of_the_kind_that_it_takes(
    request: pytest.FixtureRequest, kind: str, files: str
) -> None:
    dataset = request.getfixturevalue(kind)
    trained = Trained(
        model_dir="m", ended="max_steps", global_step=1, steps=1, seconds=1.0, metrics={}, exports={"final": "m/1"}
    )
    told = summary(trained, TrainOptions(data_dir=dataset.path, model_dir="m"), dataset.image_schema)
    assert f"trainer.predict --saved_model m/1 --input {files} --output" in told
