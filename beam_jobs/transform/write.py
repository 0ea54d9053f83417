"""tf.Transform's graph -> the run's folder, in a way that a runner may repeat.

`tft_beam.WriteTransformFn` renames what it has written: run again, it no longer finds it, and the job fails.
"""

from __future__ import annotations

import os
from typing import Any

import apache_beam as beam
import tensorflow as tf
import tensorflow_transform.beam as tft_beam
from tensorflow_transform.impl_helper import METADATA_DIR_NAME

from schemas.dataset import layout


class WriteTransform(beam.PTransform):
    """(a SavedModel's path, metadata), as tf.Transform gives them -> None, when both are in `run_dir`.

    `staging` takes the metadata of every attempt, each under a name of its own; the last one's is copied.
    """

    def __init__(self, run_dir: str, *, staging: str) -> None:
        super().__init__()
        self.run_dir = run_dir
        self.staging = staging

    def _extract_input_pvalues(self, transform_fn: Any) -> Any:
        """Beam's hook, for inputs that are no PCollections: which parts of them are."""
        writer = tft_beam.WriteTransformFn(self.run_dir)
        return writer._extract_input_pvalues(transform_fn)  # private: tf.Transform's answer to Beam, and no other way

    def expand(self, transform_fn: Any) -> beam.PCollection:
        saved_model, metadata = transform_fn
        pipeline = saved_model.pipeline
        write = tft_beam.WriteMetadata(os.path.join(self.staging, "tft"), pipeline, write_to_unique_subdirectory=True)
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
    """Copies both folders, over what an earlier attempt may have copied."""
    copy_tree(saved_model, layout.join(run_dir, layout.TRANSFORM_FN))
    copy_tree(metadata, layout.join(run_dir, layout.TRANSFORMED_METADATA))


def copy_tree(source: str, target: str) -> None:
    """Copies a folder's files, local or gs://; tf.Transform's own notes on its analysis are left out."""
    tf.io.gfile.makedirs(target)
    for name in (listed.rstrip("/") for listed in tf.io.gfile.listdir(source)):  # on GCS a folder ends in one
        if tf.io.gfile.isdir(os.path.join(source, name)):
            if name != METADATA_DIR_NAME:
                copy_tree(os.path.join(source, name), os.path.join(target, name))
        else:
            tf.io.gfile.copy(os.path.join(source, name), os.path.join(target, name), overwrite=True)
