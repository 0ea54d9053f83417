"""Writes tf.Transform's graph to the run's folder; a runner may repeat this.

`tft_beam.WriteTransformFn` renames the files that it has written: a repeated attempt does not find them and fails.
"""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import tensorflow_transform.beam as tft_beam
from tensorflow_transform.impl_helper import METADATA_DIR_NAME

from beam_jobs.core.source import PipelinePlan
from schemas.dataset import layout
from schemas.storage import folders


def write_transform(transform_fn: Any, plan: PipelinePlan) -> dict[str, beam.PCollection]:
    """Writes the transform to the run's folder: when the pipeline runs, or now, if it is that of another dataset.

    Returns:
      What the result has to wait for, by argument of `beam_jobs.records.result.write_result`.
    """
    if plan.transform_from is None:
        return {"written": transform_fn | "WriteTransform" >> WriteTransform(plan.run_dir, temp_dir=plan.temp_dir)}
    for part in (layout.TRANSFORM_FN, layout.TRANSFORMED_METADATA):
        # Copied: if tf.Transform wrote a graph that it has read, the names of its vocabularies would be missing.
        folders.copy(layout.join(plan.transform_from, part), layout.join(plan.run_dir, part))
    return {}


class WriteTransform(beam.PTransform):
    """(path of a SavedModel, metadata) from tf.Transform -> None, once both are in `run_dir`.

    Every attempt writes its metadata to `temp_dir` under a unique name; that of the last one is copied.
    """

    def __init__(self, run_dir: str, *, temp_dir: str) -> None:
        super().__init__()
        self.run_dir = run_dir
        self.temp_dir = temp_dir

    def _extract_input_pvalues(self, transform_fn: Any) -> Any:
        """Beam's hook for inputs that are not PCollections: returns their parts that are."""
        writer = tft_beam.WriteTransformFn(self.run_dir)
        return writer._extract_input_pvalues(transform_fn)  # private: tf.Transform's answer to Beam, and no other way

    def expand(self, transform_fn: Any) -> beam.PCollection:
        saved_model, metadata = transform_fn
        pipeline = saved_model.pipeline
        write = tft_beam.WriteMetadata(self.temp_dir, pipeline, write_to_unique_subdirectory=True)
        return (
            pipeline
            | "Sole" >> beam.Create([None])
            | "Copy"
            >> beam.Map(
                copy_transform,
                run_dir=self.run_dir,
                saved_model=beam.pvalue.AsSingleton(saved_model),
                metadata=beam.pvalue.AsSingleton(metadata | "WriteMetadata" >> write),
            )
        )


def copy_transform(_: None, *, run_dir: str, saved_model: str, metadata: str) -> None:
    """Copies both folders, replacing the files of an earlier attempt; the metadata of the analysis is left out."""
    folders.copy(saved_model, layout.join(run_dir, layout.TRANSFORM_FN), exclude=METADATA_DIR_NAME)
    folders.copy(metadata, layout.join(run_dir, layout.TRANSFORMED_METADATA))
