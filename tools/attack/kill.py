"""Processes that are killed, stopped beyond their lease, or started at once: what is there afterwards is whole."""

from __future__ import annotations

import dataclasses
import random
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.attack import read_back
from tools.attack.children import Answer, Ask, Children
from tools.attack.ground import BAD_ROWS, ROWS, Failed, Ground, corrections, ground, job_arguments, must
from tools.attack.tally import Tally

KIND = "kill"
STRIKES = 3  # a round of one scene
LEFT = re.compile(r"\.tmp$|\.tmp[0-9a-f]+$|\.partial$|^temp-|_temp$|tempstate|^staging$|^lease\.json$")


@dataclasses.dataclass
class Scene:
    """A dataset in a folder of its own, what it is made of, and where faults are told."""

    draw: random.Random
    children: Children
    folder: Path
    tally: Tally
    seed: str
    source: Ground

    def __post_init__(self) -> None:
        self.data = self.folder / "data"
        self.log: list[str] = []

    def job(self, *more: str) -> tuple[str, ...]:
        """The arguments of a job that replaces the dataset."""
        shape = ("--num_shards", "2", "--overwrite", *more)
        return job_arguments(self.source.schema, self.source.inputs, self.data, *shape)

    def fault(self, title: str, detail: str) -> None:
        """Notes a fault with all that was done here."""
        self.tally.fault(KIND, title, detail, keep=self.folder, seed=self.seed, log=self.log)

    def run(self, *asks: Ask) -> list[Answer]:
        """Runs commands and writes down how they ended."""
        answers = self.children.run(*asks)
        for ask, answer in zip(asks, answers, strict=True):
            self.log.append(f"{ask} -> {answer.status} after {answer.seconds:.2f} s: {answer.output[-600:]}")
        return answers

    def strike(self, program: str, argv: tuple[str, ...], watched: Path, unhurt: Answer) -> Answer:
        """Kills a command: at a moment of the time that it takes unhurt, or before a change to a file."""
        how: dict[str, Any] = {"watched": str(watched)}
        if unhurt.steps and self.draw.random() < 0.6:
            how["struck_at"] = self.draw.randint(1, unhurt.steps)
        else:
            how["signals"] = ((self.draw.uniform(0, unhurt.seconds), signal.SIGKILL),)
        return self.run(Ask(program, argv, **how))[0]

    def whole(self, after: str) -> dict[str, Any] | None:
        """The manifest of the dataset, which has to be whole where there is one."""
        if not (self.data / "manifest.json").exists():
            return None
        verified = self.run(Ask("schemas.dataset", ("verify", str(self.data), "--quiet")))[0]
        if verified.status:
            self.fault(f"the dataset is not whole after {after}", verified.output[-800:])
        return read_back.manifest(self.data)

    def tidy(self, after: str, *, runs: bool = True) -> None:
        """Nothing is left over once a command has succeeded."""
        told = read_back.manifest(self.data)
        left = [str(p.relative_to(self.folder)) for p in self.data.rglob("*") if LEFT.search(p.name)]
        if runs:
            kept = {told["run"], *told.get("previous", ()), "manifest.json"}
            kept |= {shard["path"].split("/")[0] for s in told["splits"].values() for shard in s["shards"]}
            left += sorted({p.name for p in self.data.iterdir()} - kept - {"failed"})
        if left:
            self.fault(f"something is left over after {after}", ", ".join(left[:10]))


def phase(before: dict[str, Any] | None, now: dict[str, Any] | None, data: Path, answer: Answer) -> str:
    """Where in its work a killed process was, as far as its folder tells."""
    if answer.status == 0:
        return "a moment too late"
    if now is not None and (before is None or now["run"] != before["run"]):
        return "behind the commit"
    if not (data / "lease.json").exists():
        return "before or after the lease"
    return "at work" if any(data.glob("*/staging")) else "committing"


def kill_jobs(scene: Scene) -> None:
    """A job, and now and then a replay or a prune in its place."""
    unhurt = must(scene.run(Ask("beam_jobs.preprocess", scene.job(), watched=str(scene.data)))[0], "a job")
    bad = BAD_ROWS.count(b"\n")
    for _ in range(STRIKES):
        before = scene.whole("a job")
        killed = scene.strike("beam_jobs.preprocess", scene.job(), scene.data, unhurt)
        now = scene.whole("a killed job")
        scene.tally.count(KIND, f"jobs killed {phase(before, now, scene.data, killed)}")
        if killed.status not in (0, -signal.SIGKILL):
            scene.fault("a job failed before it was killed", killed.output[-800:])
        if now is None or (now["written"], now["rejected"]) != (ROWS, bad):
            scene.fault("a killed job leaves other records", f"{now and (now['written'], now['rejected'])}")
        if scene.draw.random() < 0.3:
            prune(scene)
        again = scene.run(Ask("beam_jobs.preprocess", scene.job()))[0]
        if again.status:
            scene.fault("the job after a killed one failed", again.output[-800:])
        else:
            scene.tidy("a job")


def prune(scene: Scene) -> None:
    """Removes what a killed job left; killed itself at first."""
    argv = ("prune", str(scene.data), *(("--all",) if scene.draw.random() < 0.5 else ()))
    copy = scene.folder / "copy"
    shutil.copytree(scene.data, copy, symlinks=True)
    unhurt = scene.run(Ask("schemas.dataset", ("prune", str(copy), *argv[2:]), watched=str(copy)))[0]
    shutil.rmtree(copy)
    scene.strike("schemas.dataset", argv, scene.data, unhurt)
    scene.tally.count(KIND, "prunes killed")
    scene.whole("a killed prune")
    done = scene.run(Ask("schemas.dataset", argv))[0]
    if done.status:
        scene.fault("a prune after a killed one failed", done.output[-800:])
    scene.whole("a prune")
    scene.tidy("a prune")


def kill_replays(scene: Scene) -> None:
    """A replay onto a dataset with rejects."""
    bad = BAD_ROWS.count(b"\n")
    unhurt = None
    for _ in range(STRIKES + 1):
        shutil.rmtree(scene.data, ignore_errors=True)
        shutil.copytree(scene.source.data, scene.data)
        raw = Path(scene.source.inputs[0])
        path = corrections(scene.data, raw, scene.folder / "corrected.jsonl")
        argv = ("--replay", str(path), "--append_to", str(scene.data), "--quiet")
        if unhurt is None:
            unhurt = must(scene.run(Ask("beam_jobs.preprocess", argv, watched=str(scene.data)))[0], "a replay")
            continue
        before = read_back.manifest(scene.data)
        killed = scene.strike("beam_jobs.preprocess", argv, scene.data, unhurt)
        now = scene.whole("a killed replay")
        scene.tally.count(KIND, f"replays killed {phase(before, now, scene.data, killed)}")
        if now is None or (now["written"], now["rejected"]) not in ((ROWS, bad), (ROWS + bad, 0)):
            scene.fault("a killed replay leaves other records", f"{now and (now['written'], now['rejected'])}")
        again = scene.run(Ask("beam_jobs.preprocess", argv))[0]
        now = scene.whole("a replay after a killed one")
        if again.status or now is None or (now["written"], now["rejected"]) != (ROWS + bad, 0):
            scene.fault("the replay after a killed one failed", again.output[-800:])
        elif "nothing to add" not in again.output:
            scene.tidy("a replay")


def stop_jobs(scene: Scene) -> None:
    """A job that sleeps beyond its lease while another takes its place, and a prune as well."""
    unhurt = must(scene.run(Ask("beam_jobs.preprocess", scene.job(), watched=str(scene.data)))[0], "a job")
    for _ in range(STRIKES):
        draw = scene.draw
        at = draw.uniform(0.1, unhurt.seconds)
        wake = at + unhurt.seconds + draw.uniform(1.5, 4)
        stopped: dict[str, Any] = {"signals": ((at, signal.SIGSTOP), (wake, signal.SIGCONT))}
        if draw.random() < 0.7:
            stopped = {"signals": ((wake, signal.SIGCONT), (wake + 3, signal.SIGCONT)), "watched": str(scene.data)}
            late = draw.randint(max(1, unhurt.steps * 3 // 4), unhurt.steps + 8)  # in its commit and its clean-up
            stopped |= {"struck_at": late, "struck_by": signal.SIGSTOP}
        one = Ask("beam_jobs.preprocess", scene.job(), lease=(0.1, 0.7), system="one", **stopped)
        how: dict[str, Any] = {"lease": (0.1, 0.7), "system": "other", "delay": at + draw.uniform(0.8, 2)}
        if draw.random() < 0.25:
            other = Ask("schemas.dataset", ("prune", str(scene.data), "--all"), **how)
        else:
            other = Ask("beam_jobs.preprocess", scene.job(), **how)
        answers = scene.run(one, other)
        scene.tally.count(KIND, "jobs stopped beyond their lease")
        statuses = [answer.status for answer in answers]
        if any(answer.crashed for answer in answers) or 0 not in statuses:
            scene.fault("of a stopped job and another none succeeded", str([a.output[-400:] for a in answers]))
        scene.whole("a job that was stopped")
        again = scene.run(Ask("beam_jobs.preprocess", scene.job()))[0]
        if again.status:
            scene.fault("the job after a stopped one failed", again.output[-800:])
        else:
            scene.tidy("a job after a stopped one")


def start_at_once(scene: Scene) -> None:
    """Several jobs with one output."""
    for _ in range(STRIKES):
        number = scene.draw.randint(2, 4)
        asks = [
            Ask("beam_jobs.preprocess", scene.job(), delay=scene.draw.choice([0.0, 0.02, 0.3])) for _ in range(number)
        ]
        answers = scene.run(*asks)
        scene.tally.count(KIND, "jobs started at once", number)
        if not any(answer.status == 0 for answer in answers) or any(answer.crashed for answer in answers):
            scene.fault("of jobs at once none succeeded", str([a.output[-300:] for a in answers]))
        for answer in answers:
            if answer.status and "another job is writing" not in answer.output and "lease" not in answer.output:
                scene.fault("a job that lost does not say to whom", answer.output[-500:])
        scene.whole("jobs at once")
        scene.tidy("jobs at once")


def kill_trainers(scene: Scene) -> None:
    """A training, killed and gone on with."""
    from tools.attack.ground import training

    model_dir = scene.folder / "model"
    argv = training(scene.source.data, model_dir)
    unhurt = must(scene.run(Ask("trainer.task", argv))[0], "a training")
    shutil.rmtree(model_dir)
    for _ in range(scene.draw.randint(1, 2)):
        killed = scene.strike("trainer.task", argv, model_dir, unhurt)
        scene.tally.count(KIND, "trainings killed")
        if killed.status not in (0, -signal.SIGKILL):
            scene.fault("a training failed before it was killed", killed.output[-800:])
    again = scene.run(Ask("trainer.task", argv))[0]
    if again.status:
        scene.fault("the training after a killed one failed", again.output[-800:])
        return
    left = [str(p.relative_to(model_dir)) for p in model_dir.rglob("*") if LEFT.search(p.name)]
    if left:
        scene.fault("something is left over after a training", ", ".join(left[:10]))
    exports = sorted(model_dir.glob("export/*/[0-9]*"))
    if not exports:
        scene.fault("a training has exported nothing", again.output[-800:])
    for export in exports[-1:]:
        done = scene.run(Ask("trainer.predict", predicting(scene.source, export, scene.folder / "predictions.jsonl")))[
            0
        ]
        if done.status:
            scene.fault("an export does not predict", done.output[-800:])


def predicting(source: Ground, saved_model: Path, output: Path) -> tuple[str, ...]:
    """The arguments of predictions on a dataset's own input."""
    argv = ("--saved_model", str(saved_model), "--input", *source.inputs, "--output", str(output), "--overwrite")
    return (*argv, "--max_reject_fraction", "1", "--quiet")


def kill_predictions(scene: Scene) -> None:
    """Predictions on a file of some thousand rows."""
    if scene.source.saved_model is None:
        raise Failed("a training has exported nothing")
    folder = scene.folder / "predicted"
    folder.mkdir()
    output = folder / "predictions.jsonl"
    argv = predicting(scene.source, scene.source.saved_model, output)
    unhurt = must(scene.run(Ask("trainer.predict", argv, watched=str(folder)))[0], "predict")
    for _ in range(STRIKES):
        if scene.draw.random() < 0.5:
            output.unlink(missing_ok=True)
        killed = scene.strike("trainer.predict", argv, folder, unhurt)
        scene.tally.count(KIND, "predictions killed")
        if killed.status not in (0, -signal.SIGKILL):
            scene.fault("predict failed before it was killed", killed.output[-800:])
        if output.exists() and output.read_bytes().count(b"\n") != ROWS:
            scene.fault("predict leaves half of an output", "cut")
    again = scene.run(Ask("trainer.predict", argv))[0]
    if again.status or output.read_bytes().count(b"\n") != ROWS:
        scene.fault("predict after a killed one failed", again.output[-800:])
    left = sorted(p.name for p in folder.iterdir() if LEFT.search(p.name))
    if left:
        scene.fault("something is left over after predict", ", ".join(left[:10]))


SCENES = (  # and the grounds that each may begin from
    *((kill_jobs, ("csv", "gzip")), (kill_replays, ("csv",)), (stop_jobs, ("csv",)), (start_at_once, ("csv",))),
    *((kill_trainers, ("csv",)), (kill_predictions, ("linear",))),
)


def scene(seed: str) -> tuple[Callable[[Scene], None], tuple[str, ...]]:
    """The scene of a round: each comes once in as many rounds as there are scenes, in an order drawn anew.

    Args:
      seed: of the round, whose number is behind its last colon.
    """
    attack, _, number = seed.rpartition(":")
    turn, place = divmod(int(number), len(SCENES))
    return random.Random(f"{attack}:{turn}").sample(SCENES, len(SCENES))[place]


def round_(draw: random.Random, children: Children, folder: Path, tally: Tally, *, seed: str) -> None:
    """One scene, hurt some times."""
    play, kinds = scene(seed)
    base = ground(draw.choice(kinds), children, folder.parent / "ground")
    play(Scene(draw, children, folder, tally, seed, base))
