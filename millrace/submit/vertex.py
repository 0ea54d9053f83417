"""`millrace submit vertex`: submits a training as a CustomJob of Vertex AI.

Vertex AI gives roles to worker pools by their position: chief, workers, parameter servers, evaluators. If a job does
not have one of the roles, an empty pool takes its position.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from millrace.submit.command import VertexOptions
from millrace.submit.training import pairs, read_training
from schemas import command, storage
from schemas.errors import MillraceError, UsageError
from schemas.storage.store import redacted
from trainer.strategies.cluster import CHIEF, ROLES, WORKER

SUBMIT_SECONDS = 60.0  # the time limit for Vertex AI's answer


def submit(options: VertexOptions, arguments: Sequence[str] | None, prog: str) -> command.Report:
    """Submits a job, and reports how to follow it.

    Args:
      options: the options of the command.
      arguments: the arguments after `--`; None: there was no `--`.
      prog: the command as it was typed, for messages.

    Raises:
      UsageError: a flag, or an argument of the training, is wrong.
      MillraceError: the job could not be submitted.
    """
    if not options.image:
        raise UsageError(
            "--image: missing; the machines need an image with this package: docker/worker of this project builds one "
            "(docs/submit.md)"
        )
    default_model_dir = None
    if options.output_dir is not None:
        if storage.is_local(options.output_dir):
            raise UsageError(f"--output_dir {options.output_dir}: must be in a bucket, such as gs://my-bucket/folder")
        default_model_dir = storage.join(options.output_dir, "model")
    training = read_training(arguments, prog, options.sizes, model_dir=default_model_dir)
    training.check_in_buckets("the machines of Vertex AI have disks of their own")
    name = _create(options, custom_job(options, training.command))
    job_id = name.rpartition("/")[2]
    place = f"--project {options.project} --region {options.region}"
    url = (
        f"https://console.cloud.google.com/agent-platform/locations/{options.region}/training/{job_id}"
        f"?project={options.project}"
    )
    lines = [
        f"submitted  {name}",
        f"page       {url}",
        f"model      {training.options.model_dir}",
        f"follow     gcloud ai custom-jobs stream-logs {job_id} {place}",
        f"cancel     gcloud ai custom-jobs cancel {job_id} {place}",
    ]
    return command.Report("\n".join(lines), {"job": name, "url": url, "model_dir": training.options.model_dir})


def custom_job(options: VertexOptions, command: Sequence[str]) -> dict[str, Any]:
    """Returns the job as fields of `google.cloud.aiplatform_v1.CustomJob`.

    Args:
      options: the options of the job.
      command: the command that each container runs.

    Raises:
      UsageError: an accelerator is not written as TYPE:N.
    """
    sizes = options.sizes
    last = max(ROLES.index(role) for role in sizes)
    variables = {"PYTHONUNBUFFERED": "1", **options.variables}
    container = {
        "image_uri": options.image,
        "command": list(command),
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }
    scheduling: dict[str, Any] = {"strategy": "SPOT"} if options.spot else {}
    if options.timeout_hours is not None:
        scheduling["timeout"] = {"seconds": round(options.timeout_hours * 3600)}
    spec = {
        "worker_pool_specs": [
            {
                "replica_count": sizes[role],
                "machine_spec": _machine(options, role),
                "disk_spec": {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": options.disk_gb},
                "container_spec": container,
            }
            if role in sizes
            else {}
            for role in ROLES[: last + 1]
        ],
        "scheduling": scheduling,
        "base_output_directory": options.output_dir and {"output_uri_prefix": options.output_dir},
        "service_account": options.service_account,
        "network": options.network,
    }
    job_spec = {name: value for name, value in spec.items() if value}
    return {"display_name": options.name, "labels": pairs(options.labels, "--labels"), "job_spec": job_spec}


def _machine(options: VertexOptions, role: str) -> dict[str, Any]:
    """Returns the machine of a role; only chief and workers get an accelerator."""
    machine: dict[str, Any] = {"machine_type": options.machine_type}
    if options.accelerator is not None and role in (CHIEF, WORKER):
        match = re.fullmatch(r"([A-Za-z0-9_-]+):([1-9][0-9]*)", options.accelerator)
        if match is None:
            raise UsageError(f"--accelerator {options.accelerator}: expected TYPE:N, such as NVIDIA_L4:1")
        machine |= {"accelerator_type": match[1].upper().replace("-", "_"), "accelerator_count": int(match[2])}
    return machine


def _create(options: VertexOptions, job: Mapping[str, Any]) -> str:
    """Submits the job. Returns its resource name.

    Raises:
      UsageError: Google's client, or Vertex AI, refuses a field.
      MillraceError: the job could not be submitted for another reason.
    """
    from google.api_core.exceptions import InvalidArgument
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform_v1

    try:
        request = aiplatform_v1.CustomJob(dict(job))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise UsageError(f"Google's client refuses the job: {_one_line(error)}") from error
    address = options.endpoint or f"{options.region}-aiplatform.googleapis.com"
    settings: dict[str, Any] = {"client_options": {"api_endpoint": address}}
    if options.no_auth:
        settings["credentials"] = AnonymousCredentials()
    if "://" in address:  # plain REST, for a test server on this machine
        settings["transport"] = "rest"
    parent = f"projects/{options.project}/locations/{options.region}"
    try:
        client = aiplatform_v1.JobServiceClient(**settings)
        # Not retried: if the answer to the first request was lost, the job may already be running.
        created = client.create_custom_job(parent=parent, custom_job=request, timeout=SUBMIT_SECONDS, retry=None)
    except InvalidArgument as error:
        raise UsageError(f"Vertex AI refuses the job: {_one_line(error)}") from error
    except Exception as error:  # whatever Google's client raises, missing credentials included
        raise MillraceError(f"the job could not be submitted: {type(error).__name__}: {_one_line(error)}") from error
    return str(created.name)


def _one_line(error: Exception) -> str:
    """Returns an error's message in one line, without secrets."""
    return " ".join(redacted(str(getattr(error, "message", None) or error)).split())[:500]
