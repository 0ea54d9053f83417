"""The last step of every pipeline: it commits the run, or refuses it.

On a cluster, the step is the last transform of the pipeline and runs on a worker, so that the launcher may end at any
time. In a local job, this process calls the step when the pipeline is done.

A result that must not be committed (counts that do not add up, drift, a lost lease) is refused. A refusal does not
raise an error, because a runner would then repeat the step in vain. Instead, the step writes the reason to the file
`failed/RUN/summary.json`, which the launcher and `millrace job status` read.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, Generic

from beam_jobs.core import progress
from beam_jobs.runs.failed import reason_of_failure, refuse
from beam_jobs.runs.run import Committer, Kind, M, NewRun
from schemas.dataset import layout
from schemas.dataset.lease import LeaseError, lease_of_job
from schemas.errors import MillraceError

if TYPE_CHECKING:
    from beam_jobs.core.inputs import StagedInputs


@dataclasses.dataclass(frozen=True)
class LastStep(Generic[M]):
    """Commits the result of a pipeline, or refuses it. A runner may repeat the step, even while an attempt is running.

    Attributes:
      committer: checks the result, and commits it.
      inputs: the staged inputs of the pipeline.
      run: the run.
    """

    committer: Committer[M]
    inputs: StagedInputs
    run: NewRun

    def __call__(self) -> None:
        """Commits the result, or refuses it; then deletes temporary files and gives the lease back.

        If an earlier attempt has committed or refused the run already, only the cleaning up is left to do.

        Raises:
          MillraceError: a file cannot be read or written. Nothing is decided about the run; the step may be repeated.
        """
        from beam_jobs.records.result import RESULT, read_result

        progress.JOB.enter("committing")
        run = self.run
        if not run.is_committed() and reason_of_failure(run.output, run.id) is None:
            try:
                lease_of_job(run.output, run.id)
                self.committer.commit(run, self.inputs, read_result(layout.join(run.staging, RESULT)))
            except MillraceError as error:
                if not run.is_committed():  # else another attempt has committed the run in the meantime
                    refuse(run, self._refusal(error), self.committer.raw_bytes)
        clean_up(run, self.committer.kind)

    def _refusal(self, error: MillraceError) -> MillraceError:
        """Returns the reason why the result must not be committed. Raises `error` if another attempt may succeed."""
        from beam_jobs.records.accounts import Unfit

        if isinstance(error, Unfit | LeaseError):
            return error
        try:
            lease_of_job(self.run.output, self.run.id)
        except LeaseError as lost:  # the new holder of the lease may have deleted the files of this run
            return lost
        raise error


def clean_up(run: NewRun, kind: Kind[Any]) -> None:
    """Deletes the temporary files of a run that was committed or refused, and releases its lease. Safe to call again.

    If the run is committed, also deletes the leftovers of other jobs in the output folder.
    """
    run.remove_files()
    with contextlib.suppress(LeaseError):
        lease = lease_of_job(run.output, run.id)
        if run.is_committed():
            kind.clear(run.output, lease)
        lease.release()
