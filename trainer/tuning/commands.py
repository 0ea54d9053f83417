"""The arguments of a trial's training: those that were given to the study, with the values of the trial."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.errors import UsageError
from trainer.flags import check_model
from trainer.spec.options import TrainOptions
from trainer.task import parse_options

_FLAGS = frozenset(field.name for field in dataclasses.fields(TrainOptions))
# What says nothing about the model that is trained: a study may be taken up with others.
_ASIDE = frozenset({"quiet", "verbose", "trust", "cache_dir", "cache_gb", "inter_op_threads", "intra_op_threads"})
_THREADS = ("inter_op_threads", "intra_op_threads")


@dataclasses.dataclass(frozen=True)
class TrialCommand:
    """The training of which each trial is one.

    Attributes:
      given: the flags of the training that were given, by name, as the parser reads them.
      parallel: how many trials run at a time; they share the cores.
    """

    given: Mapping[str, Any]
    parallel: int = 1

    def arguments(self, values: Mapping[str, str], model_dir: str) -> list[str]:
        """The arguments of `python -m trainer.task` for a trial.

        Args:
          values: its values by name, as typed: of flags of the training, or of hyper-parameters of the model.
          model_dir: its model directory.
        """
        flags: dict[str, Any] = {**self._threads(), **self.given, "model_dir": model_dir}
        flags |= {name: value for name, value in values.items() if name in _FLAGS}
        hparams = [f"{name}={value}" for name, value in values.items() if name not in _FLAGS]
        if hparams:
            flags["hparams"] = [*flags.get("hparams", ()), *hparams]
        return [part for name, value in flags.items() for part in _typed(name, value)]

    def check(self, values: Mapping[str, str]) -> TrainOptions:
        """Reads the arguments as the trial would.

        Raises:
          UsageError: the training would refuse them.
        """
        options = parse_options(self.arguments(values, "model"))
        check_model(options)
        return options

    def identity(self) -> list[str]:
        """What stays the same as long as the trials of a study can be compared, as arguments."""
        return [part for name in sorted(self.given.keys() - _ASIDE) for part in _typed(name, self.given[name])]

    def _threads(self) -> dict[str, int]:
        """Threads for each of several trainings, so that they do not wait for each other's cores."""
        if self.parallel == 1:
            return {}
        share = max(1, len(os.sched_getaffinity(0)) // self.parallel)
        return dict.fromkeys(_THREADS, share)


def check_alone(strategy: str, environment: Mapping[str, str] = os.environ) -> None:
    """Refuses trials of several processes each.

    Raises:
      UsageError: the strategy, or TF_CONFIG, is of a cluster.
    """
    if strategy in ("parameter_server", "multi_worker"):
        raise UsageError(f"--strategy {strategy}: a trial is one process; use none or mirrored")
    if environment.get("TF_CONFIG"):
        raise UsageError("TF_CONFIG: names a cluster, but a trial is one process; unset it")


def _typed(name: str, value: Any) -> Sequence[str]:
    """A flag and its value as they are typed."""
    if value is True:
        return (f"--{name}",)
    if isinstance(value, list):
        return (f"--{name}", *map(str, value))
    text = str(value)
    return (f"--{name}={text}",) if text.startswith("-") else (f"--{name}", text)
