"""What a submitted job's commit needs to know of the input, recorded in its run when it is submitted."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterable, Sequence

from beam_jobs.core.inputs import InputFile, StagedInputs
from beam_jobs.core.options import JobOptions
from beam_jobs.core.source import RawFiles, Source
from beam_jobs.runtime.sources import open_source
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.submitted import Submitted
from schemas.errors import MillraceError
from schemas.rejects import Reject
from schemas.spec.loader import AnySchema, load_schema
from schemas.spec.table import Schema


@dataclasses.dataclass(frozen=True)
class RecordedInput:
    """Implements `beam_jobs.core.source.Described`."""

    schema: AnySchema
    schema_text: bytes
    inputs: StagedInputs
    classes: tuple[str, ...]
    options: JobOptions

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        """The rejected records' raw bytes, from the input, which must not have changed.

        Raises:
          MillraceError: it has changed, or cannot be read.
        """
        again = self._open({reject.source for reject in rejects})
        with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
            now = again.stage(folder)
            for part in range(now.parts):
                self._check_unchanged(now.read(part))
        return again.raw_bytes(rejects)

    def _check_unchanged(self, files: Iterable[InputFile]) -> None:
        recorded: dict[str, str] = {}
        for file in files:
            if file.path not in recorded:
                recorded |= {then.path: then.version for then in self.inputs.read(self.inputs.part_of(file.key))}
            if recorded.get(file.path, file.version) != file.version:
                raise MillraceError(
                    f"{file.path}: has changed since the job was submitted (version {file.version}, expected "
                    f"{recorded[file.path]}), so the raw bytes of its rejects cannot be read; start again"
                )

    def _open(self, paths: set[str]) -> Source:
        """The source once more: of rows only the files that are needed, of images the whole listing."""

        def report(_: Sequence[str]) -> None:
            """The notes were reported when the job was submitted."""

        duplicates: list[tuple[str, str]] = []
        if isinstance(self.schema, Schema):
            listing = storage.Listing((path, storage.stat(path)) for path in sorted(paths))
        else:
            listing = storage.list_files(self.options.input, on_duplicate=lambda *found: duplicates.append(found))
        return open_source(self.schema, RawFiles(self.options, self.schema_text, listing, duplicates, report))


def recorded_input(data_dir: str, submitted: Submitted) -> RecordedInput:
    """Reads what was recorded.

    Raises:
      MillraceError: a file of the run is missing or cannot be read.
    """
    folder = layout.join(data_dir, submitted.run)
    path = layout.join(folder, layout.SCHEMA_YAML)
    return RecordedInput(
        load_schema(path),
        storage.read_bytes(path),
        StagedInputs(layout.join(folder, layout.STAGING), submitted.input_parts, submitted.input_files),
        submitted.classes,
        recorded_options(submitted),
    )


def options_to_record(options: JobOptions) -> dict[str, object]:
    """The job's options as JSON has them, without Beam's."""
    return {**dataclasses.asdict(options), "input": list(options.input), "beam_args": []}


def recorded_options(submitted: Submitted) -> JobOptions:
    """The options of a submitted job."""
    given = submitted.options
    return JobOptions(**{**given, "input": tuple(given["input"]), "beam_args": ()})
