"""This package for the workers of Dataflow: the source distribution, beside what Beam stages."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator

from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions, WorkerOptions

from beam_jobs.runtime.beam_flags import is_dataflow
from schemas.errors import UsageError
from schemas.source_distribution import NAME, archive_name, folder_of, source_distribution

_OWN_PROJECT = re.compile(rf"""^name\s*=\s*["'](?:{NAME}|millrace)["']""", re.MULTILINE)  # the latter up to 0.2.0


@contextlib.contextmanager
def staged(runner: str, given: PipelineOptions) -> Iterator[None]:
    """Has Beam send this package to the workers, while the pipeline is submitted in the block.

    On Dataflow that is a package that is made here, unless `--sdk_container_image` names an image, which has it, or
    `--setup_file` is that of another copy of this project. On other runners nothing is added.

    Args:
      runner: the runner's name.
      given: Beam's options, which are changed.

    Raises:
      UsageError: there is no file that `--setup_file` names.
    """
    setup, worker = given.view_as(SetupOptions), given.view_as(WorkerOptions)
    if not is_dataflow(runner) or worker.sdk_container_image is not None:
        yield
        return
    project = _project(setup.setup_file)
    if project is not None and not _is_here(project):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="millrace-package-") as folder:
        path = os.path.join(folder, archive_name())
        with open(path, "wb") as file:
            file.write(source_distribution())
        if project is not None:  # Beam would build it in the checkout, and leave its traces there
            setup.setup_file = None
        setup.extra_packages = [*(setup.extra_packages or ()), path]
        yield


def _project(setup_file: str | None) -> str | None:
    """The folder of a --setup_file, if it is that of this project, here or in another copy."""
    if setup_file is None:
        return None
    folder = os.path.dirname(os.path.abspath(setup_file))
    if not os.path.isfile(setup_file):
        raise UsageError(f"--setup_file {setup_file}: no such file")
    try:
        with open(os.path.join(folder, "pyproject.toml"), encoding="utf-8") as file:
            return folder if _OWN_PROJECT.search(file.read()) else None
    except OSError:
        return None


def _is_here(project: str) -> bool:
    """Whether the modules that run here are those of the project in this folder."""
    return os.path.realpath(os.path.join(project, "beam_jobs")) == os.path.realpath(folder_of("beam_jobs"))
