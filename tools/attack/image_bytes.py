"""Image files: drawn whole by Pillow, then hurt."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from pathlib import Path

FORMATS = {"JPEG": "jpg", "PNG": "png", "GIF": "gif", "BMP": "bmp"}


def drawn(draw: random.Random, fmt: str) -> bytes:
    """A smooth picture with a little noise, which survives being stored as a JPEG."""
    from PIL import Image, ImageDraw

    size = (draw.randint(16, 90), draw.randint(16, 90))
    mode = draw.choice(["RGB", "RGB", "L"])
    picture = Image.new("RGB", size, tuple(draw.randrange(256) for _ in range(3)))
    pen = ImageDraw.Draw(picture)
    for _ in range(3):
        x, y = draw.randrange(size[0]), draw.randrange(size[1])
        pen.ellipse((x - 12, y - 12, x + 12, y + 12), fill=tuple(draw.randrange(256) for _ in range(3)))
    out = io.BytesIO()
    options = {"quality": 95} if fmt == "JPEG" else {}
    picture.convert(mode).save(out, fmt, **options)
    return out.getvalue()


def draw_folders(draw: random.Random, folder: Path, names: Sequence[str], *, each: int) -> None:
    """A folder for each class or identity."""
    for name in names:
        (folder / name).mkdir(parents=True)
        for i in range(each):
            fmt = draw.choice(sorted(FORMATS))
            (folder / name / f"{i:04d}.{FORMATS[fmt]}").write_bytes(drawn(draw, fmt))


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
