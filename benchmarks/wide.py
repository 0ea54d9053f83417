"""CPU seconds and peak memory of each command on wide tables: 600 rows of 1,000 and of 5,000 numbers, all z-scored.

    python -m benchmarks.wide --keep
    python -m benchmarks.wide --columns 1000

Names have nothing in common, so that no columns are read as one. Each command runs in its own process, once. The server
starts, answers one request and ends.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import string
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks import report, results

ROWS = 600
PORT = 8519
SERVE_SECONDS = 300.0


def write_table(folder: Path, columns: int) -> dict[str, float]:
    """Writes `rows.csv` and `schema.yaml`. Returns the first row's features, for a request."""
    draw = np.random.default_rng(0)
    # Short, since a schema has 256 KiB at most; not numbered, or `init` would make one feature of them all.
    names = ["x" + "".join(string.ascii_lowercase[7919 * i // 26**k % 26] for k in range(3)) for i in range(columns)]
    values = (draw.normal(size=(ROWS, columns)) * draw.uniform(1, 10, columns)).round(4)
    labels = np.where(values[:, :5].sum(axis=1) > 0, "yes", "no")
    lines = [",".join([*map(str, row), label]) for row, label in zip(values.tolist(), labels, strict=True)]
    (folder / "rows.csv").write_text("\n".join([",".join([*names, "label"]), *lines]) + "\n", encoding="utf-8")
    features = "".join(f"- {{name: {name}, kind: numeric, transform: z_score}}\n" for name in names)
    (folder / "schema.yaml").write_text(
        f"name: wide\nformat: csv\ncsv: {{header: present}}\nfeatures:\n{features}"
        "label: {name: label, kind: category, values: ['no', 'yes']}\n",
        encoding="utf-8",
    )
    return dict(zip(names, values[0].tolist(), strict=True))


def run(module: str, *options: str, until: Callable[[], None] | None = None) -> dict[str, float]:
    """Runs a command in a process of its own.

    Args:
      module: the command's, with what belongs to its name.
      options: its options.
      until: what is waited for, before the process is asked to end; None: it ends by itself.

    Returns:
      `cpu` seconds, `wall` seconds and `peak_mb`, those of its children among them.

    Raises:
      RuntimeError: it failed.
    """
    begin = time.monotonic()
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-m", *module.split(), *options]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            if until is not None:
                until()
        finally:
            if until is not None:
                process.send_signal(signal.SIGTERM)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            log.seek(0)
            raise RuntimeError(f"{module}: exit status {process.returncode}\n{log.read()[-4000:].decode()}")
    wall = time.monotonic() - begin
    return {"cpu": used.ru_utime + used.ru_stime, "wall": wall, "peak_mb": used.ru_maxrss / 1024}


def ask(row: dict[str, float]) -> None:
    """Sends one row to the server as soon as it answers."""
    body = json.dumps([row]).encode()
    end = time.monotonic() + SERVE_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/predict", body).close()
        except urllib.error.HTTPError as error:
            if error.code != 503:  # it has no model yet
                raise
        except OSError:
            pass
        else:
            return
        if time.monotonic() > end:
            raise RuntimeError(f"the server gives no answer after {SERVE_SECONDS:.0f} seconds")
        time.sleep(0.5)


def measured(folder: Path, columns: int, *, whole: bool) -> dict[str, dict[str, float]]:
    """What each command takes, by name. `whole`: more than `preprocess`."""
    row = write_table(folder, columns)
    rows, schema, data, model = (str(folder / name) for name in ("rows.csv", "schema.yaml", "data", "model"))
    found: dict[str, dict[str, float]] = {}

    def take(name: str, module: str, *options: str, until: Callable[[], None] | None = None) -> None:
        found[name] = run(module, *options, until=until)
        print(f"{columns:>6,} {name:<20} {found[name]['cpu']:>7.1f} s {found[name]['peak_mb']:>7,.0f} MB", flush=True)

    take("preprocess", "beam_jobs.preprocess", "--schema", schema, "--input", rows, "--output", data)
    if not whole:
        return found
    take("init", "schemas.init", rows, "--label", "label", "--output", str(folder / "made.yaml"))
    take("compare", "beam_jobs.compare", data, rows)
    training = ("--data_dir", data, "--model_dir", model, "--model", "dnn", "--max_steps", "100", "--seed", "1")
    take("train, 100 steps", "trainer.task", *training)
    export = max(path for path in (folder / "model" / "export" / "best").iterdir() if path.name.isdigit())
    take("evaluate", "trainer.evaluate", "--data_dir", data, "--model_dir", model)
    take("verify", "trainer.verify", "--data_dir", data, "--saved_model", str(export), "--model_dir", model)
    take(
        "predict", "trainer.predict", "--saved_model", str(export), "--input", rows, "--output", str(folder / "p.jsonl")
    )
    serving = ("--model_dir", model, "--port", str(PORT))
    take("serve, one request", "millrace serve", *serving, until=lambda: ask(row))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wide", description=__doc__.splitlines()[0])
    parser.add_argument("--columns", type=int, nargs="+", default=[1000, 5000], metavar="N")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/wide.json, and update its table")
    options = parser.parse_args(argv)
    conditions = results.conditions(real_data=False) if options.keep else {}
    figures = {}
    for columns in options.columns:
        with tempfile.TemporaryDirectory() as folder:
            figures[str(columns)] = measured(Path(folder), columns, whole=columns <= 1000)
    if options.keep:
        report.keep(report.WIDE, conditions, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
