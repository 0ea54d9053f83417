"""Whole datasets, damaged in every way: `verify` finds it, readers refuse what names, sizes and sums show."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.attack import read_back
from tools.attack.children import Ask, Children
from tools.attack.ground import ground
from tools.attack.tally import Tally

KIND = "damage"
DAMAGES_A_ROUND = 8


@dataclasses.dataclass(frozen=True)
class Done:
    """What was done, and who has to notice: `verify`, and what opens the dataset."""

    what: str
    found: bool = True
    refused: bool = False


Damage = Callable[[random.Random, Path, dict[str, Any]], Done]


def named(told: dict[str, Any]) -> list[str]:
    """Every file that the manifest names."""
    shards = [shard["path"] for split in told["splits"].values() for shard in split["shards"]]
    return shards + [file["path"] for file in told["files"]]


def some_file(draw: random.Random, data: Path, told: dict[str, Any], *, least: int = 1) -> Path:
    """A file that the manifest names, of `least` bytes or more."""
    return data / draw.choice([n for n in named(told) if (data / n).stat().st_size >= least])


def flip(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    path = some_file(draw, data, told)
    content = bytearray(path.read_bytes())
    place = draw.randrange(len(content))
    content[place] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    return Done(f"a bit of byte {place} of {path.name}")


def cut(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    path = some_file(draw, data, told)
    size = draw.randrange(path.stat().st_size)
    os.truncate(path, size)
    return Done(f"{path.name} cut to {size}", refused=True)


def grow(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    path = some_file(draw, data, told)
    path.write_bytes(path.read_bytes() + draw.randbytes(draw.randint(1, 40)))
    return Done(f"{path.name} grown", refused=True)


def overwrite(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    path = some_file(draw, data, told, least=64)
    content = bytearray(path.read_bytes())
    place = draw.randrange(len(content) - 32)
    content[place : place + 32] = draw.randbytes(32)
    path.write_bytes(content)
    return Done(f"32 bytes at {place} of {path.name}")


def swap(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    contents: dict[bytes, str] = {(data / n).read_bytes(): n for n in named(told)}
    (one, a), (other, b) = draw.sample(sorted(contents.items(), key=lambda item: item[1]), 2)
    (data / a).write_bytes(other)
    (data / b).write_bytes(one)
    return Done(f"{a} and {b} swapped", refused=len(one) != len(other))


def remove(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    path = some_file(draw, data, told, least=0)
    path.unlink()
    return Done(f"{path.name} removed", refused=True)


def remove_folder(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    folders = sorted({(data / n).parent for n in named(told)})
    folder = draw.choice(folders)
    shutil.rmtree(folder)
    return Done(f"the folder {folder.name} removed", refused=True)


def add(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    folders = [path for path in (data / told["run"]).rglob("*") if path.is_dir()] + [data / told["run"]]
    path = draw.choice(sorted(folders)) / draw.choice(["extra", "train-00009-of-00009.tfrecord", ".hidden"])
    path.write_bytes(draw.randbytes(draw.choice([0, 100])))
    return Done(f"{path.name} added to {path.parent.name}")


def link_file(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    path = some_file(draw, data, told, least=0)
    outside = data.parent / "outside"
    shutil.move(path, outside)
    path.symlink_to(outside)
    return Done(f"{path.name} is a link out of the dataset", refused=True)


def link_folder(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    folder = draw.choice(sorted({(data / n).parent for n in named(told)}))
    outside = data.parent / "outside"
    shutil.move(folder, outside)
    folder.symlink_to(outside)
    return Done(f"the folder {folder.name} is a link out of the dataset", refused=True)


def link_more(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    folder = draw.choice([data / told["run"], data / told["run"] / "transform_fn"])
    outside = data.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    (folder / "more").symlink_to(outside)
    return Done(f"a link to a folder added to {folder.name}")


SUMMED = {"rows", "read", "written", "rejected"}


def numbers(told: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all whole numbers that sums or sizes show to be wrong."""
    if isinstance(told, dict):
        return [found for key, value in told.items() for found in numbers(value, (*path, key))]
    if isinstance(told, list):
        return [found for i, value in enumerate(told) for found in numbers(value, (*path, i))]
    summed = path[-1] in SUMMED or (path[-1] == "bytes" and path[0] in ("splits", "files"))
    return [path] if summed and type(told) is int else []


def edit_number(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    path = draw.choice(numbers(told))
    change = draw.choice([1, -1, 7, 10**6])
    _put(data, told, path, lambda value: value + change)
    return Done(f"{'.'.join(map(str, path))} changed by {change} in manifest.json", refused=True)


def edit_checksum(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    places: list[tuple[Any, ...]] = [("files", i, "sha256") for i in range(len(told["files"]))]
    places += [("splits", s, "shards", i, "crc32c") for s, c in told["splits"].items() for i in range(len(c["shards"]))]
    path = draw.choice(places)
    _put(data, told, path, lambda value: value[:-1] + ("0" if value[-1] != "0" else "1"))
    return Done(f"{path[0]} {path[-1]} changed in manifest.json")


def drop_entry(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    split = draw.choice([s for s, c in told["splits"].items() if any(shard["rows"] for shard in c["shards"])])
    shards = told["splits"][split]["shards"]
    shard = draw.choice([s for s in shards if s["rows"]])
    if draw.random() < 0.5:
        shards.remove(shard)
    else:
        shards.append(shard)
    (data / "manifest.json").write_text(json.dumps(told))
    return Done(f"a shard of {split} left out or named twice", refused=True)


def lead_out(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    places = [("splits", s, "shards", i, "path") for s, c in told["splits"].items() for i in range(len(c["shards"]))]
    path = draw.choice([("run",), *places])
    _put(data, told, path, lambda value: draw.choice([f"../{value}", f"/{value}", f"{value}/../{value}", "", "."]))
    return Done(f"{path[-1]} leads out", refused=True)


def garble_manifest(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    path = data / "manifest.json"
    content = bytearray(path.read_bytes())
    if draw.random() < 0.3:
        path.write_bytes(content[: draw.randrange(len(content) - 2)])
        return Done("manifest.json cut", refused=True)
    for _ in range(draw.randint(1, 5)):
        content[draw.randrange(len(content))] = draw.randrange(256)
    path.write_bytes(content)
    return Done("bytes of manifest.json", found=False)


def retype(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    key = draw.choice(sorted(told))
    told[key] = draw.choice([None, -1, "x", [], {}, [1], 1e300, True])
    (data / "manifest.json").write_text(json.dumps(told))
    return Done(f"{key} is {told[key]!r} in manifest.json", found=False)


def _put(data: Path, told: dict[str, Any], path: tuple[Any, ...], change: Callable[[Any], Any]) -> None:
    value: Any = told
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = change(value[path[-1]])
    (data / "manifest.json").write_text(json.dumps(told))


DAMAGES: tuple[Damage, ...] = (
    *(flip, flip, flip, cut, grow, overwrite, swap, remove, remove_folder, add, link_file, link_folder, link_more),
    *(edit_number, edit_number, edit_number, edit_checksum, drop_entry, lead_out, garble_manifest, retype),
)


def round_(draw: random.Random, children: Children, folder: Path, tally: Tally, *, seed: str) -> None:
    """Some damages to copies of one dataset."""
    kind = draw.choice(["csv", "gzip", "replayed", "images"])
    whole = ground(kind, children, folder.parent / "ground")
    for number in range(DAMAGES_A_ROUND):
        place = folder / str(number)
        data = place / "data"
        shutil.copytree(whole.data, data)
        damage = draw.choice(DAMAGES)
        done = damage(draw, data, read_back.manifest(data))
        tally.count(KIND, damage.__name__)
        asks = Ask("schemas.dataset", ("verify", str(data), "--quiet")), Ask("tools.attack.opening", (str(data),))
        verified, opened = children.run(*asks)
        told = {"seed": seed, "done": done.what, "data": kind, "verify": verified.output, "open": opened.output}
        for answer, who in ((verified, "verify"), (opened, "open_dataset")):
            if answer.crashed:
                tally.fault(
                    KIND,
                    f"{who} crashed: {damage.__name__}",
                    f"{done.what}: {answer.output[-800:]}",
                    keep=place,
                    **told,
                )
        if done.found and verified.status == 0:
            tally.fault(KIND, f"verify does not find it: {damage.__name__}", done.what, keep=place, **told)
        if done.refused and opened.status == 0:
            tally.fault(KIND, f"open_dataset does not refuse it: {damage.__name__}", done.what, keep=place, **told)
        shutil.rmtree(place)
