"""Trains a model: builds the Estimator, performs this process's role in the training, exports, and writes metrics."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from schemas import interrupts, storage
from schemas.dataset import OpenDataset, layout
from schemas.display import Display, rate_limited
from schemas.errors import MillraceError
from schemas.exports.notes import BEST, MARK
from schemas.storage import folders
from trainer.data.input_fn import input_fn
from trainer.data.input_options import Position, input_options
from trainer.estimator import tf_estimator
from trainer.evaluation.metrics import metric_names
from trainer.evaluation.watch import Watch
from trainer.export.exporters import BEST_CHECKPOINT_JSON, Exports
from trainer.export.outputs import classes_of
from trainer.loop.boosting import grow
from trainer.loop.building import (
    build_estimator,
    find_model,
    input_start,
    tell_resumed,
    with_label,
)
from trainer.loop.checks import asks_for_class_weights
from trainer.loop.early_stopping import (
    AtCheckpoints,
    ProgressHook,
    StopWithChief,
    clear_ended,
    mark_ended,
    read_ended,
)
from trainer.loop.evaluations import (
    Evaluations,
    Trained,
    evaluation_line,
    plain_metrics,
    so_far,
    write_metrics,
    write_split_report,
)
from trainer.loop.plan import as_recorded, ended_early
from trainer.loop.profile import Phase, Profile, ProfileSteps, Stopwatch, advise
from trainer.loop.session_evaluation import SessionEvaluation
from trainer.model_dir.checkpoints import (
    check_stays_within,
    recover_checkpoint,
    remove_temporary_exports,
    remove_temporary_files,
)
from trainer.model_dir.model_json import (
    EVALUATIONS,
    Metrics,
    claim_model_dir,
    describe_training,
    read_evaluations,
)
from trainer.models import BUILT_IN, is_grown
from trainer.promotion.options import PromoteOptions
from trainer.promotion.promote import promote
from trainer.spec.hparams import augmentation
from trainer.spec.metrics import best_metric
from trainer.spec.options import TrainingPlan
from trainer.spec.task_spec import AS_IT_IS
from trainer.strategies.cluster import wait_for_chief
from trainer.strategies.run_config import check_shared, replicas_of, run_config, without_notices
from trainer.strategies.tpu import is_tpu

ModeKeys = tf_estimator.ModeKeys


@dataclasses.dataclass(frozen=True)
class TrainingTask:
    """The part of a training that this process does.

    Attributes:
      options: the plan of the training.
      dataset: the dataset.
      estimator: the Estimator.
      display: shows progress.
      exports: keeps the best checkpoint, and exports it and the last checkpoint.
      watch: computes the metrics of evaluations.
      evaluations: records evaluations.
      say: shows what is done between steps, on the status line.
      start: the place where the input begins.
      stopwatch: measures the phases of the training.
      profiled: with --profile, measures and traces steps; else None.
    """

    options: TrainingPlan
    dataset: OpenDataset
    estimator: Any
    display: Display
    exports: Exports
    watch: Watch
    evaluations: Evaluations
    say: Callable[[str], None] = lambda text: None
    start: Position = dataclasses.field(default_factory=Position)
    stopwatch: Stopwatch = dataclasses.field(default_factory=Stopwatch)
    profiled: ProfileSteps | None = None

    @property
    def config(self) -> Any:
        return self.estimator.config

    @property
    def steps_an_epoch(self) -> float:
        """The number of steps that read as many examples as the train split has.

        It is 1 for boosted trees: a step is a round of boosting, which reads all examples.
        """
        return 1.0 if is_grown(self.options.model) else self.options.steps_an_epoch(self.dataset)

    def reader(self, split: str, mode: str) -> Callable[[Mapping[str, Any]], Any]:
        """Returns the `input_fn` of a split for Estimator.

        Its argument `params` holds the batch size if a TPU sets it.
        """
        options = input_options(self.dataset, self.options, split=split, mode=mode, replicas=replicas_of(self.config))

        def read(params: Mapping[str, Any]) -> tf.data.Dataset:
            if mode == ModeKeys.EVAL:
                self.say(f"evaluating on {split}")
            size = params.get("batch_size", options.batch_size)
            sized = dataclasses.replace(options, batch_size=size, start=self.start)
            batches = input_fn(self.dataset, split, mode=mode, options=sized, config=self.config)
            return self.profiled.timed(batches) if self.profiled and mode == ModeKeys.TRAIN else batches

        return read

    @functools.cached_property
    def evaluation(self) -> SessionEvaluation:
        """Evaluates checkpoints on the evaluation split."""
        read, steps = self.reader(self.options.eval_split, ModeKeys.EVAL), self.options.eval_steps
        on_one_device = not (self.config.train_distribute or is_tpu(self.config))
        return SessionEvaluation(self.estimator, read, steps, keep=on_one_device)

    def latest_step(self) -> int:
        """Returns the global step of the last checkpoint; 0 if there is no checkpoint."""
        checkpoint = tf.train.latest_checkpoint(self.options.model_dir)
        return int(tf.train.load_variable(checkpoint, "global_step")) if checkpoint else 0


def train(
    dataset: OpenDataset, options: TrainingPlan, display: Display, *, began: float | None = None
) -> Trained | None:
    """Trains a model, in the role that TF_CONFIG gives this process; without TF_CONFIG, as a single process.

    Args:
      dataset: the dataset.
      options: the plan of the training.
      display: shows progress.
      began: the value of `time.monotonic()` when the command began, for `--profile`; None: now.

    Returns:
      The result. None for a chief or worker of a cluster: the evaluator evaluates and exports.

    Raises:
      UsageError: the model or a hyper-parameter is unknown, the model directory contains another model, or --augment is
        given without images.
      MillraceError: the training failed, or another training is writing to the model directory.
    """
    stopwatch = Stopwatch(began)
    check_stays_within(options.model_dir)
    _, hparams = find_model(options)
    config = run_config(
        options,
        options.model_dir,
        save_checkpoints_steps=options.save_checkpoints_steps,
        keep_checkpoint_max=options.keep_checkpoints,
        # graph.pbtxt and *.meta are not written: nothing reads them, and writing a large graph takes seconds.
        # TensorBoard reads the graph from the events.
        checkpoint_save_graph_def=False,
        experimental_max_worker_delay_secs=0,  # `wait_for_chief` does the waiting
    )
    check_shared(options.batch_size, replicas_of(config))
    # In a cluster only the chief locks the folder, which workers and evaluators share.
    with folders.locked(options.model_dir) if config.is_chief else contextlib.nullcontext(True) as is_free:
        if not is_free:
            raise MillraceError(
                f"{options.model_dir}: another training is writing to it. Wait until it has ended, or use another "
                "--model_dir."
            )
        task = prepared_task(dataset, options, hparams, config, display, stopwatch)
        return run_task(task)


def prepared_task(
    dataset: OpenDataset, options: TrainingPlan, hparams: Any, config: Any, display: Display, stopwatch: Stopwatch
) -> TrainingTask:
    """Prepares the model directory, the Estimator and the place where the input begins.

    Args:
      dataset: the dataset.
      options: the plan of the training.
      hparams: the model's hyper-parameters.
      config: the `RunConfig`.
      display: shows progress.
      stopwatch: measures the phases of the training.

    Raises:
      UsageError: the options do not fit the dataset or the model directory.
      MillraceError: the model directory has no valid checkpoint, or no model can be built for the dataset.
    """
    options = with_label(dataset, options)
    class_weights = (options.label or AS_IT_IS).class_weights
    watch = Watch(dataset, class_weights)
    if options.model in BUILT_IN and config.is_chief and not class_weights and asks_for_class_weights(dataset):
        display.line(f"note: class_weights: balanced: {options.model} counts examples alike, and not classes")
    if options.model in BUILT_IN:  # refuses an unknown metric before it is recorded
        best_metric(dict.fromkeys(metric_names(classes_of(dataset), class_weights)), options.best_metric)
    if config.is_chief:
        begin(dataset, options, hparams, display)
    task = TrainingTask(
        options,
        dataset,
        build_estimator(dataset, options, config, display.line, watch),
        display,
        Exports(dataset, options, say=display.update),
        watch,
        Evaluations(options.model_dir),
        say=rate_limited(display),
        stopwatch=stopwatch,
        profiled=ProfileSteps(stopwatch, options.model_dir) if options.profile else None,
    )
    if is_grown(options.model):
        return task
    step = task.latest_step()
    ended = ended_early(options, step) if step < options.max_steps else None
    if ended is not None:  # the training has already ended early
        options = dataclasses.replace(options, max_steps=step)
        if config.is_chief:
            mark_ended(options.model_dir, ended)
    tell_resumed(options, hparams, step=step, tell=display.line)
    start = input_start(dataset, options, config, step=step, tell=display.line)
    return dataclasses.replace(task, options=options, start=start)


def begin(dataset: OpenDataset, options: TrainingPlan, hparams: Any, display: Display) -> None:
    """Prepares the model directory: recovers a valid checkpoint, writes `model.json`, and removes stale files.

    Raises:
      UsageError: the directory's checkpoints belong to another training.
      MillraceError: the directory has checkpoints, but none of them is valid.
    """
    training = describe_training(
        dataset,
        model=options.model,
        hparams=dataclasses.asdict(hparams),
        augment=dataclasses.asdict(augmentation(options.augment)) if dataset.image_schema is not None else {},
        warm_start_from=options.warm_start_from,
        plan=as_recorded(options),
    )
    checkpoint = recover_checkpoint(options.model_dir, display.line)
    claim_model_dir(options.model_dir, training, resumes=checkpoint is not None)
    remove_temporary_files(options.model_dir)
    clear_ended(options.model_dir)
    of_earlier_training = (
        EVALUATIONS,
        os.path.join("export", BEST, MARK),
        os.path.join("export", BEST, BEST_CHECKPOINT_JSON),
    )
    for path in of_earlier_training if checkpoint is None else ():
        if storage.exists(layout.join(options.model_dir, path)):
            storage.delete(layout.join(options.model_dir, path))


def run_task(task: TrainingTask) -> Trained | None:
    """Performs this process's role: trains, evaluates, or serves parameters.

    Returns the result if this process exports: without a cluster, or as the evaluator. Otherwise returns None.
    """
    config, model_dir = task.config, task.options.model_dir
    if not config.cluster_spec or config.task_type == "evaluator":
        remove_temporary_exports(model_dir)
    if config.task_type == "evaluator":
        return evaluate_continuously(task)
    before, started = task.latest_step(), time.monotonic()
    if is_grown(task.options.model):
        grow_trees(task)
    else:
        task.say("building the graph")
        take_steps(task)
    seconds = time.monotonic() - started
    task.stopwatch.enter(Phase.REST)
    if config.is_chief and read_ended(model_dir) is None:
        mark_ended(model_dir, f"all {task.options.max_steps:,} steps are done")
    if config.cluster_spec:
        task.display.line(
            f"{config.task_type} ended at step {task.latest_step():,}; the evaluator evaluates and exports"
        )
        return None
    return conclude(task, steps=task.latest_step() - before, seconds=seconds)


def grow_trees(task: TrainingTask) -> None:
    """Grows and evaluates boosted trees. Trees that an earlier, killed process has saved are not grown again."""
    ended = "the trees were grown before"
    if not task.latest_step():
        _, hparams = find_model(task.options)
        ended = grow(task.dataset, task.options, hparams, say=task.say)
        evaluate_checkpoint(task, task.estimator.latest_checkpoint())
    mark_ended(task.options.model_dir, ended)


def take_steps(task: TrainingTask) -> None:
    """Trains up to the last step, in the role that the `RunConfig` names.

    Without a cluster, it also evaluates the checkpoints.
    """
    options, config = task.options, task.config
    hooks: list[Any] = []
    if config.is_chief:
        progress = functools.partial(so_far, chosen=options.best_metric, split=options.eval_split)
        evaluations = task.evaluations
        hooks.append(ProgressHook(task.display, options, task.steps_an_epoch, lambda: progress(evaluations.last)))
    elif config.task_type == "worker":
        hooks.append(StopWithChief(options.model_dir))
    read = task.reader("train", ModeKeys.TRAIN)
    with contextlib.ExitStack() as stack:
        stack.enter_context(without_notices())
        if task.profiled is not None:
            hooks.append(task.profiled)
            stack.enter_context(contextlib.closing(task.profiled))
        if config.cluster_spec:
            if config.task_type == "worker":
                wait_for_chief(config)
            listeners = [AtCheckpoints(options, task.stopwatch, None)] if config.is_chief else []
            train_spec = tf_estimator.TrainSpec(read, options.max_steps, hooks, listeners)
            tf_estimator.train_and_evaluate(task.estimator, train_spec, tf_estimator.EvalSpec(read))
            return
        stack.enter_context(contextlib.closing(task.evaluation))
        listener = AtCheckpoints(options, task.stopwatch, functools.partial(evaluate_checkpoint, task))
        task.estimator.train(read, max_steps=options.max_steps, hooks=hooks, saving_listeners=[listener])


def evaluate_continuously(task: TrainingTask) -> Trained:
    """Evaluates new checkpoints until the training has ended. This is the evaluator's role.

    Estimator's own loop is not used: it ends only at max_steps, so it would never end if the training stops early.
    """
    started = time.monotonic()
    evaluated = None
    model_dir = task.options.model_dir

    def ended() -> bool:
        interrupts.check()
        return read_ended(model_dir) is not None

    with contextlib.closing(task.evaluation):
        for checkpoint in tf.train.checkpoints_iterator(model_dir, timeout=10, timeout_fn=ended):
            evaluated = checkpoint
            try:
                if evaluate_checkpoint(task, checkpoint)["global_step"] >= task.options.max_steps:
                    break
            except (ValueError, tf.errors.NotFoundError):  # TensorFlow's errors for a missing file
                if tf.io.gfile.exists(f"{checkpoint}.index"):
                    raise  # otherwise the chief has removed the checkpoint, because it keeps only the latest
        last = tf.train.latest_checkpoint(model_dir)
        if last != evaluated:
            evaluate_checkpoint(task, last)
    return conclude(task, steps=None, seconds=time.monotonic() - started)


def evaluate_checkpoint(task: TrainingTask, checkpoint: str) -> Metrics:
    """Evaluates a checkpoint, keeps it if it is the best, records the evaluation and prints it."""
    options = task.options
    task.say(f"evaluating on {options.eval_split}")
    with task.stopwatch.phase(Phase.EVALUATIONS):
        metrics = plain_metrics(task.evaluation(checkpoint))
    # The checkpoint is kept before the evaluation is recorded: if the process is killed in between, both are repeated.
    with task.stopwatch.phase(Phase.EXPORTS):
        is_best = task.exports.consider(checkpoint, metrics)
    task.evaluations.add(metrics, task.watch.last, is_best=is_best)
    chosen, positive = best_metric(metrics, options.best_metric).name, task.watch.positive_class
    task.display.line(evaluation_line(metrics, chosen, options.eval_split, task.steps_an_epoch, positive))
    return metrics


def conclude(task: TrainingTask, *, steps: int | None, seconds: float) -> Trained:
    """Writes the final export, and the metrics and reports of the recommended export.

    The recommended export is the best one, or the final one if there is no best export. It is evaluated on the
    evaluation split and, if requested, on `test`.

    Args:
      task: the training in this process.
      steps: the number of steps trained this time; None in the evaluator's role.
      seconds: the time of the training.
    """
    options = task.options
    task.dataset.check_sizes()  # a shard that was truncated between two records while it was read caused no error
    checkpoint = task.estimator.latest_checkpoint()
    if checkpoint is None:
        raise MillraceError(f"{options.model_dir}: training ended without a checkpoint")
    if task.latest_step() not in [evaluation["global_step"] for evaluation in read_evaluations(options.model_dir)]:
        evaluate_checkpoint(task, checkpoint)  # an earlier process was killed after saving it
    with task.stopwatch.phase(Phase.EXPORTS):
        exports = task.exports.write(task.estimator, checkpoint)
    if BEST in exports:
        checkpoint = os.path.join(
            exports[BEST], "variables", "variables"
        )  # the export's own copy: the checkpoint itself may already be removed
    metrics: dict[str, Metrics] = {}
    pages: dict[str, str] = {}
    for split in options.evaluated_splits:
        evaluation, predictions = task.evaluations.best, task.evaluations.best_predictions
        if split != options.eval_split or evaluation is None:
            limit = options.eval_steps if split == options.eval_split else None
            reader = task.reader(split, ModeKeys.EVAL)
            with task.stopwatch.phase(Phase.EVALUATIONS):
                result = task.estimator.evaluate(reader, steps=limit, name=split, checkpoint_path=checkpoint)
            evaluation, predictions = plain_metrics(result), task.watch.last
        metrics[split] = evaluation
        write_metrics(options.model_dir, task.dataset, split, evaluation, task.watch.positive_class)
        if options.no_report:
            continue
        task.display.update(f"writing the report on {split}")
        with task.stopwatch.phase(Phase.REPORTS):
            pages[split] = write_split_report(
                task.dataset, options, task.estimator, checkpoint, split, evaluation, predictions
            )
    task.display.close()
    trained = Trained(
        options.model_dir,
        task.latest_step(),
        steps,
        seconds,
        metrics,
        exports,
        ended=(read_ended(options.model_dir) or {}).get("reason", "training continues in another process"),
        reports=pages,
        positive_class=task.watch.positive_class,
        profile=profile_of(task),
    )
    return trained if options.promote_to is None else promoted(trained, task, options.promote_to)


def profile_of(task: TrainingTask) -> Profile | None:
    """Returns where the time went until now, with a suggestion; None without `--profile`."""
    if task.profiled is None:
        return None
    task.stopwatch.enter(Phase.REST)
    seconds = dict(task.stopwatch.seconds)
    advice = advise(task.dataset, task.options, seconds, has_gpu=bool(tf.config.list_logical_devices("GPU")))
    trace_dir = task.options.model_dir if task.profiled.has_trace else None
    return Profile(seconds, task.profiled.steps, trace_dir, advice)


def promoted(trained: Trained, task: TrainingTask, to: str) -> Trained:
    """Promotes the best export, and returns the result with the decision. A refusal does not make the training fail.

    Raises:
      MillraceError: no decision could be made; the training itself is complete.
    """
    promote_options = PromoteOptions(
        export=trained.export_dir, to=to, data_dir=task.options.data_dir, trust=task.options.trust
    )
    try:
        decision = promote(promote_options, verified=True, say=task.display.line)
    except MillraceError as error:
        raise MillraceError(
            f"--promote_to {to}: {error}. The model is trained, and its exports are complete: promote it by "
            f"`millrace promote --from {trained.export_dir} --to {to}`"
        ) from error
    return dataclasses.replace(trained, promotion=decision)
