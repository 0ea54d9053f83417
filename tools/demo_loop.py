"""`make demo-loop`: a model that is served under load while its data changes, for ten days.

By day rows are sent to `millrace serve`, which answers at once and stores each request. In the evening their labels
arrive: `millrace label` joins them, `millrace preprocess --append_to` adds them to the dataset, and `millrace train`
goes on from its last checkpoint and puts the export in service if it is no worse on the newest rows. The server loads
it while requests keep coming. On day 6 what is to be learned changes. At the end the first model is asked about all
days, too.

Only commands that anybody can type are run, and HTTP.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.demo_loop_summary import Day, draw, summary
from tools.demo_steps import python
from tools.demo_traffic import Row, Traffic

DAYS, DRIFT_DAY = 10, 6
HISTORY, ROWS, STEPS = 6000, 1500, 400  # rows before the first day, rows and training steps a day
PATIENCE = 120  # seconds until the server must answer
LABEL = "cover_type"
PLOT = "loop.png"
_TERRAIN, _AREA, _SOIL = slice(0, 10), slice(10, 14), slice(14, 54)  # columns of a raw file


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo. Returns the exit code: 0, 1 if a request or a step failed, or 130 if interrupted."""
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(options.output)
    if (folder / "data").exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return _demonstrate(Loop(folder, rows=options.rows, steps=options.steps))
    except subprocess.CalledProcessError as error:
        print(f"error: this step ended with exit code {error.returncode}: {shlex.join(error.cmd)}", file=sys.stderr)
        print(error.stderr, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the server is stopped", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.demo_loop", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--output", default="demo-out/loop", metavar="DIR", help="folder, made anew (%(default)s)")
    add("--rows", type=int, default=ROWS, metavar="N", help="rows a day (%(default)s)")
    add("--steps", type=int, default=STEPS, metavar="N", help="training steps a day (%(default)s)")
    return parser


class Loop:
    """The commands of the loop, in one folder."""

    def __init__(self, folder: Path, *, rows: int, steps: int) -> None:
        self.folder, self.rows, self.steps = folder, rows, steps
        self.data, self.model, self.serving = f"{folder}/data", f"{folder}/model", f"{folder}/serving"
        self.store, self.labelled, self.labels = f"{folder}/store", f"{folder}/labelled", f"{folder}/labels"

    def raw(self, day: int) -> Path:
        """The raw file of a day, labels included; day 0 is what there was before."""
        return self.folder / "raw" / f"day-{day:02d}.csv"

    def generate(self, day: int) -> None:
        """Draws the rows of a day."""
        drift = ("--drift", "1") if day >= DRIFT_DAY else ()
        rows = HISTORY if day == 0 else self.rows
        self.run("samples", "covertype", str(self.raw(day)), "--rows", str(rows), "--seed", str(day), *drift)

    def preprocess(self) -> Any:
        """Writes the first dataset."""
        return self.run("preprocess", "--schema", "covertype", "--input", str(self.raw(0)), "--output", self.data)

    def train(self, day: int) -> Any:
        """Trains on all data that there is, from where the last training ended, and promotes the export."""
        steps = self.steps * (day + 2)  # twice as many before the first day
        go_on = ("--allow_changes",) if day else ()
        return self.run(
            "train",
            *("--data_dir", self.data, "--model_dir", self.model, "--model", "dnn", "--hparams", "decay=false"),
            *("--max_steps", str(steps), "--save_checkpoints_steps", str(self.steps), "--no_report", *go_on),
            *("--keep_exports", str(DAYS + 1), "--promote_to", self.serving),
        )

    def label(self, day: int) -> Any:
        """Joins the labels of a day to the requests that were stored."""
        labels = f"{self.labels}/day-{day:02d}.csv"
        return self.run("label", "--store", self.store, "--join", labels, "--on", "_id", "--output", self.labelled)

    def append(self) -> Any:
        """Adds what was labelled to the dataset."""
        return self.run(
            "preprocess", "--append_to", self.data, "--input", f"{self.labelled}/*.csv", "--skip_known", "--quiet"
        )

    def predict(self, export: str, output: str) -> Any:
        """Has one export predict on the raw files of all days."""
        days = [str(self.raw(day)) for day in range(1, DAYS + 1)]
        return self.run("predict", "--saved_model", export, "--input", *days, "--output", output)

    def run(self, *args: str) -> Any:
        """Prints a command and runs it. Returns the JSON object that it prints.

        Raises:
          CalledProcessError: it failed.
        """
        command = self.command(*args)
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)  # noqa: S603 - our own
        with (self.folder / "log.txt").open("a") as log:
            log.write(f"$ {shlex.join(command)}\n{done.stderr}\n")
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def command(self, *args: str) -> list[str]:
        """A command of Millrace, printed as it would be typed."""
        command = [python(), "-m", "millrace", *args]
        print(f"$ {shlex.join(command)}", flush=True)
        return command

    @contextlib.contextmanager
    def served(self) -> Iterator[int]:
        """The server, whose port is given; it is stopped as an operator would, and must have answered everything."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        command = self.command("serve", "--model_dir", self.serving, "--port", str(port), "--store", self.store)
        with (self.folder / "server.txt").open("w") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)  # noqa: S603 - our own
        try:
            _until(lambda: _version(port) != "", "the server")
            yield port
            server.send_signal(signal.SIGTERM)
            if server.wait(PATIENCE):
                told = (self.folder / "server.txt").read_text()
                raise subprocess.CalledProcessError(server.returncode, command, None, told)
        finally:
            server.kill()
            server.wait()


def _demonstrate(loop: Loop) -> int:
    begun = time.monotonic()
    loop.generate(0)
    loop.preprocess()
    trained = loop.train(0)
    first = trained["export_dir"]
    print(f"the first model: accuracy {trained['metrics']['eval']['accuracy']:.3f} on rows of the same kind\n")
    totals = {"stored": 0, "labelled": 0, "appended": 0}
    served: dict[int, float] = {}
    decisions: dict[int, str] = {}
    with loop.served() as port, Traffic(port) as traffic:
        for day in range(1, DAYS + 1):
            loop.generate(day)
            rows, labels = _read(loop.raw(day))
            answers = traffic.day(f"d{day:02d}", rows)
            served[day] = _accuracy(answers, labels, day)
            _write_labels(Path(loop.labels, f"day-{day:02d}.csv"), labels, day)
            joined = loop.label(day)
            appended = loop.append()
            promotion = loop.train(day)["promotion"]
            decisions[day] = promotion["outcome"]
            if promotion["version"] is not None:
                _until(lambda p=promotion: _version(port) == str(p["version"]), "the new version")  # type: ignore[misc]
            totals["stored"] = joined["stored"]
            totals["labelled"] += joined["written"]
            totals["appended"] += _added(appended)
            changed = ", and what is to be learned has changed" if day == DRIFT_DAY else ""
            print(f"day {day}: accuracy {served[day]:.3f} as served{changed}; {_told(promotion)}\n", flush=True)
        counts = traffic.counts
    frozen = _frozen(loop, first)
    days = [Day(day, served[day], frozen[day], decisions[day]) for day in served]
    draw(loop.folder / PLOT, days, DRIFT_DAY)
    print(summary(days, counts, totals), flush=True)
    print(f"{time.monotonic() - begun:>8.0f} seconds in all\n")
    print(f"the plot: {loop.folder}/{PLOT}; what the commands said: {loop.folder}/log.txt")
    return 1 if counts.failed else 0


def _read(path: Path) -> tuple[list[Row], list[str]]:
    """The rows of a raw file as a client sends them, and their labels."""
    rows, labels = [], []
    with path.open(newline="") as file:
        for *cells, label in csv.reader(file):
            values = [int(cell) for cell in cells]
            rows.append({"terrain": values[_TERRAIN], "wilderness_area": values[_AREA], "soil_type": values[_SOIL]})
            labels.append(label)
    return rows, labels


def _write_labels(path: Path, labels: Sequence[str], day: int) -> None:
    """The labels of a day, as they arrive: by the id of the request."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["_id", LABEL])
        writer.writerows((f"d{day:02d}-{i}", label) for i, label in enumerate(labels))


def _accuracy(answers: dict[str, str], labels: Sequence[str], day: int) -> float:
    return sum(answers.get(f"d{day:02d}-{i}") == label for i, label in enumerate(labels)) / len(labels)


def _added(appended: Any) -> int:
    """The rows that an append has added, and what it warns of, which is printed."""
    for warning in appended["warnings"]:
        print(f"warning  {warning['message']}")
    return int(appended["added"])


def _told(promotion: Any) -> str:
    """What the gate has decided, in a line."""
    (measured,) = (each for each in promotion["metrics"] if each["metric"] == "accuracy")
    outcome = f"{promotion['outcome']}: accuracy {measured['candidate']:.3f}, in service {measured['serving']:.3f}"
    return f"{outcome}, on {measured['rows']:,} rows of the newest eval split"


def _version(port: int) -> str:
    """The version that the server serves; '' while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return str(json.load(answer)["version"])
    except OSError:
        return ""


def _until(true: Callable[[], bool], what: str) -> None:
    """Waits for what the server does by itself.

    Raises:
      TimeoutError: it did not.
    """
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not ready within {PATIENCE} s; see server.txt")
        time.sleep(0.1)


def _frozen(loop: Loop, export: str) -> dict[int, float]:
    """The accuracy of an export on the rows of each day."""
    output = loop.folder / "first.jsonl"
    loop.predict(export, str(output))
    labels = {str(loop.raw(day)): (day, _read(loop.raw(day))[1]) for day in range(1, DAYS + 1)}
    right = dict.fromkeys(range(1, DAYS + 1), 0)
    with output.open() as lines:
        for predicted in map(json.loads, lines):
            day, true = labels[predicted["source"]]
            right[day] += predicted["class"] == true[predicted["row"]]
    return {day: right[day] / len(true) for day, true in labels.values()}


if __name__ == "__main__":
    sys.exit(main())
