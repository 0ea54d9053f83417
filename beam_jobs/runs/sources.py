"""The table by which jobs and replays choose how raw data is read: a source for each class of schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beam_jobs.core.source import RawFiles, ReplaySource, Source, SourceKind
from beam_jobs.images.replay import replay_images
from beam_jobs.images.source import open_folders, open_pairs, replay_pairs
from beam_jobs.rows.replay import replay_rows
from beam_jobs.rows.source import open_rows
from schemas.dataset import Dataset
from schemas.spec.images import ImageFolderSchema, ImagePairsSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema

SOURCES: Mapping[type[AnySchema], SourceKind[Any]] = {
    Schema: SourceKind(open_rows, replay_rows),
    ImageFolderSchema: SourceKind(open_folders, replay_images),
    ImagePairsSchema: SourceKind(open_pairs, replay_pairs),
}


def open_source(schema: AnySchema, raw: RawFiles) -> Source:
    """The source that a job reads. Raises UsageError if the input does not match the schema."""
    return SOURCES[type(schema)].open(schema, raw)


def open_replay(base: Dataset) -> ReplaySource:
    """The source that a replay reads. Raises UsageError if records of this dataset cannot be replayed."""
    return SOURCES[type(base.declared)].open_replay(base.declared, base)
