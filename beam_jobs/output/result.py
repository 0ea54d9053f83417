"""The result of a finished pipeline, handed to the launcher as a JSON file in the staging folder."""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
from collections.abc import Iterable, Sequence

from beam_jobs.core.accounting import CountKey, RejectFile, rejects, write_reject_file
from beam_jobs.core.parity_files import ParityFiles
from beam_jobs.output.fragments import WrittenShard
from beam_jobs.transform.rejects import RawBytes, with_raw_bytes
from schemas import storage

RESULT = "result.json"

Place = tuple[int, int]  # (input file's number, offset)


@dataclasses.dataclass(frozen=True)
class Result:
    """What a pipeline wrote and counted."""

    shards: tuple[WrittenShard, ...]
    counts: dict[CountKey, int]
    reject_files: tuple[RejectFile, ...]
    late_rejects: tuple[RejectFile, ...]  # from the transform, still without raw bytes
    parity_raw: dict[Place, bytes]
    parity_transformed: dict[Place, bytes]
    parity_files: tuple[ParityFiles, ...]

    def total(self, stage: str, *, path: str | None = None, reason: str | None = None) -> int:
        """The records that a stage counted: of one input file or all, for one reason (for WRITTEN: split) or all."""
        return sum(n for (_, at, why), n in self._counts(path) if at == stage and reason in (None, why))

    def rejected(self, *, path: str | None = None) -> int:
        """The records rejected in any stage, of one input file or all."""
        return sum(n for (_, at, _), n in self._counts(path) if rejects(at))

    def _counts(self, path: str | None) -> Iterable[tuple[CountKey, int]]:
        return self.counts.items() if path is None else self._by_path.get(path, ())

    @functools.cached_property
    def _by_path(self) -> dict[str, list[tuple[CountKey, int]]]:
        """The counts by input file: with 20,000 files, going through all of them for each file would take minutes."""
        found: dict[str, list[tuple[CountKey, int]]] = {}
        for key, n in self.counts.items():
            found.setdefault(key[0], []).append((key, n))
        return found


def complete(result: Result, staging: str, raw_bytes: RawBytes) -> Result:
    """Reads the raw bytes of the transform's rejects, and moves them to the other rejects."""
    if not result.late_rejects:
        return result
    late = with_raw_bytes([file.path for file in result.late_rejects], raw_bytes)
    file = RejectFile(write_reject_file(staging, "transforming", late), len(late))
    for incomplete in result.late_rejects:  # otherwise they would be completed again if the commit failed
        storage.delete(incomplete.path)
    return dataclasses.replace(result, reject_files=(*result.reject_files, file), late_rejects=())


def write_result(
    path: str,
    shards: list[WrittenShard],
    counts: list[tuple[CountKey, int]],
    reject_files: list[RejectFile],
    late_rejects: list[RejectFile],
    raw: Sequence[tuple[Place, bytes]] = (),
    transformed: Sequence[tuple[Place, bytes]] = (),
    parity_files: Sequence[ParityFiles] = (),
) -> None:
    """Writes the result file atomically."""

    def places(records: Sequence[tuple[Place, bytes]]) -> list[list[object]]:
        return [[*place, base64.b64encode(record).decode()] for place, record in records]

    account = {
        "shards": [dataclasses.asdict(s) for s in shards],
        "counts": [[*key, n] for key, n in counts],
        "reject_files": [dataclasses.asdict(f) for f in reject_files],
        "late_rejects": [dataclasses.asdict(f) for f in late_rejects],
        "parity_raw": places(raw),
        "parity_transformed": places(transformed),
        "parity_files": [dataclasses.asdict(record) for record in parity_files],
    }
    storage.write_bytes(path, json.dumps(account).encode())


def read_result(path: str) -> Result:
    """Reads the result file that `write_result` wrote."""
    account = json.loads(storage.read_bytes(path))

    def places(name: str) -> dict[Place, bytes]:
        return {(file, offset): base64.b64decode(record) for file, offset, record in account[name]}

    return Result(
        shards=tuple(WrittenShard(**s) for s in account["shards"]),
        counts={(source, stage, reason): n for source, stage, reason, n in account["counts"]},
        reject_files=tuple(RejectFile(**f) for f in account["reject_files"]),
        late_rejects=tuple(RejectFile(**f) for f in account["late_rejects"]),
        parity_raw=places("parity_raw"),
        parity_transformed=places("parity_transformed"),
        parity_files=tuple(ParityFiles.from_json(record) for record in account["parity_files"]),
    )
