"""The inputs of a dataset and what became of their records: in the manifest if they are few, else in files of the run.

A dataset of a million files would have a manifest of hundreds of megabytes, which every reader loads.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.manifest import Count, Input, Manifest, Total
from schemas.errors import MillraceError
from schemas.spec.forms import Strict, first_mistake

INLINE = 1000  # the manifest itself lists so many inputs


class InputPart(Strict):
    """Some inputs, their headers, and the counts of their records; as in a manifest that lists all inputs itself."""

    inputs: tuple[Input, ...]
    headers: tuple[tuple[str, ...], ...] = ()
    counts: tuple[Count, ...] = ()

    def header_of(self, file: Input) -> tuple[str, ...] | None:
        """The header of one of the inputs; None if it has none."""
        return None if file.header is None else self.headers[file.header]

    def to_json(self) -> bytes:
        """The file's bytes."""
        return self.model_dump_json().encode() + b"\n"


@dataclasses.dataclass(frozen=True)
class KnownInput:
    """What a dataset's manifest says of the layout of an input file."""

    encoding: str
    header: tuple[str, ...] | None


def read_inputs(data_dir: str, manifest: Manifest) -> Iterator[InputPart]:
    """The inputs of a dataset, some at a time.

    Raises:
      MillraceError: a file of inputs cannot be read.
    """
    if not manifest.input_files:
        yield InputPart(inputs=manifest.inputs, headers=manifest.headers, counts=manifest.counts)
    for name in manifest.input_files:
        path = layout.join(data_dir, name)
        try:
            yield InputPart.model_validate_json(storage.read_bytes(path))
        except ValidationError as error:
            raise MillraceError(f"{path}: {first_mistake(error)}. Restore it, or write the dataset again.") from error


def totals_of(counts: Iterable[Count]) -> tuple[Total, ...]:
    """Counts summed over the inputs."""
    found: collections.Counter[tuple[str, str | None, str | None, str | None]] = collections.Counter()
    for count in counts:
        found[count.outcome, count.split, count.stage, count.reason] += count.rows
    order = sorted(found, key=lambda kind: tuple(part or "" for part in kind))
    return tuple(
        Total.model_validate({"outcome": outcome, "split": split, "stage": stage, "reason": reason, "rows": rows})
        for outcome, split, stage, reason in order
        for rows in (found[outcome, split, stage, reason],)
    )


@dataclasses.dataclass(frozen=True)
class ListedInputs:
    """The manifest's fields of these names; either the first three, or the last three."""

    inputs: tuple[Input, ...] = ()
    headers: tuple[tuple[str, ...], ...] = ()
    counts: tuple[Count, ...] = ()
    files: tuple[str, ...] = ()
    count: int = 0
    totals: tuple[Total, ...] = ()


def write_parts(
    output: str, run_id: str, parts: Iterable[InputPart], *, count: int, inline: int = INLINE
) -> ListedInputs:
    """The manifest's fields about the inputs; writes the entries to files of the run if they are many.

    Args:
      output: the dataset directory.
      run_id: the run.
      parts: the entries of all inputs, part by part.
      count: how many inputs there are.
      inline: up to so many are listed in the manifest itself.
    """
    if count <= inline:
        one = _joined(parts)
        return ListedInputs(inputs=one.inputs, headers=one.headers, counts=one.counts)
    names: list[str] = []

    def counts() -> Iterator[Count]:
        for number, part in enumerate(parts):
            names.append(layout.join(run_id, layout.inputs_name(number)))
            storage.write_bytes(layout.join(output, names[-1]), part.to_json())
            yield from part.counts

    totals = totals_of(counts())
    return ListedInputs(files=tuple(names), count=count, totals=totals)


def _joined(parts: Iterable[InputPart]) -> InputPart:
    """Some parts as one, by path."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    headers = tuple(sorted({header for part in parts for header in part.headers}))
    inputs = [
        file.model_copy(update={"header": None if file.header is None else headers.index(part.headers[file.header])})
        for part in parts
        for file in part.inputs
    ]
    counts = itertools.chain.from_iterable(part.counts for part in parts)
    return InputPart(
        inputs=tuple(sorted(inputs, key=lambda file: file.path)),
        headers=headers,
        counts=tuple(sorted(counts, key=lambda count: count.input)),
    )
