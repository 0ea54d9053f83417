"""Verifies a complete dataset directory against its manifest, by reading every byte of every file.

`open_dataset` only checks sizes, names, links and the sums in the manifest. Other damage, such as a flipped bit,
swapped shards or a graph of another run, is found only here.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import os
from collections.abc import Callable, Collection, Iterator

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.check_records import Content, RecordCheck, ShardCheck
from schemas.dataset.checks import Issue, ReadProgress, named, verify_account, verify_input_files, verify_rejects
from schemas.dataset.manifest import File, Manifest, Shard, read_manifest
from schemas.dataset.prune import files_of_run
from schemas.dataset.records import stored_features
from schemas.errors import MillraceError
from schemas.spec.images import ImageSchema
from schemas.spec.loader import load_schema
from schemas.storage.content import sha256_of
from schemas.storage.folders import link_fault, links_of

_GRAPHS = {
    layout.TRANSFORM_FN: "the transform graph",
    layout.TRANSFORMED_METADATA: "the description of the transformed features",
    layout.INGEST_FN: "the ingest graph",
}


def verify_dataset(data_dir: str, *, threads: int | None = None, tally: ReadProgress | None = None) -> list[Issue]:
    """Reads a complete dataset and returns all problems.

    Args:
      data_dir: a dataset directory, local or gs://.
      threads: the number of files that are read in parallel; None: one for each core.
      tally: counts what has been read, for a display.

    Returns:
      The problems: first those of the manifest, then the others by path. Empty if the dataset is valid.

    Raises:
      MillraceError: there is no manifest, or it cannot be read.
    """
    manifest = read_manifest(data_dir)
    tally = tally or ReadProgress()
    links = _links(data_dir, manifest)
    problems = [*verify_account(manifest), *links, *_extra(data_dir, manifest, {link.path for link in links})]
    checks, unread = _checks(data_dir, manifest, {link.path for link in links})
    problems += unread
    with concurrent.futures.ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        try:
            jobs = [pool.submit(check, tally) for check in checks]
            issues = [problem for job in jobs for problem in job.result()]
        except BaseException:
            tally.stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    if not links:  # a link could lead to files of another dataset, whose counts differ
        issues += verify_rejects(data_dir, manifest)
        issues += verify_input_files(data_dir, manifest)
    return problems + sorted(issues, key=lambda p: p.path)  # a stable sort: each file's problems stay in order


def total_bytes(manifest: Manifest) -> int:
    """Returns how many bytes `verify_dataset` reads of a dataset."""
    return sum(file.bytes for file in manifest.contents)


def _links(data_dir: str, manifest: Manifest) -> list[Issue]:
    """Returns an issue for each link in the run's folder, or at another path that the manifest names."""
    paths = links_of(data_dir, manifest.run, named(manifest))
    return [Issue(path, "link", link_fault(layout.join(data_dir, path))) for path in paths]


def _behind(links: Collection[str], path: str) -> bool:
    """Whether a path is a link or leads through one. Such paths are not read."""
    return any(path == link or path.startswith(f"{link}/") for link in links)


def _extra(data_dir: str, manifest: Manifest, links: Collection[str]) -> Iterator[Issue]:
    """Yields an issue for each file in the run's folder that the manifest does not name.

    Files that clean-up removes are no issue.
    """
    named_paths = set(named(manifest))
    for name in files_of_run(data_dir, manifest.run):
        path = layout.join(manifest.run, name)
        if path not in named_paths and not _behind(links, path):
            yield Issue(path, "extra", f"is not named by {layout.MANIFEST}: readers ignore it, and no job wrote it")


def _checks(
    data_dir: str, manifest: Manifest, links: Collection[str]
) -> tuple[list[Callable[[ReadProgress], list[Issue]]], list[Issue]]:
    """Returns the checks of all files, and issues.

    Returns:
      A function for each file, the largest file first, so that the threads end at about the same time; and an issue if
      records cannot be checked against the schema.
    """
    # Which file has which content, to recognize files that were swapped.
    by_content: dict[Content, list[str]] = collections.defaultdict(list)
    for shard in manifest.shards:
        by_content[shard.bytes, shard.crc32c].append(shard.path)
    by_sha256 = {file.sha256: file.path for file in manifest.contents if isinstance(file, File)}
    described = (layout.SCHEMA_YAML, f"{layout.TRANSFORMED_METADATA}/{layout.SCHEMA_PBTXT}")
    is_linked = any(_behind(links, layout.join(manifest.run, name)) for name in described)
    record_check, problems = (None, list[Issue]()) if is_linked else _record_check(data_dir, manifest)
    check_shard = ShardCheck(manifest.compression == "gzip", dict(by_content), record_check)

    def check(file: Shard | File, tally: ReadProgress) -> list[Issue]:
        path = layout.join(data_dir, file.path)
        if not storage.exists(path):
            return [Issue(file.path, "missing", "is missing. Restore it, or write the dataset again.")]
        try:
            chunks = tally.chunks(path)
            issues = (
                check_shard(file, chunks, tally) if isinstance(file, Shard) else _check_file(by_sha256, file, chunks)
            )
        except MillraceError as error:
            return [Issue(file.path, "unreadable", f"cannot be read to the end: {error}")]
        tally.add(files=1)
        return issues

    files = [file for file in manifest.contents if not _behind(links, file.path)]
    return [functools.partial(check, file) for file in sorted(files, key=lambda file: -file.bytes)], problems


def _record_check(data_dir: str, manifest: Manifest) -> tuple[Callable[[], RecordCheck] | None, list[Issue]]:
    """Returns a function that makes the check of records.

    If the schema or the features cannot be read, None and an issue.
    """
    path = layout.join(manifest.run, layout.SCHEMA_YAML)
    try:
        schema = load_schema(layout.join(data_dir, path))
        if schema.fingerprint != manifest.schema_fingerprint:
            return None, [Issue(path, "schema", "is not the schema that this dataset was written with")]
        features = stored_features(data_dir, manifest, schema)
    except MillraceError as error:
        return None, [Issue(path, "schema", f"the records were not checked against the schema: {error}")]
    images = schema.images if isinstance(schema, ImageSchema) else None
    return functools.partial(RecordCheck, features, images, manifest.classes), []


def _check_file(by_sha256: dict[str, str], file: File, chunks: Iterator[bytes]) -> list[Issue]:
    """Checks the size and the checksum of a file that is not a shard."""
    size, sha256 = sha256_of(chunks)
    if (size, sha256) == (file.bytes, file.sha256):
        return []
    if sha256 in by_sha256:
        return [Issue(file.path, "swapped", f"holds the bytes of {by_sha256[sha256]}")]
    graph = _GRAPHS.get(file.path.split("/")[1])
    what = f"is not {graph} that this dataset was written with" if graph else "was changed after it was written"
    message = (
        f"{what}: {size:,} bytes with the sha256 {sha256[:16]}..., and {layout.MANIFEST} says {file.bytes:,} bytes "
        f"with {file.sha256[:16]}..."
    )
    return [Issue(file.path, "graph" if graph else "changed", message)]


__all__ = ["Issue", "ReadProgress", "total_bytes", "verify_dataset"]
