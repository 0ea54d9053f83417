"""Opens a dataset as its readers do: exit status 0 it opened, 1 refused with a message."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.attack import oracle_dataset
from tools.attack.ground import DATASET, Ask
from tools.attack.rounds import Round


def main(argv: Sequence[str]) -> int:
    """Opens, and loads the graphs' checksums as a trainer would."""
    from schemas.dataset import open_dataset
    from schemas.errors import MillraceError

    try:
        _ = open_dataset(argv[0]).graphs_dir
    except MillraceError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    return 0


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


def some_folder(draw: random.Random, data: Path, told: dict[str, Any]) -> Path:
    """A folder with such a file."""
    return draw.choice(sorted({(data / n).parent for n in named(told)}))


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
    folder = some_folder(draw, data, told)
    shutil.rmtree(folder)
    return Done(f"the folder {folder.name} removed", refused=True)


def add(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    folders = [path for path in (data / told["run"]).rglob("*") if path.is_dir()] + [data / told["run"]]
    path = draw.choice(sorted(folders)) / draw.choice(["extra", "train-00009-of-00009.tfrecord", ".hidden"])
    path.write_bytes(draw.randbytes(draw.choice([0, 100])))
    return Done(f"{path.name} added to {path.parent.name}")


def link(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    path = draw.choice([some_file(draw, data, told, least=0), some_folder(draw, data, told)])
    outside = data.parent / "outside"
    shutil.move(path, outside)
    path.symlink_to(outside)
    return Done(f"{path.name} is a link out of the dataset", refused=True)


def link_more(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    folder = draw.choice([data / told["run"], data / told["run"] / "transform_fn"])
    outside = data.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    (folder / "more").symlink_to(outside)
    return Done(f"a link to a folder added to {folder.name}")


SUMMED = {"rows", "read", "written", "rejected"}
Place = tuple[Any, ...]  # the keys and indices that lead to a value of the manifest


def places(told: Any, path: Place = ()) -> Iterator[tuple[Place, Any]]:
    """The values of the manifest that are no lists or objects, and where they are."""
    if isinstance(told, dict | list):
        for key, value in told.items() if isinstance(told, dict) else enumerate(told):
            yield from places(value, (*path, key))
    else:
        yield path, told


def edit(
    draw: random.Random,
    data: Path,
    told: dict[str, Any],
    chosen: Callable[[Place, Any], bool],
    change: Callable[[Any], Any],
    *,
    refused: bool = True,
) -> Done:
    """Changes one of the chosen values."""
    path, value = draw.choice([(path, value) for path, value in places(told) if chosen(path, value)])
    holder: Any = told
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = change(value)
    (data / "manifest.json").write_text(json.dumps(told))
    return Done(f"{'.'.join(map(str, path))} became {holder[path[-1]]!r} in manifest.json", refused=refused)


def edit_number(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    """A whole number that sums or sizes show to be wrong."""

    def summed(path: Place, value: Any) -> bool:
        sized = path[-1] == "bytes" and path[0] in ("splits", "files")
        return type(value) is int and (path[-1] in SUMMED or sized)

    return edit(draw, data, told, summed, lambda value: value + draw.choice([1, -1, 7, 10**6]))


def edit_checksum(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    def sums(path: Place, value: Any) -> bool:
        return (path[0], path[-1]) in (("files", "sha256"), ("splits", "crc32c"))

    return edit(draw, data, told, sums, lambda value: value[:-1] + ("0" if value[-1] != "0" else "1"), refused=False)


def lead_out(draw: random.Random, data: Path, told: dict[str, Any]) -> Done:
    def led(path: Place, value: Any) -> bool:
        return path == ("run",) or (path[0], path[-1]) == ("splits", "path")

    def outside(value: str) -> str:
        return draw.choice([f"../{value}", f"/{value}", f"{value}/../{value}", "", "."])

    return edit(draw, data, told, led, outside)


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


DAMAGES: tuple[Damage, ...] = (
    *(flip, flip, flip, cut, grow, overwrite, swap, remove, remove_folder, add, link, link, link_more),
    *(edit_number, edit_number, edit_number, edit_checksum, drop_entry, lead_out, garble_manifest, retype),
)


def play(now: Round) -> None:
    """Some damages to copies of one dataset."""
    whole = now.ground("csv", "gzip", "replayed", "images")
    for number in range(DAMAGES_A_ROUND):
        place = now.folder / str(number)
        data = place / "data"
        shutil.copytree(whole.data, data)
        damage = now.draw.choice(DAMAGES)
        done = damage(now.draw, data, oracle_dataset.manifest(data))
        now.count(damage.__name__)
        asks = Ask(DATASET, ("verify", str(data), "--quiet")), Ask("tools.attack.damage", (str(data),))
        verified, opened = now.children.run(*asks)
        now.told = {"done": done.what, "data": str(whole.data), "verify": verified.output, "open": opened.output}
        for answer, who in ((verified, "verify"), (opened, "open_dataset")):
            if answer.crashed:
                title = f"{who} crashed: {damage.__name__}"
                now.fault(title, f"{done.what}: {answer.output[-800:]}", keep=place)
        if done.found and verified.status == 0:
            now.fault(f"verify does not find it: {damage.__name__}", done.what, keep=place)
        if done.refused and opened.status == 0:
            now.fault(f"open_dataset does not refuse it: {damage.__name__}", done.what, keep=place)
        shutil.rmtree(place)
