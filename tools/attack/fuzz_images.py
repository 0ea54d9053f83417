"""Image files, whole and hurt, through the real job: each is stored or rejected, and what is stored is the picture."""

from __future__ import annotations

import dataclasses
import io
import json
import random
import warnings
from pathlib import Path
from typing import Any

from tools.attack import oracle_dataset
from tools.attack.ground import FORMATS, IMAGES, JOB, Ask, drawn, job_arguments
from tools.attack.rounds import Round


def hurt(draw: random.Random, content: bytes, fmt: str) -> tuple[bytes, str, bool | None]:
    """A file after an accident, what befell it, and whether it still is a picture (None: decoders may differ)."""
    size = len(content)
    forms = ["cut", "cut early", "flipped", "zeroed", "empty", "text", "tail", "huge", "noise"]
    match draw.choice([*forms, *(["junk between markers"] * 2 if fmt == "JPEG" else [])]):
        case "cut":
            return content[: draw.randrange(size // 2, size)], "cut", None
        case "cut early":
            return content[: draw.randint(1, 20)], "cut early", False
        case "flipped":
            changed = bytearray(content)
            for _ in range(draw.randint(1, 8)):
                changed[draw.randrange(size)] ^= 1 << draw.randrange(8)
            return bytes(changed), "flipped", None
        case "zeroed":
            return bytes(size), "zeroed", False
        case "empty":
            return b"", "empty", False
        case "text":
            return b"<html>not found</html>\n" * draw.randint(1, 50), "text", False
        case "tail":
            return content + draw.randbytes(draw.randint(1, 500)), "tail", True if fmt == "JPEG" else None
        case "huge":
            return _huge(content, fmt), "huge header", None if fmt == "GIF" else False
        case "noise":
            return content[:10] + draw.randbytes(size), "noise", None
        case _:
            return _with_junk(draw, content), "junk between markers", True


def _huge(content: bytes, fmt: str) -> bytes:
    """The same file, whose header claims 60,000 by 60,000 pixels."""
    changed = bytearray(content)
    side = 60_000
    if fmt == "PNG":
        import zlib

        changed[16:24] = side.to_bytes(4, "big") * 2
        changed[29:33] = zlib.crc32(bytes(changed[12:29])).to_bytes(4, "big")
    elif fmt == "BMP":
        changed[18:26] = side.to_bytes(4, "little") * 2
    elif fmt == "GIF":
        changed[6:10] = side.to_bytes(2, "little") * 2
    else:
        frame = next(i for i in range(len(changed) - 9) if changed[i] == 0xFF and changed[i + 1] in (0xC0, 0xC2))
        changed[frame + 5 : frame + 9] = side.to_bytes(2, "big") * 2
    return bytes(changed)


def _with_junk(draw: random.Random, content: bytes) -> bytes:
    """A JPEG with bytes that belong to nothing between its first segments, which decoders pass over."""
    end = 4 + int.from_bytes(content[4:6], "big")
    junk = bytes(draw.randrange(1, 255) for _ in range(draw.randint(1, 6)))
    return content[:end] + junk + content[end:]


FILES = 60
SIDE = 24
NEAR = 14.0  # levels that stored pixels may be off in the mean: a JPEG of a small picture


@dataclasses.dataclass(frozen=True)
class File:
    """A file, what was done to it, and whether it is stored: True, False, or None where decoders may differ."""

    path: str
    content: bytes
    done: str
    good: bool | None


def draw_files(draw: random.Random, folder: Path) -> list[File]:
    """Files of two classes, a good half of them whole."""
    files = []
    for number in range(FILES):
        fmt = draw.choice(sorted(FORMATS))
        content, done = drawn(draw, fmt), "whole"
        good: bool | None = True
        if draw.random() < 0.5:
            content, done, good = hurt(draw, content, fmt)
        ending = draw.choice([FORMATS[fmt], FORMATS[fmt], "jpg", "txt", "JPEG"])
        path = folder / draw.choice(["cats", "dogs"]) / f"{number:04d}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        files.append(File(str(path), content, done, good))
    return files


def job(folder: Path, output: Path, *more: str, **images: str) -> Ask:
    """A job over the drawn files in a folder, stored in some way."""
    schema = folder / "schema.yaml"
    schema.write_text(json.dumps({**IMAGES, "images": {**IMAGES["images"], **images}}))
    return Ask(JOB, job_arguments(schema, (f"{folder}/in/*/*",), output, *more))


def pixels(content: bytes) -> Any:
    """What Pillow makes of a file, in the size that is stored; None where it makes nothing of it."""
    import numpy as np
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            picture = Image.open(io.BytesIO(content))
            picture.load()
        return np.asarray(picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float64)
    except Exception:
        return None


def play(now: Round) -> None:
    """One job over some files."""
    draw, output = now.draw, now.folder / "out"
    files = draw_files(draw, now.folder / "in")
    store = draw.choice(["raw", "jpeg"])
    (answer,) = now.run(job(now.folder, output, "--num_shards", str(draw.randint(1, 3)), store=store))
    now.count("files", len(files))
    if answer.status:
        now.found.add("the job failed", answer.output[-1500:])
        return
    judge(files, output, now)
    now.verify(output)


def judge(files: list[File], output: Path, now: Round) -> None:
    """Holds what was stored and rejected to the files."""
    tell = now.found.add
    manifest = oracle_dataset.manifest(output)
    rejects = list(oracle_dataset.rejects(*oracle_dataset.reject_files(output)))
    rejected = {r.raw.decode(): r.reason for r in rejects}
    stored = [r.values for r in oracle_dataset.stored(output, manifest)]
    by_name = {Path(v["image/filename"][0].decode()).name: v for v in stored}
    if len(files) != manifest["read"] or len(rejects) + len(stored) != len(files) or len(by_name) != len(stored):
        tell("files are lost or doubled", f"{len(files)} files, {len(stored)} stored, {len(rejects)} rejected")
    for file in files:
        values, reason = by_name.get(Path(file.path).name), rejected.get(file.path)
        now.count(f"{file.done}: {'stored' if values else 'rejected'}")
        if (values is None) == (reason is None):
            tell("a file is neither or both", f"{file.path}: {file.done}, {reason}")
        elif file.good and values is None:
            tell(f"a good file is rejected: {reason}", f"{file.path}: {file.done}")
        elif file.good is False and values is not None:
            tell(f"a bad file is stored: {file.done}", file.path)
        elif values is not None and file.good:  # of a hurt one, decoders make different pictures
            off = distance(file.content, values)
            if off is not None and off > NEAR:
                tell("stored pixels are another picture", f"{file.path}: {file.done}, off by {off:.1f}")


def distance(content: bytes, values: dict[str, list[Any]]) -> float | None:
    """The mean difference of a stored picture and its file; None where the file cannot be compared."""
    import numpy as np
    from PIL import Image

    expected = pixels(content)
    if expected is None:
        return None
    encoded = values["image/encoded"][0]
    if values["image/format"] == [b"JPEG"]:
        picture = np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"), np.float64)
    else:
        picture = np.frombuffer(encoded, np.uint8).reshape(SIDE, SIDE, 3).astype(np.float64)
    return float(np.abs(picture - expected).mean())
