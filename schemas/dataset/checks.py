"""Checks the manifest: its numbers and file names against each other, its inputs, and the run's rejects files.

Each check yields the issues that it finds. `open_dataset` raises an error for the first issue in the manifest itself,
and `verify_dataset` reports all issues.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import threading
from collections.abc import Callable, Iterable, Iterator

from pydantic import ValidationError

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.manifest import Count, InputPart, Manifest, read_inputs, totals_of
from schemas.errors import MillraceError
from schemas.spec.table import SPLITS
from schemas.storage.json_files import parse_json


@dataclasses.dataclass(frozen=True)
class Issue:
    """Something in a dataset that differs from the manifest or the schema.

    Attributes:
      path: the file, relative to the dataset directory.
      kind: 'missing', 'extra', 'unreadable', 'cut', 'damaged', 'changed', 'swapped', 'record', 'rows', 'graph',
        'schema', 'manifest', 'link' or 'account'.
      message: what was found, and what was expected.
    """

    path: str
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ReadProgress:
    """Counts how many bytes, rows and files several threads have read. Thread-safe.

    `report` is called after each addition, by one thread at a time. Setting the event `stop` ends the reading threads
    early.
    """

    def __init__(self) -> None:
        self.report: Callable[[], None] = lambda: None
        self.bytes = self.rows = self.files = 0
        self.stop = threading.Event()
        self._lock = threading.Lock()

    def add(self, **amounts: int) -> None:
        """Adds to the counts: `add(rows=10)` adds 10 to `rows`."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)
            self.report()

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yields the bytes of a file in chunks, and counts them. Ends early if `stop` is set."""
        for chunk in storage.read_chunks(path):
            if self.stop.is_set():
                return
            self.add(bytes=len(chunk))
            yield chunk


# The name of a shard. A job in one process writes `train-00000-of-00008.tfrecord`. On a cluster several attempts may
# write the same shard, and each has a random name of its own: `train-00000-000-<32 hex digits>.tfrecord`.
_NAME = re.compile(
    r"(?P<split>[a-z]+)-(?P<index>[0-9]{5,})(?:-of-(?P<count>[0-9]{5,})|-(?P<part>[0-9]{3,})-[0-9a-f]{32})"
    r"\.tfrecord(?:\.gz)?"
)
_NEEDED = (layout.SCHEMA_YAML, f"{layout.TRANSFORM_FN}/saved_model.pb")

_Reasons = collections.Counter[tuple[str, str]]  # rejects by stage and reason


def verify_account(manifest: Manifest) -> Iterator[Issue]:
    """Yields issues in the manifest itself: wrong sums by input, split or shard or in total, and wrong file names."""
    yield from _repeated(named(manifest))
    if manifest.input_files:
        yield from verify_summed(manifest)
    else:
        yield from verify_part(manifest.listed, layout.MANIFEST)
    yield from _splits(manifest)
    for name in ("read", "written", "rejected"):
        total = sum(getattr(file, name) for file in manifest.inputs)
        if not manifest.input_files and getattr(manifest, name) != total:
            yield _issue(f"{name} is {getattr(manifest, name):,}, but those of the inputs sum to {total:,}")
    yield from _shard_names(manifest)
    yield from _files(manifest)


def named(manifest: Manifest) -> list[str]:
    """Returns the path of every file that the manifest names, relative to the dataset directory."""
    return [file.path for file in manifest.contents]


def _repeated(paths: Iterable[str], where: str = layout.MANIFEST, *, what: str = "") -> Iterator[Issue]:
    """Yields an issue for each path that is named more than once: readers would read its records more than once."""
    for path, times in collections.Counter(paths).items():
        if times > 1:
            yield Issue(where, "manifest", f"names {what}{path} {times} times")


def _splits(manifest: Manifest) -> Iterator[Issue]:
    """Yields an issue for each split whose number of rows differs from its shards or from the inputs' counts."""
    by_split: collections.Counter[str] = collections.Counter()
    for count in manifest.outcomes:
        if count.split is not None:
            by_split[count.split] += count.rows
    for name, split in manifest.splits.items():
        in_shards = sum(shard.rows for shard in split.shards)
        if split.rows != in_shards:
            yield _issue(f"split {name!r}: {split.rows:,} rows, but those of its shards sum to {in_shards:,}")
        if split.rows != by_split[name]:
            yield _issue(f"split {name!r}: {split.rows:,} rows, but {by_split[name]:,} are counted as written to it")
    for name in by_split.keys() - manifest.splits.keys():
        yield _issue(f"split {name!r}: {by_split[name]:,} rows are counted as written to it, but it has no shards")


def _shard_names(manifest: Manifest) -> Iterator[Issue]:
    """Yields an issue for each shard in the wrong place.

    The shards of a split must bear its name. All shards that a run wrote for the split must be named, each once, in
    order.
    """
    suffix = ".gz" if manifest.compression == "gzip" else ".tfrecord"
    for name, split in manifest.splits.items():
        if name not in SPLITS:
            yield _issue(f"split {name!r}: is not one of {', '.join(SPLITS)}")
        sizes = collections.Counter(shard.path.rpartition("/")[0] for shard in split.shards)
        last: dict[str, tuple[int, int]] = {}
        for shard in split.shards:
            run, _, file = shard.path.rpartition("/")
            match = _NAME.fullmatch(file)
            # (index, part) must rise within a run. With `-of-NNNNN`, the index must be below that count, and the count
            # must be the number of the run's shards that are named; so no shard is missing.
            number = (int(match["index"]), int(match["part"] or 0)) if match else (-1, 0)
            count = int(match["count"] or 0) if match else 0
            is_next = number > last.get(run, (-1, 0)) and (not count or number[0] < count == sizes[run])
            if match is None or match["split"] != name or not shard.path.endswith(suffix) or not is_next:
                expected = f"a {suffix} shard {name}-NNNNN-... is expected, all of a run, once and in order"
                yield _issue(f"split {name!r}: names {shard.path} where {expected}")
            if shard.places is not None and shard.places.path != layout.places_of(shard.path):
                yield _issue(f"split {name!r}: names {shard.places.path} as the places of {shard.path}")
            last[run] = max(number, last.get(run, number))


def _files(manifest: Manifest) -> Iterator[Issue]:
    """Yields issues about the files that the manifest names.

    Each file must belong to one of the manifest's runs, and each file that a reader needs must be named.
    """
    names = {file.path for file in manifest.files}
    for path in sorted(names):
        if not path.startswith(f"{manifest.run}/"):
            yield _issue(f"{path}: is not a file of the run {manifest.run}")
    for file in manifest.previous_files:
        if file.path.partition("/")[0] not in manifest.previous:
            yield _issue(f"{file.path}: is not a file of a previous run")
    for name in _NEEDED:
        if (path := layout.join(manifest.run, name)) not in names:
            yield _issue(f"{path}: is not named, but every run has it")
    has_rejects = any(layout.REJECTS.fullmatch(path.rpartition("/")[2]) for path in names)
    if manifest.rejected > 0 and not has_rejects:
        yield _issue(f"rejected is {manifest.rejected:,}, but no rejects-*.jsonl is named")


def verify_rejects(data_dir: str, manifest: Manifest) -> Iterator[Issue]:
    """Compares the rejects in the run's rejects files with the numbers in the manifest, by stage and reason."""
    counts: _Reasons = collections.Counter()
    prefix = layout.join(manifest.run, "rejects-")
    for file in manifest.files:
        if file.path.startswith(prefix):
            try:
                yield from _read(data_dir, file.path, counts)
            except MillraceError:
                return  # missing or unreadable, which is reported elsewhere: the sums would only repeat it
    counted = manifest.rejects
    for key in sorted(counts.keys() | counted.keys()):
        if counts[key] != counted[key]:
            yield Issue(
                f"{prefix}*.jsonl",
                "account",
                f"{counts[key]:,} rejects of stage {key[0]!r} and reason {key[1]!r}, but {layout.MANIFEST} counts "
                f"{counted[key]:,}",
            )


def _read(data_dir: str, path: str, counts: _Reasons) -> Iterator[Issue]:
    """Adds the rejects of a file to `counts`, and yields an issue for each line that is not a reject."""
    full = layout.join(data_dir, path)
    with storage.wrap_errors(full), storage.open_read(full) as file:
        for number, line in enumerate(file, 1):
            try:
                reject = parse_json(line)
                counts[reject["stage"], reject["reason"]] += 1
            except (ValueError, LookupError, TypeError) as error:
                yield Issue(path, "account", f"line {number:,} is not a reject: {error}")


def _issue(message: str, path: str = layout.MANIFEST) -> Issue:
    return Issue(path, "account", message)


def verify_part(part: InputPart, path: str) -> Iterator[Issue]:
    """Yields issues in the manifest's entries about some inputs.

    Args:
      part: the entries.
      path: the file that contains the entries, for the issues.
    """
    yield from _repeated((file.path for file in part.inputs), path, what="the input ")
    by_outcome: collections.Counter[tuple[str, str]] = collections.Counter()
    for count in part.counts:
        by_outcome[count.input, count.outcome] += count.rows
        presence = (count.split is not None, count.stage is not None, count.reason is not None)
        if presence != ((True, False, False) if count.outcome == "written" else (False, True, True)):
            yield _issue(
                f"{count.input}: {count.rows:,} records are counted as {count.outcome} with the split {count.split!r}, "
                f"the stage {count.stage!r} and the reason {count.reason!r}; written records must have the first, "
                "rejected records the others",
                path,
            )
    for file in part.inputs:
        if file.header is not None and not 0 <= file.header < len(part.headers):
            yield _issue(f"{file.path}: has the header {file.header}, of {len(part.headers)}", path)
        lost = file.read - file.written - file.rejected
        if lost:
            yield _issue(
                f"{file.path}: {file.read:,} records read, {file.written:,} written and {file.rejected:,} rejected: "
                f"{abs(lost):,} {'unaccounted for' if lost > 0 else 'too many'}",
                path,
            )
        for outcome, total in (("written", file.written), ("rejected", file.rejected)):
            counted = by_outcome.pop((file.path, outcome), 0)
            if counted != total:
                yield _issue(f"{file.path}: {outcome} is {total:,}, but its counts sum to {counted:,}", path)
    for (name, outcome), rows in by_outcome.items():
        if rows:
            yield _issue(
                f"{name}: {rows:,} records are counted as {outcome}, but it is not an input of this dataset", path
            )


def verify_input_files(data_dir: str, manifest: Manifest) -> Iterator[Issue]:
    """Yields issues in the files that list the inputs, and an issue if their sums differ from the manifest's.

    Does nothing if the manifest itself lists the inputs.
    """
    if not manifest.input_files:
        return
    inputs = 0
    issues: list[Issue] = []

    def counts() -> Iterator[Count]:
        nonlocal inputs
        for name, part in zip(manifest.input_files, read_inputs(data_dir, manifest), strict=True):
            inputs += len(part.inputs)
            issues.extend(verify_part(part, name))
            yield from part.counts

    try:
        totals = totals_of(counts())
    except MillraceError as error:
        if isinstance(error.__cause__, ValidationError):  # other errors (a missing file) are reported elsewhere
            yield _issue(str(error), layout.MANIFEST)
        return
    yield from issues
    if inputs != manifest.input_count:
        yield _issue(f"has {manifest.input_count:,} inputs, but the files of inputs list {inputs:,}")
    if totals != manifest.totals:
        yield _issue("totals differ from the sums of the counts in the files of inputs")


def verify_summed(manifest: Manifest) -> Iterator[Issue]:
    """Yields issues in a manifest that names files of inputs. Does not read these files."""
    if manifest.inputs or manifest.headers or manifest.counts:
        yield _issue("lists inputs itself, and names files of inputs as well")
    names = {file.path for file in manifest.files}
    for path in manifest.input_files:
        if path not in names:
            yield Issue(layout.MANIFEST, "manifest", f"names the file of inputs {path}, which is not among its files")
    for outcome in ("written", "rejected"):
        total = sum(count.rows for count in manifest.totals if count.outcome == outcome)
        if getattr(manifest, outcome) != total:
            yield _issue(f"{outcome} is {getattr(manifest, outcome):,}, but its totals sum to {total:,}")
    if manifest.read != manifest.written + manifest.rejected:
        yield _issue(
            f"{manifest.read:,} records read, {manifest.written:,} written and {manifest.rejected:,} rejected",
        )
