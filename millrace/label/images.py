"""Joins labels to stored images: a folder for each class, or for each identity of pairs, as preprocessing takes."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence

from millrace.label.joining import Joined, labelled_rows
from millrace.label.known_labels import KnownLabels, Progress
from millrace.label.options import LabelOptions
from millrace.store.columns import ID
from millrace.store.emitted import Emitted
from millrace.store.reading import StoredSegment
from schemas import storage
from schemas.spec.images import ImageSchema
from schemas.storage import folders

LABEL = "label"


def join_image_labels(
    options: LabelOptions, segments: Sequence[StoredSegment], schema: ImageSchema, progress: Progress
) -> Joined:
    """Links or copies each image whose label is known into the folder of its class.

    The files of labels have the column `label`, or of pairs a column for each image (`left`, `right`) with the identity
    that it shows. The same file in the same folder is there once, so a run may be repeated.

    Raises:
      UsageError: a label that cannot be a folder's name.
    """
    names = schema.image_names
    columns = (LABEL,) if len(names) == 1 else names
    emitted, joined = Emitted(options.output), Joined()
    with emitted.locked():
        paths, on = storage.expand(options.join), options.on or ID
        known = KnownLabels(paths, on, columns[:1], columns[1:], check=_no_folders, progress=progress)
        try:
            written: set[str] = set()
            with storage.wrap_errors(options.output):
                given = tuple(f"label {name}" for name in columns)
                for rows in labelled_rows(segments, on, known, given, emitted, joined, progress):
                    for name, of in zip(names, given, strict=True):
                        pairs = zip(rows.columns[name].to_pylist(), rows.columns[of].to_pylist(), strict=True)
                        for image, label in pairs:
                            folder = os.path.join(options.output, _folder_name(label))
                            _place(os.path.join(options.store, os.fsdecode(image)), folder)
                            written.add(folder)
                    emitted.add(rows.token, rows.places, rows.codes)
                    joined.written += len(rows.places)
                for folder in written:
                    storage.sync_folder(folder)
            joined.count(known)
            if joined.written:
                emitted.commit(emitted.next_number(), "", "")
                joined.file = options.output
            return joined
        finally:
            known.close()


def _no_folders(columns: Mapping[str, Sequence[bytes]]) -> dict[int, str]:
    """The labels that cannot be a class, by row."""
    found = {}
    for name, values in columns.items():
        for row, value in enumerate(values):
            folder = _folder_name(value)
            if not folder or "/" in folder or "\0" in folder or folder.startswith("."):
                found[row] = f"{name}: {folder[:80]!r} cannot be the name of a folder, which is an image's class"
    return found


def _folder_name(label: bytes) -> str:
    return label.decode("utf-8", "surrogateescape").strip()


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
