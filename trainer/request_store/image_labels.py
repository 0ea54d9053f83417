"""Joins labels to stored images: a folder for each class, or for each identity of pairs, as preprocessing takes."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Sequence

from schemas import storage
from schemas.errors import UsageError
from schemas.spec.images import ImageSchema
from schemas.storage import folders
from trainer.request_store.columns import ID
from trainer.request_store.emitted import Emitted
from trainer.request_store.joining import Joined, LabelOptions, labelled_rows
from trainer.request_store.known_labels import KnownLabels
from trainer.request_store.reading import StoredSegment

LABEL = "label"


def join_image_labels(options: LabelOptions, segments: Sequence[StoredSegment], schema: ImageSchema) -> Joined:
    """Links or copies each image whose label is known into the folder of its class.

    The files of labels have the column `label`, or of pairs a column for each image (`left`, `right`) with the identity
    that it shows. The same file in the same folder is there once, so a run may be repeated.

    Raises:
      UsageError: a label that cannot be a folder's name.
    """
    names = schema.image_names
    columns = (LABEL,) if len(names) == 1 else names
    emitted = Emitted(options.output)
    with emitted.locked():
        known = KnownLabels(storage.expand(options.join), options.on or ID, columns)
        try:
            joined = Joined(labels=known.rows, duplicate_labels=known.duplicates, conflicting_keys=known.conflicts)
            written: set[str] = set()
            with storage.wrap_errors(options.output):
                for token, row, label in labelled_rows(segments, options.on or ID, known, emitted, joined):
                    for name, value in zip(names, label.values, strict=True):
                        folder = os.path.join(options.output, _folder_name(value))
                        _place(os.path.join(options.store, os.fsdecode(row.cells[name])), folder)
                        written.add(folder)
                    emitted.add(token, row.place, label.values[0])
                    joined.written += 1
                for folder in written:
                    storage.sync_folder(folder)
            joined.unmatched_labels = known.unused()
            if joined.written:
                emitted.commit(emitted.next_number(), "", "")
                joined.file = options.output
            return joined
        finally:
            known.close()


def _folder_name(label: bytes) -> str:
    name = label.decode("utf-8", "surrogateescape").strip()
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise UsageError(f"the label {name[:80]!r} cannot be the name of a folder, which is an image's class")
    return name


def _place(image: str, folder: str) -> None:
    target = os.path.join(folder, os.path.basename(image))
    if os.path.exists(target):
        return
    folders.make(folder)
    try:
        os.link(image, target)
    except FileExistsError:
        return
    except OSError:  # another file system
        aside = os.path.join(folder, f".{secrets.token_hex(8)}.tmp")
        shutil.copyfile(image, aside)
        with open(aside, "rb") as file:
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.rename(aside, target)
