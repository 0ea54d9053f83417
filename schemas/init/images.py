"""Writes a schema for image files in folders: their classes, and the size that a model should see."""

from __future__ import annotations

import collections
import mimetypes
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from schemas import storage
from schemas.errors import MillraceError, UsageError, counted
from schemas.images.header import BadImage, ImageHeader, ends_early, read_header
from schemas.images.listing import FIRST, check_first, folders_like_splits, is_image, list_folders, note_of_splits
from schemas.init.survey import Progress
from schemas.init.tables import Inferred, reject_flag
from schemas.init.writing import comment, percent, plain_name, scalar

_LOOKED_AT = 2_000  # images whose headers are read, unless all are
_END_BYTES = 1 << 16  # of a file, at its beginning and at its end
_AT_ONCE = 200
_SIZES = (32, 48, 64, 96, 128, 160, 192, 224)  # sides that a model's input may have
_SMALL = 64  # images of one size up to this are taken as they are
_RAW = 32  # and up to this stored without compression
_NAMED = 30  # classes that are listed
_FEW = 10  # images of a class
_IDENTITIES, _IDENTITY_IMAGES = 20, 30  # from so many folders on, of less than so many images, they may be people


def are_images(paths: Sequence[str]) -> bool:
    """Tells whether most of the first files are images by their first bytes, of formats that are read or not.

    Raises:
        UsageError: none is, but the first is called one, such as a.jpg.
    """
    images = sum(map(is_image, paths[:FIRST]))
    if not images and (mimetypes.guess_type(paths[0])[0] or "").startswith("image/"):
        check_first(paths)
    return 2 * images > len(paths[:FIRST])


def infer_images(
    paths: Sequence[str],
    *,
    sample: bool = False,
    name: str | None = None,
    progress: Progress = lambda done, share: None,
) -> Inferred:
    """Writes a schema for images whose folders are their classes.

    Args:
        paths: the images.
        sample: look at 2,000 of them only.
        name: the dataset's name; None: that of the folder of the classes.
        progress: called with the number of images that were read, and their share.

    Raises:
        UsageError: there is one class, or no image that can be read.
    """
    listing = list_folders(paths)
    sizes = collections.Counter(listing.labels)
    if len(sizes) < 2:
        raise UsageError(
            f"{paths[0]}: all {len(paths):,} images are in one folder, {next(iter(sizes), '')!r}, so that there is one "
            "class; expected a folder for each class, such as 'photos/*/*.jpg'"
        )
    looked_at: Sequence[str] = listing.paths
    if sample:  # spread by a hash of the names
        looked_at = sorted(looked_at, key=lambda path: zlib.crc32(path.encode(errors="surrogateescape")))[:_LOOKED_AT]
    headers, faults = [], collections.defaultdict(list)
    for start in range(0, len(looked_at), _AT_ONCE):
        part = looked_at[start : start + _AT_ONCE]
        for path, header in zip(part, storage.for_each(paths[0], _header_or_fault, part), strict=True):
            if isinstance(header, ImageHeader):
                headers.append(header)
            else:
                faults[header.reason].append(f"{path}: {header.detail}")
        progress(start + len(part), (start + len(part)) / len(looked_at))
    if not headers:
        first = next(iter(faults.values()))[0]
        raise UsageError(f"{first}; none of {counted(len(looked_at), 'image')} can be read")
    notes = [
        f"{counted(len(details), 'image')} of {len(looked_at):,} will be rejected as {reason}, such as {details[0]}"
        for reason, details in sorted(faults.items(), key=lambda pair: -len(pair[1]))
    ]
    if few := [f"{label} {n:,}" for label, n in sizes.most_common() if n < _FEW]:
        classes = "1 class has" if len(few) == 1 else f"{len(few):,} classes have"
        notes.append(f"{classes} less than {_FEW} images: {', '.join(few[:5])}{', ...' if len(few) > 5 else ''}")
    splits = folders_like_splits(listing.paths)
    if len(splits) > 1:
        notes.append(note_of_splits(splits))
    folder = os.path.basename(os.path.dirname(os.path.dirname(paths[0])))
    lines = [
        *_evidence(sizes, headers, len(looked_at), notes),
        *_schema(sizes, headers, name or plain_name(folder, "images")),
    ]
    rejected, read = sum(map(len, faults.values())) + len(listing.rejects), len(looked_at) + len(listing.rejects)
    flags = reject_flag(rejected, read, complete=len(looked_at) == len(listing.paths))
    features = (("image", "image", 1),)
    return Inferred("\n".join(lines) + "\n", tuple(notes), len(listing.paths), "label", features, flags=flags)


def _header_or_fault(path: str) -> ImageHeader | BadImage:
    """An image's header, or why it will be rejected.

    Both ends of a file are enough for most; of one in a bucket, its beginning.
    """
    try:
        with storage.open_read(path) as file, storage.wrap_errors(path):
            ends = file.read(_END_BYTES)
            if storage.is_local(path):
                file.seek(max(len(ends), os.path.getsize(path) - _END_BYTES))
                ends += file.read()
        try:
            header = read_header(ends)
            cut = storage.is_local(path) and ends_early(header, ends)
        except BadImage as error:
            cut = error.reason == "truncated_image"
            if not cut:
                raise
        if cut:  # or the header is long, or other data stands behind the image, such as a phone's film
            data = storage.read_bytes(path)
            header = read_header(data)
            if ends_early(header, data):
                return BadImage("truncated_image", "the file ends before its image does")
        return header
    except BadImage as error:
        return error
    except MillraceError as error:
        return BadImage("unreadable_file", str(error))


def _evidence(
    sizes: collections.Counter[str], headers: Sequence[ImageHeader], looked_at: int, notes: Sequence[str]
) -> Iterator[str]:
    """What the folders and the headers show, as comments. `sizes`: the number of images of each class."""
    count, ranked = sizes.total(), sizes.most_common()
    yield from comment(
        f"Written by `millrace init` from {count:,} images in {len(sizes):,} folders, which are the classes."
    )
    classes = ", ".join(f"{label} {percent(n, count)}" for label, n in ranked[:8])
    classes += " and others" if len(ranked) > 8 else ""
    if ranked[0][1] > 20 * ranked[-1][1]:
        classes += f". Unbalanced, {ranked[0][1] / ranked[-1][1]:,.0f} to 1"
    yield from comment(f"Classes: {classes}.")
    if len(sizes) >= _IDENTITIES and np.median(list(sizes.values())) < _IDENTITY_IMAGES:
        yield from comment(
            "So many folders of so few images may be identities. With split: {by: folder, train: 0.8, eval: 0.2, "
            "test: 0} a model learns to compare two images, instead of telling these classes apart."
        )
    formats = collections.Counter(header.format for header in headers).most_common()
    of_all = "" if looked_at == count else f" of {looked_at:,} of them"
    yield from comment(f"Formats{of_all}: {', '.join(f'{form} {percent(n, len(headers))}' for form, n in formats)}.")
    shapes = [f"{h.height} x {h.width}" for h in sorted(headers, key=lambda header: (header.pixels, header.height))]
    middle = f"{shapes[0]} the smallest, {shapes[len(shapes) // 2]} the middle one, {shapes[-1]} the largest"
    yield from comment(f"Sizes, height x width: {middle if len(set(shapes)) > 1 else f'all {shapes[0]}'}.")
    for note in notes:
        yield from comment(note)


def _schema(sizes: collections.Counter[str], headers: Sequence[ImageHeader], name: str) -> Iterator[str]:
    images, why = _target(headers)
    yield from (f"name: {scalar(name)}", "format: image_folder", *comment(why), f"images: {scalar(images)}")
    if len(sizes) <= _NAMED:
        yield f"label: {{values: {scalar(sorted(sizes))}}}"
    count = sizes.total()
    shares = "train: 0.8, eval: 0.1, test: 0.1" if count >= 100 else "train: 0.8, eval: 0.2, test: 0"
    yield f"split: {{by: content, {shares if count >= 50 else 'train: 0.5, eval: 0.5, test: 0'}}}"


def _target(headers: Sequence[ImageHeader]) -> tuple[dict[str, Any], str]:
    """The key `images`, and why: a size that nine in ten images have without being enlarged."""
    shapes = {(header.height, header.width) for header in headers}
    if len(shapes) == 1 and max(shape := next(iter(shapes))) <= _SMALL:
        stored = {"store": "raw"} if max(shape) <= _RAW else {}
        return {"resize": {"exact": shape}, **stored}, f"All images have {shape[0]} x {shape[1]} pixels."
    shorter = np.array([min(header.height, header.width) for header in headers])
    least = int(np.quantile(shorter, 0.1, method="lower"))
    side = max((size for size in _SIZES if size * 9 // 8 <= least), default=_SIZES[0])
    why = f"Nine in ten images have {least} pixels or more on their shorter side, so that few are enlarged."
    if side >= 128:
        why += " A smaller size trains faster: resize: {shorter: 72}, crop: [64, 64]."
    return {"resize": {"shorter": side * 9 // 8 if side < 224 else 256}, "crop": (side, side)}, why
