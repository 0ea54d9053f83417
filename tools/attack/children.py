"""The commands under attack, each in a child process that starts at once; see `tests.support.forking`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from tests.support.forking import HANGS, Forking

PATIENCE = 240.0  # seconds that a child may take; what takes longer hangs
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


class Children:
    """The forking process. It is started anew when it dies or after many commands, since forks inherit what leaks."""

    def __init__(self, temp: Path, *, renew_after: int = 400) -> None:
        self._temp, self._renew_after = temp, renew_after
        self._forking: Forking | None = None
        self._served = 0

    def run(self, *asks: Ask) -> list[Answer]:
        """Runs commands side by side, and returns when all have ended."""
        if self._served >= self._renew_after:
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
