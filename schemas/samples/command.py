"""`python -m schemas.samples NAME OUTPUT`: synthetic rows in the format of a shipped schema, or synthetic images."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from schemas import command, storage
from schemas.errors import UsageError
from schemas.samples.images import SHAPES, drawn, write_shapes
from schemas.samples.tables import DRIFTS, SAMPLES, write_sample

PROG = "python -m schemas.samples"
IMAGES = "shapes"
ROWS, EACH = 20_000, 150

_EPILOG = """\
examples:
  %(prog)s covertype covertype.csv --rows 20000 --seed 1
  %(prog)s shapes shapes/ --each 150

The rows and images are synthetic: nothing real can be learned from them.
Exit codes: 0 done, 1 failed, 2 invalid usage.
"""


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser."""
    p = command.Parser(
        prog=prog,
        description="Generates a CSV file of synthetic rows in the format of a shipped schema, or synthetic images.",
        epilog=_EPILOG,
    )
    names = (*sorted(SAMPLES), IMAGES)
    p.add_argument("name", choices=names, metavar="NAME", help=f"what to generate: {', '.join(names)}")
    p.add_argument("output", metavar="FILE", help=f"the file to write, local or gs://; for {IMAGES}, a local folder")
    p.add_argument("--rows", type=int, metavar="N", help=f"number of rows (default: {ROWS}); not for {IMAGES}")
    p.add_argument("--each", type=int, metavar="N", help=f"images of each shape (default: {EACH}); only for {IMAGES}")
    p.add_argument(
        "--drift",
        type=float,
        metavar="X",
        help="how far what is to be learned has changed, 0 to 1 (default: 0); only for " + ", ".join(DRIFTS),
    )
    _add_shared(p)
    return p


def _add_shared(p: argparse.ArgumentParser) -> None:
    p.add_argument("--seed", type=int, default=1, metavar="N", help="random seed (default: %(default)s)")
    p.add_argument("--overwrite", action="store_true", help="replace an existing sample")
    p.add_argument("--json", action="store_true", help=command.JSON_HELP)


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """The command line. Returns the exit code."""
    return command.run(_run, argv, prog=prog)


def image_main(argv: Sequence[str] | None = None, *, prog: str = "python -m schemas.image_samples") -> int:
    """The same for drawn images alone, without their name."""
    p = command.Parser(prog=prog, description="Draws discs, squares and triangles, in a folder for each.")
    p.add_argument("output", metavar="DIR", help="the folder to write into")
    p.add_argument("--each", type=int, default=EACH, metavar="N", help="images of each shape (default: %(default)s)")
    _add_shared(p)

    def draw(argv: Sequence[str], prog: str) -> command.Report:
        options = p.parse_args(argv)
        return _images(options, each=options.each)

    return command.run(draw, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    options = parser(prog).parse_args(argv)
    if options.drift is not None and options.name not in DRIFTS:
        raise UsageError(f"--drift is for {', '.join(DRIFTS)}, not for {options.name}")
    drift = options.drift or 0.0
    if not 0 <= drift <= 1:
        raise UsageError(f"--drift {drift:g}: must be 0 to 1")
    if options.name == IMAGES:
        if options.rows is not None:
            raise UsageError(f"--rows is for tables; give --each for {IMAGES}")
        return _images(options, each=EACH if options.each is None else options.each)
    if options.each is not None:
        raise UsageError(f"--each is for {IMAGES}; give --rows for {options.name}")
    rows = ROWS if options.rows is None else options.rows
    if rows < 1 or options.seed < 0:
        raise UsageError("--rows must be 1 or more, and --seed 0 or more")
    storage.check_output(options.output, overwrite=options.overwrite)
    write_sample(options.name, options.output, rows=rows, seed=options.seed, drift=drift)
    text = f"{options.output}: {rows:,} synthetic rows in the format of {options.name} (seed {options.seed})"
    data = {"name": options.name, "output": options.output, "rows": rows, "seed": options.seed}
    return command.Report(text, {**data, "drift": drift} if drift else data)


def _images(options: argparse.Namespace, *, each: int) -> command.Report:
    folder, seed = options.output, options.seed
    if each < 1 or seed < 0:
        raise UsageError("--each must be 1 or more, and --seed 0 or more")
    storage.check_scheme(folder)
    if not storage.is_local(folder):
        raise UsageError(f"{folder}: images are drawn into a local folder; copy that folder to the bucket")
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UsageError(f"{folder}: is not a folder; give a folder or a new name")
    there = drawn(folder)
    if there and not options.overwrite:
        raise UsageError(f"{folder}: holds drawn images already; give --overwrite to replace them")
    for path in there:
        os.remove(path)
    count = write_shapes(folder, each=each, seed=seed)
    text = f"{count} synthetic images of {', '.join(SHAPES)} in {folder}"
    return command.Report(text, {"name": IMAGES, "output": folder, "images": count, "seed": seed})
