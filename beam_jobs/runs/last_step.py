"""The last step of every pipeline: it commits the run, or refuses it.

On a cluster it is the last transform of the pipeline and runs on a worker, so that the launcher may end at any time;
the runner of this process calls it when the pipeline is done. What must not be committed (counts that do not add up,
drift, a lost lease) is refused, which is never raised, since runners repeat what raises. It is written to the file
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
    """Commits the result of a pipeline, or refuses it. A runner may repeat it, also while another attempt is at work.

    Attributes:
      committer: checks the result, and commits it.
      inputs: the input, as it was staged.
      run: the run.
    """

    committer: Committer[M]
    inputs: StagedInputs
    run: NewRun

    def __call__(self) -> None:
        """Commits the result, or refuses it; then cleans up and gives the lease back.

        Raises:
          MillraceError: a file cannot be read or written. Nothing has changed, and the step may be repeated.
        """
        from beam_jobs.records.result import RESULT, read_result

        progress.JOB.enter("committing")
        run = self.run
        if not run.is_committed() and reason_of_failure(run.output, run.id) is None:  # else only the rest is left
            try:
                lease_of_job(run.output, run.id)
                self.committer.commit(run, self.inputs, read_result(layout.join(run.staging, RESULT)))
            except MillraceError as error:
                if not run.is_committed():  # else another attempt has done so
                    refuse(run, self._refusal(error), self.committer.raw_bytes)
        clean_up(run, self.committer.kind)

    def _refusal(self, error: MillraceError) -> MillraceError:
        """Returns why the result must not be committed, and raises `error` where another attempt may succeed."""
        from beam_jobs.records.accounts import Unfit

        if isinstance(error, Unfit | LeaseError):
            return error
        try:
            lease_of_job(self.run.output, self.run.id)
        except LeaseError as lost:  # its new holder may have removed the files that this step misses
            return lost
        raise error


def clean_up(run: NewRun, kind: Kind[Any]) -> None:
    """Removes what a run needs no more that is committed or refused, and gives its lease back. May be repeated."""
    run.remove_files()
    with contextlib.suppress(LeaseError):
        lease = lease_of_job(run.output, run.id)
        if run.is_committed():
            kind.clear(run.output, lease)
        lease.release()
