"""`python -m schemas.init FILE ...`: writes a schema from raw data."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from collections.abc import Sequence

from schemas import command, storage
from schemas.display import ReadingDisplay
from schemas.errors import UsageError
from schemas.options import QUIET_HELP, Options, option

PROG = "python -m schemas.init"
_SHOWN = 3  # inputs that the next command names

_EPILOG = """\
examples:
  %(prog)s data.csv --label late > schema.yaml
  %(prog)s 'photos/*/*.jpg' --output schema.yaml

The schema goes to standard output, with the evidence in comments; what to look at, and what to do next, to standard
error. Read it before you use it: it is a beginning.
Exit codes: 0 done, 1 failed, 2 invalid usage.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InitOptions(Options):
    """Which files a schema is made from."""

    files: tuple[str, ...] = option("CSV files of one form, or images; paths or globs", positional=True, metavar="FILE")
    label: str | None = option("the column to predict, by name or position (default: a guess)", None, metavar="COLUMN")
    sample: bool = option("read the first 8 MB only, or 2,000 images", False)
    name: str | None = option("the dataset's name (default: the file's)", None, metavar="NAME")
    output: str | None = option("write the schema to this file (default: standard output)", None, metavar="FILE")
    overwrite: bool = option("replace an existing file", False)
    quiet: bool = option(QUIET_HELP, False)


def _run(options: InitOptions, prog: str) -> command.Report:
    from schemas.init.images import are_images, infer_images
    from schemas.init.tables import infer_table
    from schemas.spec.forms import NAME

    if options.name is not None and not NAME.fullmatch(options.name):
        raise UsageError(f"--name {options.name}: a name is a letter, then letters, digits, '_', '-' or '.'")
    if options.output is not None:
        storage.check_scheme(options.output)
        storage.check_output(options.output, overwrite=options.overwrite)
        storage.check_apart(options.files, options.output)
    elif options.overwrite:
        raise UsageError("--overwrite is for --output FILE")
    paths = storage.expand(options.files)
    images = are_images(paths)
    if images and options.label is not None:
        raise UsageError("--label names a column of a table; the classes of images are their folders")
    name, sample = options.name, options.sample
    with ReadingDisplay(quiet=options.quiet, what="images" if images else "records") as display:
        if images:
            inferred = infer_images(paths, sample=sample, name=name, progress=display)
        else:
            storage.check_names(paths)
            inferred = infer_table(paths, label=options.label, sample=sample, name=name, progress=display)
    for note in inferred.notes:
        print(f"note: {note}", file=sys.stderr)
    if options.output is not None:
        storage.write_bytes(options.output, inferred.text.encode())
        begun = f"Wrote {options.output}. Read it, and"
    else:
        begun = "Read the schema, save it as schema.yaml, and"
    job = prog.removesuffix("init") + "preprocess" if prog.endswith(" init") else "python -m beam_jobs.preprocess"
    schema, inputs = shlex.quote(options.output or "schema.yaml"), _inputs(options.files, images=images)
    step = f"{job} --schema {schema} --input {inputs} --output data/{inferred.flags}"
    print(f"{begun} preprocess the data:\n  {step}", file=sys.stderr)
    data = {
        "schema": inferred.text,
        "output": options.output,
        "records": inferred.rows,
        "label": inferred.label,
        "features": [{"name": name, "kind": kind, "columns": width} for name, kind, width in inferred.features],
        "notes": list(inferred.notes),
        "next": step,
    }
    printed = options.output is None
    return command.Report(inferred.text.rstrip("\n") if printed else "", data, only_printed=printed)


def _inputs(files: Sequence[str], *, images: bool) -> str:
    """The inputs of the next command; a pattern of many, which a shell has expanded."""
    if len(files) > _SHOWN:
        folder = os.path.commonpath([os.path.dirname(path) for path in files]) if storage.is_local(files[0]) else ""
        pattern = os.path.join("*", "*") if images else f"*{os.path.splitext(files[0])[1]}"
        files = [os.path.join(folder, pattern)]
    return " ".join(map(shlex.quote, files))


COMMAND = command.Command(
    prog=PROG,
    options=InitOptions,
    work=_run,
    description="Writes a schema from what CSV files or folders of images hold.",
    epilog=_EPILOG,
    instead={"target": "--label"},
)
app, main = COMMAND.app, COMMAND.main
