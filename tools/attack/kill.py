"""Processes that are killed, stopped beyond their lease, or started at once: what is there afterwards is whole."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

from tools.attack import oracle_dataset
from tools.attack.ground import (
    BAD_ROWS,
    DATASET,
    JOB,
    PREDICT,
    ROWS,
    TRAIN,
    Answer,
    Ask,
    Failed,
    Ground,
    corrections,
    job_arguments,
    must,
    predict_arguments,
    training,
)
from tools.attack.rounds import Round

STRIKES = 3  # a round of one scene
LEFT = re.compile(r"\.tmp$|\.tmp[0-9a-f]+$|\.partial$|^temp-|_temp$|tempstate|^staging$|^lease\.json$")
BAD = BAD_ROWS.count(b"\n")
Records = tuple[int, int]  # written and rejected


class Scene:
    """A dataset in a folder of its own, what it is made of, and where faults are told."""

    def __init__(self, now: Round, source: Ground) -> None:
        self.now, self.source = now, source
        self.draw, self.folder, self.data = now.draw, now.folder, now.folder / "data"
        self.log: list[str] = []
        now.told["log"] = self.log
        shape = ("--num_shards", "2", "--overwrite")
        self.job = job_arguments(source.schema, source.inputs, self.data, *shape)  # which replaces the dataset

    def run(self, *asks: Ask) -> list[Answer]:
        """Runs commands and writes down how they ended."""
        answers = self.now.children.run(*asks)
        for ask, answer in zip(asks, answers, strict=True):
            self.log.append(f"{ask} -> {answer.status} after {answer.seconds:.2f} s: {answer.output[-600:]}")
        return answers

    def unhurt(self, program: str, argv: tuple[str, ...], what: str, *, watched: Path | None = None) -> Answer:
        """How a command ends that nobody strikes."""
        return must(self.run(Ask(program, argv, watched=str(watched or self.data)))[0], what)

    def strike(
        self, program: str, argv: tuple[str, ...], what: str, unhurt: Answer, *, watched: Path | None = None
    ) -> Answer:
        """Kills a command: at a moment of the time that it takes unhurt, or before a change to a file."""
        how: dict[str, Any] = {"watched": str(watched or self.data)}
        if unhurt.steps and self.draw.random() < 0.6:
            how["kill_at"] = self.draw.randint(1, unhurt.steps)
        else:
            how["kill_after"] = self.draw.uniform(0, unhurt.seconds)
        killed = self.run(Ask(program, argv, **how))[0]
        if killed.status not in (0, -signal.SIGKILL):
            self.now.fault(f"{what} failed before it was killed", killed.output[-800:])
        return killed

    def strike_dataset(self, argv: tuple[str, ...], what: str, unhurt: Answer, allowed: Container[Records]) -> None:
        """Kills a job that changes the dataset, which then holds all records of one of these moments."""
        before = self.whole(what)
        killed = self.strike(JOB, argv, what, unhurt)
        now = self.whole(f"{what}, killed")
        self.now.count(f"{what}, killed {phase(before, now, self.data, killed)}")
        self.expect(now, allowed, f"{what}, killed, leaves other records")

    def expect(self, told: dict[str, Any] | None, allowed: Container[Records], title: str) -> None:
        """The dataset is there, with so many records."""
        if told is None or (told["written"], told["rejected"]) not in allowed:
            self.now.fault(title, f"{told and (told['written'], told['rejected'])}")

    def again(self, program: str, argv: tuple[str, ...], what: str) -> Answer | None:
        """Runs what was struck once more, which has to succeed."""
        answer = self.run(Ask(program, argv))[0]
        if answer.status:
            self.now.fault(f"{what} failed after one that was struck", answer.output[-800:])
        return None if answer.status else answer

    def whole(self, after: str) -> dict[str, Any] | None:
        """The manifest of the dataset, which has to be whole where there is one."""
        if not (self.data / "manifest.json").exists():
            return None
        verified = self.run(Ask(DATASET, ("verify", str(self.data), "--quiet")))[0]
        if verified.status:
            self.now.fault(f"the dataset is not whole after {after}", verified.output[-800:])
        return oracle_dataset.manifest(self.data)

    def tidy(self, after: str, folder: Path | None = None) -> None:
        """Nothing is left over in a folder, or in the dataset, once a command has succeeded."""
        left = sorted(str(p.relative_to(self.folder)) for p in (folder or self.data).rglob("*") if LEFT.search(p.name))
        if folder is None:
            told = oracle_dataset.manifest(self.data)
            kept = {told["run"], *told.get("previous", ()), "manifest.json", "failed"}
            kept |= {shard["path"].split("/")[0] for s in told["splits"].values() for shard in s["shards"]}
            left += sorted(set(os.listdir(self.data)) - kept)
        if left:
            self.now.fault(f"something is left over after {after}", ", ".join(left[:10]))


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
    """A job, and now and then a prune of what it has left."""
    unhurt = scene.unhurt(JOB, scene.job, "a job")
    for _ in range(STRIKES):
        scene.strike_dataset(scene.job, "a job", unhurt, {(ROWS, BAD)})
        if scene.draw.random() < 0.3:
            prune(scene)
        if scene.again(JOB, scene.job, "a job"):
            scene.tidy("a job")


def prune(scene: Scene) -> None:
    """Removes what a killed job left; killed itself at first."""
    more = ("--all",) if scene.draw.random() < 0.5 else ()
    copy = scene.folder / "copy"
    shutil.copytree(scene.data, copy, symlinks=True)
    unhurt = scene.run(Ask(DATASET, ("prune", str(copy), *more), watched=str(copy)))[0]
    shutil.rmtree(copy)
    argv = ("prune", str(scene.data), *more)
    scene.strike(DATASET, argv, "a prune", unhurt)
    scene.now.count("prunes killed")
    scene.whole("a killed prune")
    scene.again(DATASET, argv, "a prune")
    scene.whole("a prune")
    scene.tidy("a prune")


def kill_replays(scene: Scene) -> None:
    """A replay onto a dataset with rejects."""
    unhurt = None
    for _ in range(STRIKES + 1):
        shutil.rmtree(scene.data, ignore_errors=True)
        shutil.copytree(scene.source.data, scene.data)
        path = corrections(scene.data, Path(scene.source.inputs[0]), scene.folder / "corrected.jsonl")
        argv = ("--replay", str(path), "--append_to", str(scene.data), "--quiet")
        if unhurt is None:
            unhurt = scene.unhurt(JOB, argv, "a replay")
            continue
        scene.strike_dataset(argv, "a replay", unhurt, ((ROWS, BAD), (ROWS + BAD, 0)))
        done = scene.again(JOB, argv, "a replay")
        scene.expect(scene.whole("a replay"), ((ROWS + BAD, 0),), "a replay after a killed one leaves other records")
        if done and "nothing to add" not in done.output:
            scene.tidy("a replay")


def stop_jobs(scene: Scene) -> None:
    """A job that sleeps beyond its lease while another takes its place, and a prune as well."""
    unhurt, draw = scene.unhurt(JOB, scene.job, "a job"), scene.draw
    for _ in range(STRIKES):
        at = draw.uniform(0.1, unhurt.seconds)
        wake = at + unhurt.seconds + draw.uniform(1.5, 4)
        stopped: dict[str, Any] = {"signals": ((at, signal.SIGSTOP), (wake, signal.SIGCONT))}
        if draw.random() < 0.7:
            stopped = {"signals": ((wake, signal.SIGCONT), (wake + 3, signal.SIGCONT)), "watched": str(scene.data)}
            late = draw.randint(max(1, unhurt.steps * 3 // 4), unhurt.steps + 8)  # in its commit and its clean-up
            stopped |= {"kill_at": late, "struck_by": signal.SIGSTOP}
        one = Ask(JOB, scene.job, lease=(0.1, 0.7), system="one", **stopped)
        how: dict[str, Any] = {"lease": (0.1, 0.7), "system": "other", "delay": at + draw.uniform(0.8, 2)}
        prunes = draw.random() < 0.25
        other = Ask(DATASET, ("prune", str(scene.data), "--all"), **how) if prunes else Ask(JOB, scene.job, **how)
        answers = scene.run(one, other)
        scene.now.count("jobs stopped beyond their lease")
        if any(answer.crashed for answer in answers) or all(answer.status for answer in answers):
            detail = str([a.output[-400:] for a in answers])
            scene.now.fault("of a stopped job and another none succeeded", detail)
        scene.whole("a job that was stopped")
        if scene.again(JOB, scene.job, "a job"):
            scene.tidy("a job after a stopped one")


def start_at_once(scene: Scene) -> None:
    """Several jobs with one output."""
    for _ in range(STRIKES):
        number = scene.draw.randint(2, 4)
        asks = [Ask(JOB, scene.job, delay=scene.draw.choice([0.0, 0.02, 0.3])) for _ in range(number)]
        answers = scene.run(*asks)
        scene.now.count("jobs started at once", number)
        if all(answer.status for answer in answers) or any(answer.crashed for answer in answers):
            scene.now.fault("of jobs at once none succeeded", str([a.output[-300:] for a in answers]))
        for answer in answers:
            if answer.status and "another job is writing" not in answer.output and "lease" not in answer.output:
                scene.now.fault("a job that lost does not say to whom", answer.output[-500:])
        scene.whole("jobs at once")
        scene.tidy("jobs at once")


def kill_trainers(scene: Scene) -> None:
    """A training, killed and gone on with."""
    model_dir = scene.folder / "model"
    argv = training(scene.source.data, model_dir)
    unhurt = scene.unhurt(TRAIN, argv, "a training", watched=model_dir)
    shutil.rmtree(model_dir)
    for _ in range(scene.draw.randint(1, 2)):
        scene.strike(TRAIN, argv, "a training", unhurt, watched=model_dir)
        scene.now.count("trainings killed")
    done = scene.again(TRAIN, argv, "a training")
    if not done:
        return
    scene.tidy("a training", model_dir)
    exports = sorted(model_dir.glob("export/*/[0-9]*"))
    if not exports:
        scene.now.fault("a training has exported nothing", done.output[-800:])
    for export in exports[-1:]:
        scene.again(PREDICT, predicting(scene.source, export, scene.folder), "a prediction of its export")


def predicting(source: Ground, saved_model: Path | None, folder: Path) -> tuple[str, ...]:
    """The arguments of predictions on a dataset's own input.

    Raises:
      Failed: there is no export.
    """
    if saved_model is None:
        raise Failed("a training has exported nothing")
    output = folder / "predictions.jsonl"
    return predict_arguments(saved_model, source.inputs, output, "--overwrite", "--quiet")


def kill_predictions(scene: Scene) -> None:
    """Predictions on a dataset's own rows."""
    folder = scene.folder / "predicted"
    folder.mkdir()
    output = folder / "predictions.jsonl"
    argv = predicting(scene.source, scene.source.saved_model, folder)
    unhurt = scene.unhurt(PREDICT, argv, "predict", watched=folder)
    for _ in range(STRIKES):
        if scene.draw.random() < 0.5:
            output.unlink(missing_ok=True)
        scene.strike(PREDICT, argv, "predict", unhurt, watched=folder)
        scene.now.count("predictions killed")
        if output.exists() and output.read_bytes().count(b"\n") != ROWS:
            scene.now.fault("predict leaves half of an output", "cut")
    if scene.again(PREDICT, argv, "predict") and output.read_bytes().count(b"\n") != ROWS:
        scene.now.fault("predict after a killed one leaves half of an output", "cut")
    scene.tidy("predict", folder)


SCENES = (  # and the grounds that each may begin from
    *((kill_jobs, ("csv", "gzip")), (kill_replays, ("csv",)), (stop_jobs, ("csv",)), (start_at_once, ("csv",))),
    *((kill_trainers, ("csv",)), (kill_predictions, ("linear",))),
)


def scene_of(seed: str) -> tuple[Callable[[Scene], None], tuple[str, ...]]:
    """The scene of a round: each comes once in as many rounds as there are scenes, in an order drawn anew.

    Args:
      seed: of the round, whose number is behind its last colon.
    """
    attack, _, number = seed.rpartition(":")
    turn, place = divmod(int(number), len(SCENES))
    return random.Random(f"{attack}:{turn}").sample(SCENES, len(SCENES))[place]


def play(now: Round) -> None:
    """One scene, hurt some times."""
    scene, kinds = scene_of(now.seed)
    scene(Scene(now, now.ground(*kinds)))
