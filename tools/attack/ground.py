"""The commands under attack, in child processes, and what attacks begin from: datasets and models, made once."""

from __future__ import annotations

import dataclasses
import io
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.forking import HANGS, Forking
from tools.attack import oracle_dataset
from tools.attack.drawn_csv import Item, Plan, Shape, csv_file

PATIENCE = 900.0  # seconds, far beyond what a child takes on a busy machine: only a hang reaches it
KEPT_OUTPUT = 20_000
HEAVY = (
    "tensorflow",
    "beam_jobs.runs.job",
    "beam_jobs.records.result",
    "trainer.loop.train",
    "trainer.model_dir.checkpoints",
    "trainer.predict",
)
JOB, DATASET, TRAIN, PREDICT = "beam_jobs.preprocess", "schemas.dataset.command", "trainer.task", "trainer.predict"

FORMATS = {"JPEG": "jpg", "PNG": "png", "GIF": "gif", "BMP": "bmp"}


class Ask:
    """A command to run, and what is to befall it, by the names of `forking.Child`."""

    def __init__(self, program: str, argv: tuple[str, ...], **how: Any) -> None:
        self.asked = {"program": program, "argv": argv, **how}

    @property
    def command(self) -> str:
        """What a person would type."""
        return " ".join(["python -m", self.asked["program"].removesuffix(".command"), *self.asked["argv"]])

    def __str__(self) -> str:
        return str(self.asked)


@dataclasses.dataclass(frozen=True)
class Answer:
    """How a command ended: its exit status (negative: the signal), seconds, output, and changes to watched files."""

    status: int
    seconds: float
    output: str
    steps: int

    @property
    def crashed(self) -> bool:
        """Whether it ended otherwise than a command may, or hangs."""
        return self.status not in (0, 1, 2) or "Traceback (most recent call last)" in self.output


RENEW_AFTER = 400


class Children:
    """The forking process. It is started anew when it dies or after many commands, since forks inherit what leaks."""

    def __init__(self, temp: Path) -> None:
        self._temp = temp
        self._forking: Forking | None = None
        self._served = 0

    def run(self, *asks: Ask) -> list[Answer]:
        """Runs commands side by side, and returns when all have ended."""
        if self._served >= RENEW_AFTER:
            self.close()
        if self._forking is None:
            self._temp.mkdir(parents=True, exist_ok=True)
            env = {"TMPDIR": str(self._temp), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
            self._forking, self._served = Forking(*HEAVY, patience=PATIENCE, environment=env, quiet=True), 0
        self._served += len(asks)
        try:
            reports = self._forking.run(*(ask.asked for ask in asks))
        except RuntimeError as error:
            self.close()
            return [Answer(HANGS, 0.0, str(error), 0) for _ in asks]
        return [Answer(r["status"], r["seconds"], r["stderr"][-KEPT_OUTPUT:], len(r["steps"])) for r in reports]

    def one(self, program: str, *argv: str) -> Answer:
        """Runs one command."""
        return self.run(Ask(program, argv))[0]

    def close(self) -> None:
        """Ends the process; its children end with it."""
        if self._forking is not None:
            self._forking.__exit__()
            self._forking = None

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


ROWS = 400
TIDY = Shape(ROWS, 0.0, 0.0, "\n", False, False, True, False, False)
BAD_ROWS = b"too,few\n" * 4  # in the middle of a file, rejected whatever the schema is


IMAGES: dict[str, Any] = {
    "name": "drawn",
    "format": "image_folder",
    "images": {"resize": {"exact": [24, 24]}},
    "split": {"by": "content", "train": 0.6, "eval": 0.2, "test": 0.2},
}
PAIRS: dict[str, Any] = {
    "name": "drawn_pairs",
    "format": "image_pairs",
    "images": IMAGES["images"],
    "pairs": {
        "seed": 1,
        "train": {"identities": 0.75, "same": 40, "different": 40},
        "eval": {"identities": 0.25, "same": 10, "different": 10},
    },
}
OF_IMAGES = {"images": IMAGES, "softmax": IMAGES, "pairs": PAIRS}  # the grounds that hold images, and their schemas
MODELS = {"linear": "linear", "dnn": "dnn", "softmax": "softmax", "pairs": "face_pairs"}  # of the grounds that have one


class Failed(Exception):
    """What should work did not, unhurt: there is nothing to attack."""


@dataclasses.dataclass(frozen=True)
class Ground:
    """A dataset, what it was made of, and the export of a model, where there is one."""

    plan: Plan | None
    schema: Path
    inputs: tuple[str, ...]
    data: Path
    saved_model: Path | None = None

    @property
    def served(self) -> tuple[Plan, Path]:
        """The plan of its rows, and the export.

        Raises:
          Failed: there is none.
        """
        if self.plan is None or self.saved_model is None:
            raise Failed("a training has exported nothing")
        return self.plan, self.saved_model


def every_kind(*, regression: bool = False) -> Plan:
    """A schema with a feature of every kind and most of their options."""
    features: tuple[Item, ...] = (
        {"name": "id", "kind": "key"},
        {"name": "n_none", "kind": "numeric", "transform": "none"},
        {"name": "n_z", "kind": "numeric", "transform": "z_score"},
        {"name": "n_minmax", "kind": "numeric", "transform": "min_max", "missing": "mean", "indicator": True},
        {"name": "n_log", "kind": "numeric", "transform": "log"},
        {"name": "n_median", "kind": "numeric", "transform": "z_score", "missing": "median"},
        {"name": "n_scale", "kind": "numeric", "transform": {"scale": [0.0, 255.0]}},
        {"name": "n_given", "kind": "numeric", "transform": {"bucketize": [10.0, 50.0]}},
        {"name": "n_quantile", "kind": "numeric", "transform": {"bucketize": 4}, "missing": 3.5},
        {"name": "v", "kind": "numeric", "transform": "z_score", "columns": ["v_0", "v_2"]},
        {"name": "c_values", "kind": "category", "values": ["alpha", "beta", "gamma"]},
        {"name": "c_missing", "kind": "category", "values": ["alpha", "none"], "missing": "none", "oov_buckets": 2},
        {"name": "c_hash", "kind": "category", "hash_buckets": 20},
        {"name": "c_words", "kind": "category", "missing": "<unknown>"},
        {"name": "b", "kind": "bool"},
        {"name": "b_missing", "kind": "bool", "missing": False, "true": ["ja"], "false": ["nej"]},
        {"name": "o", "kind": "one_hot", "columns": ["o_0", "o_2"]},
        {"name": "t", "kind": "text", "length": 3},
        {"name": "w", "kind": "weight"},
        {"name": "skip", "kind": "ignore"},
        {"name": "x", "kind": "cross", "of": ["c_values", "n_given"], "buckets": 30},
    )
    wide: dict[str, tuple[str, ...]] = {"v": ("v_0", "v_1", "v_2"), "o": ("o_0", "o_1", "o_2"), "x": ()}
    reads = {f["name"]: wide.get(f["name"], (f["name"],)) for f in features} | {"y": ("y",)}
    label = {"name": "y", "kind": "category", "values": ["no", "yes", "maybe"]}
    return Plan(
        csv={"header": "present", "missing": ["", "?"], "encoding": "utf-8"},
        features=features,
        label={"name": "y", "kind": "numeric"} if regression else label,
        split={"by": ["id"], "train": 0.8, "eval": 0.1, "test": 0.1},
        columns=tuple(c for columns in reads.values() for c in columns),
        reads=reads,
    )


def ground(kind: str, children: Children, folder: Path) -> Ground:
    """Makes what is asked for, or finds it where it was made before.

    Args:
      kind: csv, gzip, replayed, images; linear and dnn, which have a model, of a regression and of classes; softmax and
        pairs, which have one of images and one of pairs of them.
      folder: where all of them are.

    Raises:
      Failed: a command that nobody hurt did not succeed.
    """
    place = folder / kind
    done = place / "ready.json"
    if not done.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        _make(kind, children, place)
        done.write_text("{}")
    exports = sorted((place / "model" / "export" / "final").glob("[0-9]*"))
    saved_model = exports[-1] if exports else None
    if kind in OF_IMAGES:
        return Ground(None, place / "schema.yaml", (f"{place}/raw/*/*",), place / "data", saved_model)
    plan = every_kind(regression=kind == "linear")
    return Ground(plan, place / "schema.yaml", (f"{place}/raw.csv",), place / "data", saved_model)


def must(answer: Answer, what: str) -> Answer:
    """The answer of a command that has to succeed.

    Raises:
      Failed: it did not.
    """
    if answer.status:
        raise Failed(f"{what} ended with {answer.status}: ...{answer.output.strip()[-400:]}")
    return answer


def job_arguments(schema: Path, inputs: tuple[str, ...], output: Path, *more: str) -> tuple[str, ...]:
    """A job that accepts any number of rejects."""
    argv = ("--schema", str(schema), "--input", *inputs, "--output", str(output), "--quiet")
    return (*argv, "--max_reject_fraction", "1", *more)


def predict_arguments(saved_model: Path, inputs: tuple[str, ...], output: Path, *more: str) -> tuple[str, ...]:
    """Predictions that accept any number of rejects."""
    argv = ("--saved_model", str(saved_model), "--input", *inputs, "--output", str(output))
    return (*argv, "--max_reject_fraction", "1", *more)


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


def _make(kind: str, children: Children, place: Path) -> None:
    schema, data = place / "schema.yaml", place / "data"
    if kind in OF_IMAGES:
        schema.write_text(json.dumps(OF_IMAGES[kind]))
        names = ("Ann", "Bob", "Cem", "Dee", "Eva", "Fay", "Gus", "Hal") if kind == "pairs" else ("cats", "dogs")
        draw_folders(random.Random(1), place / "raw", names, each=80 // len(names))
        inputs: tuple[str, ...] = (f"{place}/raw/*/*",)
    else:
        plan = every_kind(regression=kind == "linear")
        schema.write_text(plan.schema())
        content, _ = csv_file(random.Random(kind), plan, TIDY, first=0)
        lines = content.split(b"\n")
        (place / "raw.csv").write_bytes(b"\n".join(lines[:200]) + b"\n" + BAD_ROWS + b"\n".join(lines[200:]))
        inputs = (f"{place}/raw.csv",)
    shape = ("--num_shards", "3", *(("--compression", "gzip") if kind == "gzip" else ()))
    must(children.one(JOB, *job_arguments(schema, inputs, data, *shape)), "a job")
    if kind == "replayed":
        corrected = corrections(data, place / "raw.csv", place / "corrected.jsonl")
        must(children.one(JOB, "--replay", str(corrected), "--append_to", str(data)), "a replay")
    if kind in MODELS:
        must(children.one(TRAIN, *training(data, place / "model", model=MODELS[kind])), "a training")


def training(data: Path, model_dir: Path, *, model: str = "linear") -> tuple[str, ...]:
    """A short training with a checkpoint on the way."""
    argv = ("--data_dir", str(data), "--model_dir", str(model_dir), "--model", model, "--max_steps", "40")
    return (*argv, "--save_checkpoints_steps", "20", "--batch_size", "64", "--seed", "1")


def corrections(data: Path, raw: Path, path: Path) -> Path:
    """The rejects of a dataset, each corrected to a row that is in its file, under a key of its own."""
    good = next(line for line in raw.read_bytes().split(b"\n")[1:] if b"k0000" in line).decode()
    key = next(part for part in good.split(",") if part.startswith("k0000"))
    lines = []
    for reject in oracle_dataset.reject_files(data):
        for i, line in enumerate(filter(None, reject.read_text().split("\n"))):
            lines.append(json.dumps({**json.loads(line), "raw": good.replace(key, f"again{i}")}))
    path.write_text("\n".join(lines) + "\n")
    return path
