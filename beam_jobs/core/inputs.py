"""The inputs of a job as files in its staging folder: workers and the launcher read them part by part.

So neither the pipeline nor anybody's memory grows with the number of inputs. They are in the order of their keys, and
each part holds an equal range of keys, so that a key alone says in which part its input is.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable

from schemas import storage
from schemas.dataset import layout
from schemas.errors import MillraceError
from schemas.storage.json_files import parse_json

FILES_A_PART = 10_000
LISTING = 0  # the key of a listing of images, which is the only input


@dataclasses.dataclass(frozen=True)
class InputFile:
    """An input that records are counted by: a file of rows, or a whole listing of images."""

    key: int  # see `schemas.storage.listing`
    path: str
    bytes: int
    version: str
    covers: int | None = None  # the amount to go through: bytes of a file, images or pairs; None: unknown


@dataclasses.dataclass(frozen=True)
class StagedInputs:
    """Where the inputs are staged. This is all that the pipeline holds of them."""

    folder: str
    parts: int
    files: int

    def part_of(self, key: int) -> int:
        """Returns the part that holds the input with this key."""
        return key * self.parts // storage.FILE_KEYS

    def read(self, part: int) -> tuple[InputFile, ...]:
        """Returns the inputs of a part, in the order of their keys."""
        lines = storage.read_bytes(_part(self.folder, part)).splitlines()
        return tuple(InputFile(*parse_json(line)) for line in lines)

    def path_of(self, key: int) -> str:
        """Returns the path of the input with this key.

        Raises:
          MillraceError: there is none.
        """
        path = _paths(self, self.part_of(key)).get(key)
        if path is None:
            raise MillraceError(f"{self.folder}: no input has the key {key}. This is a bug; nothing was committed.")
        return path


@functools.lru_cache(maxsize=4)
def _paths(inputs: StagedInputs, part: int) -> dict[int, str]:
    return {file.key: file.path for file in inputs.read(part)}


def _part(folder: str, part: int) -> str:
    return layout.join(folder, f"inputs-{part:05d}.jsonl")


def stage_inputs(folder: str, files: Iterable[InputFile], *, count: int) -> StagedInputs:
    """Writes the inputs to a folder.

    Args:
      folder: the staging folder.
      files: the inputs, in the order of their keys. They are gone through once, and few are held in memory.
      count: how many they are.
    """
    staged = StagedInputs(folder, max(1, -(-count // FILES_A_PART)), count)
    lines: list[bytes] = []
    part = 0

    def write_up_to(end: int) -> None:
        nonlocal part, lines
        while part < end:
            storage.write_bytes(_part(folder, part), b"".join(lines))
            part, lines = part + 1, []

    for file in files:
        write_up_to(staged.part_of(file.key))
        lines.append(json.dumps(dataclasses.astuple(file)).encode() + b"\n")
    write_up_to(staged.parts)
    return staged


def stage_listing(folder: str, listing: storage.Listing) -> StagedInputs:
    """Writes listed files, each of which is an input, to a folder."""
    files = (
        InputFile(file.key, file.path, file.size, file.version, covers=file.size)
        for file in map(storage.ListedFile.checked, listing)
    )
    return stage_inputs(folder, files, count=len(listing))
