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


@dataclasses.dataclass(frozen=True)
class Victim:
    """A copy of a dataset, its manifest as JSON, and what draws how it is damaged."""

    draw: random.Random
    data: Path
    told: dict[str, Any]

    @property
    def named(self) -> list[str]:
        """Every file that the manifest names."""
        shards = [shard["path"] for split in self.told["splits"].values() for shard in split["shards"]]
        return shards + [file["path"] for file in self.told["files"]]

    def file(self, *, least: int = 1) -> Path:
        """A file that the manifest names, of `least` bytes or more."""
        return self.data / self.draw.choice([n for n in self.named if (self.data / n).stat().st_size >= least])

    def folder(self) -> Path:
        """A folder with such a file."""
        return self.draw.choice(sorted({(self.data / n).parent for n in self.named}))

    def tell(self) -> None:
        """Writes the changed manifest."""
        (self.data / "manifest.json").write_text(json.dumps(self.told))


Damage = Callable[[Victim], Done]


def flip(victim: Victim) -> Done:
    path = victim.file()
    content = bytearray(path.read_bytes())
    place = victim.draw.randrange(len(content))
    content[place] ^= 1 << victim.draw.randrange(8)
    path.write_bytes(content)
    return Done(f"a bit of byte {place} of {path.name}")


def cut(victim: Victim) -> Done:
    path = victim.file()
    size = victim.draw.randrange(path.stat().st_size)
    os.truncate(path, size)
    return Done(f"{path.name} cut to {size}", refused=True)


def grow(victim: Victim) -> Done:
    path = victim.file()
    path.write_bytes(path.read_bytes() + victim.draw.randbytes(victim.draw.randint(1, 40)))
    return Done(f"{path.name} grown", refused=True)


def overwrite(victim: Victim) -> Done:
    path = victim.file(least=64)
    content = bytearray(path.read_bytes())
    place = victim.draw.randrange(len(content) - 32)
    content[place : place + 32] = victim.draw.randbytes(32)
    path.write_bytes(content)
    return Done(f"32 bytes at {place} of {path.name}")


def swap(victim: Victim) -> Done:
    contents: dict[bytes, str] = {(victim.data / n).read_bytes(): n for n in victim.named}
    (one, a), (other, b) = victim.draw.sample(sorted(contents.items(), key=lambda item: item[1]), 2)
    (victim.data / a).write_bytes(other)
    (victim.data / b).write_bytes(one)
    return Done(f"{a} and {b} swapped", refused=len(one) != len(other))


def remove(victim: Victim) -> Done:
    path = victim.file(least=0)
    path.unlink()
    return Done(f"{path.name} removed", refused=True)


def remove_folder(victim: Victim) -> Done:
    folder = victim.folder()
    shutil.rmtree(folder)
    return Done(f"the folder {folder.name} removed", refused=True)


def add(victim: Victim) -> Done:
    folders = [path for path in (victim.data / victim.told["run"]).rglob("*") if path.is_dir()] + [
        victim.data / victim.told["run"]
    ]
    path = victim.draw.choice(sorted(folders)) / victim.draw.choice(
        ["extra", "train-00009-of-00009.tfrecord", ".hidden"]
    )
    path.write_bytes(victim.draw.randbytes(victim.draw.choice([0, 100])))
    return Done(f"{path.name} added to {path.parent.name}")


def link(victim: Victim) -> Done:
    path = victim.draw.choice([victim.file(least=0), victim.folder()])
    outside = victim.data.parent / "outside"
    shutil.move(path, outside)
    path.symlink_to(outside)
    return Done(f"{path.name} is a link out of the dataset", refused=True)


def link_more(victim: Victim) -> Done:
    folder = victim.draw.choice([victim.data / victim.told["run"], victim.data / victim.told["run"] / "transform_fn"])
    outside = victim.data.parent / "outside"
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
    victim: Victim,
    chosen: Callable[[Place, Any], bool],
    change: Callable[[Any], Any],
    *,
    refused: bool = True,
) -> Done:
    """Changes one of the chosen values."""
    path, value = victim.draw.choice([(path, value) for path, value in places(victim.told) if chosen(path, value)])
    holder: Any = victim.told
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = change(value)
    victim.tell()
    return Done(f"{'.'.join(map(str, path))} became {holder[path[-1]]!r} in manifest.json", refused=refused)


def edit_number(victim: Victim) -> Done:
    """A whole number that sums or sizes show to be wrong."""

    def summed(path: Place, value: Any) -> bool:
        sized = path[-1] == "bytes" and path[0] in ("splits", "files")
        return type(value) is int and (path[-1] in SUMMED or sized)

    return edit(victim, summed, lambda value: value + victim.draw.choice([1, -1, 7, 10**6]))


def edit_checksum(victim: Victim) -> Done:
    def sums(path: Place, value: Any) -> bool:
        return (path[0], path[-1]) in (("files", "sha256"), ("splits", "crc32c"))

    return edit(victim, sums, lambda value: value[:-1] + ("0" if value[-1] != "0" else "1"), refused=False)


def lead_out(victim: Victim) -> Done:
    def led(path: Place, value: Any) -> bool:
        return path == ("run",) or (path[0], path[-1]) == ("splits", "path")

    def outside(value: str) -> str:
        return victim.draw.choice([f"../{value}", f"/{value}", f"{value}/../{value}", "", "."])

    return edit(victim, led, outside)


def drop_entry(victim: Victim) -> Done:
    split = victim.draw.choice(
        [s for s, c in victim.told["splits"].items() if any(shard["rows"] for shard in c["shards"])]
    )
    shards = victim.told["splits"][split]["shards"]
    shard = victim.draw.choice([s for s in shards if s["rows"]])
    if victim.draw.random() < 0.5:
        shards.remove(shard)
    else:
        shards.append(shard)
    victim.tell()
    return Done(f"a shard of {split} left out or named twice", refused=True)


def garble_manifest(victim: Victim) -> Done:
    path = victim.data / "manifest.json"
    content = bytearray(path.read_bytes())
    if victim.draw.random() < 0.3:
        path.write_bytes(content[: victim.draw.randrange(len(content) - 2)])
        return Done("manifest.json cut", refused=True)
    for _ in range(victim.draw.randint(1, 5)):
        content[victim.draw.randrange(len(content))] = victim.draw.randrange(256)
    path.write_bytes(content)
    return Done("bytes of manifest.json", found=False)


def retype(victim: Victim) -> Done:
    key = victim.draw.choice(sorted(victim.told))
    victim.told[key] = victim.draw.choice([None, -1, "x", [], {}, [1], 1e300, True])
    victim.tell()
    return Done(f"{key} is {victim.told[key]!r} in manifest.json", found=False)


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
        done = damage(Victim(now.draw, data, oracle_dataset.manifest(data)))
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
