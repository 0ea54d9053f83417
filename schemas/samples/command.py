"""Generates synthetic rows or images in the format of a shipped schema: `python -m schemas.samples NAME OUTPUT`."""

from __future__ import annotations

import dataclasses
import os

from schemas import command, storage
from schemas.errors import UsageError, counted
from schemas.options import Options, option
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


NAMES = (*sorted(SAMPLES), IMAGES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleOptions(Options):
    """The options of `python -m schemas.samples`."""

    name: str = option("what to generate", positional=True, choices=NAMES)
    output: str = option(
        f"the file to write, local or gs://; for {IMAGES}, a local folder", positional=True, metavar="FILE"
    )
    rows: int | None = option(f"number of rows (default: {ROWS}); not for {IMAGES}", None)
    each: int | None = option(f"images of each shape (default: {EACH}); only for {IMAGES}", None)
    drift: float | None = option(
        "how far what is to be learned has changed, 0 to 1 (default: 0); only for " + ", ".join(DRIFTS),
        None,
        metavar="X",
    )
    seed: int = option("random seed (default: %(default)s)", 1)
    overwrite: bool = option("replace an existing sample", False)


def _run(options: SampleOptions, prog: str) -> command.Report:
    if options.drift is not None and options.name not in DRIFTS:
        raise UsageError(f"--drift is for {', '.join(DRIFTS)}, not for {options.name}")
    drift = options.drift or 0.0
    if not 0 <= drift <= 1:
        raise UsageError(f"--drift {drift:g}: must be 0 to 1")
    if options.name == IMAGES:
        if options.rows is not None:
            raise UsageError(f"--rows is for tables; give --each for {IMAGES}")
        return _images(options)
    if options.each is not None:
        raise UsageError(f"--each is for {IMAGES}; give --rows for {options.name}")
    rows = ROWS if options.rows is None else options.rows
    if rows < 1 or options.seed < 0:
        raise UsageError("--rows must be 1 or more, and --seed 0 or more")
    storage.check_output(options.output, overwrite=options.overwrite)
    write_sample(options.name, options.output, rows=rows, seed=options.seed, drift=drift)
    text = f"{options.output}: {counted(rows, 'synthetic rows')} in the format of {options.name} (seed {options.seed})"
    data = {"name": options.name, "output": options.output, "rows": rows, "seed": options.seed}
    return command.Report(text, {**data, "drift": drift} if drift else data)


def _images(options: SampleOptions) -> command.Report:
    folder, seed, images_per_shape = options.output, options.seed, EACH if options.each is None else options.each
    if images_per_shape < 1 or seed < 0:
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
    count = write_shapes(folder, per_shape=images_per_shape, seed=seed)
    text = f"{count} synthetic images of {', '.join(SHAPES)} in {folder}"
    return command.Report(text, {"name": IMAGES, "output": folder, "images": count, "seed": seed})


COMMAND = command.Command(
    prog=PROG,
    options=SampleOptions,
    work=_run,
    description="Generates a CSV file of synthetic rows in the format of a shipped schema, or synthetic images.",
    epilog=_EPILOG,
)
app, main = COMMAND.app, COMMAND.main
