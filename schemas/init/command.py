"""`python -m schemas.init FILE ...`: writes a schema from raw data."""

from __future__ import annotations

import dataclasses
import os
import sys

from schemas import command, storage
from schemas.display import ReadingDisplay, shell_word
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

    files: tuple[str, ...] = option(
        "CSV files of one form, or images; paths or globs", name="files", action="store", metavar="FILE"
    )
    label: str | None = option("the column to predict, by name or position (default: a guess)", None, metavar="COLUMN")
    sample: bool = option("read the first 8 MB only, or 2,000 images", False)
    name: str | None = option("the dataset's name (default: the file's)", None, metavar="NAME")
    output: str | None = option("write the schema to this file (default: standard output)", None, metavar="FILE")
    overwrite: bool = option("replace an existing file", False)
    quiet: bool = option(QUIET_HELP, False)


def _run(options: InitOptions, prog: str) -> command.Report:
    from schemas.init.images import are_images, infer_images
    from schemas.init.trial import infer_table
    from schemas.spec.forms import NAME

    if options.name is not None and not NAME.fullmatch(options.name):
        raise UsageError(f"--name {options.name}: a name is a letter, then letters, digits, '_', '-' or '.'")
    if options.output is not None:
        storage.check_scheme(options.output)
        storage.check_output(options.output, overwrite=options.overwrite)
        storage.check_apart(options.files, options.output)
    elif options.overwrite:
        raise UsageError("--overwrite is for --output FILE")
    try:
        paths = storage.expand(options.files)
    except UsageError as error:
        first, *others = options.files
        column = len(others) == 1 and str(error).startswith(f"{others[0]}:") and os.path.exists(first)
        hint = f"; did you mean --label {others[0]}?" if column and not options.label else ""
        raise UsageError(f"{error}{hint}") from None
    images = are_images(paths)
    if images:
        if options.label is not None:
            raise UsageError("--label names a column of a table; the classes of images are their folders")
        with ReadingDisplay(quiet=options.quiet, what="images") as display:
            inferred = infer_images(paths, sample=options.sample, name=options.name, progress=display)
    else:
        storage.check_names(paths)
        with ReadingDisplay(quiet=options.quiet, what="records") as display:
            inferred = infer_table(
                paths, label=options.label, sample=options.sample, name=options.name, progress=display
            )
    for note in inferred.notes:
        print(f"note: {note}", file=sys.stderr)
    if options.output is not None:
        storage.write_bytes(options.output, inferred.text.encode())
    step = _next_step(prog, options, inferred.flags, images=images)
    print(f"{step[0]}\n  {step[1]}", file=sys.stderr)
    data = {
        "schema": inferred.text,
        "output": options.output,
        "records": inferred.rows,
        "label": inferred.label,
        "features": [{"name": name, "kind": kind, "columns": width} for name, kind, width in inferred.features],
        "notes": list(inferred.notes),
        "next": step[1],
    }
    return command.Report(
        "" if options.output is not None else inferred.text.rstrip("\n"), data, only_printed=options.output is None
    )


def _next_step(prog: str, options: InitOptions, flags: str, *, images: bool) -> tuple[str, str]:
    """What to do with the schema: a sentence, and the command."""
    job = prog.removesuffix("init") + "preprocess" if prog.endswith(" init") else "python -m beam_jobs.preprocess"
    schema = options.output or "schema.yaml"
    begun = (
        f"Wrote {schema}. Read it, and" if options.output is not None else f"Read the schema, save it as {schema}, and"
    )
    given = list(options.files)
    if len(given) > _SHOWN:  # a shell has expanded a pattern
        common = os.path.commonpath([os.path.dirname(path) for path in given]) if storage.is_local(given[0]) else ""
        given = [
            os.path.join(common, "*", "*") if images else os.path.join(common, f"*{os.path.splitext(given[0])[1]}")
        ]
    inputs = " ".join(shell_word(path) for path in given)
    return (
        f"{begun} preprocess the data:",
        f"{job} --schema {shell_word(schema)} --input {inputs} --output data/{flags}",
    )


COMMAND = command.Command(
    prog=PROG,
    options=InitOptions,
    work=_run,
    description="Writes a schema from what CSV files or folders of images hold.",
    epilog=_EPILOG,
)
parser, main = COMMAND.parser, COMMAND.main
