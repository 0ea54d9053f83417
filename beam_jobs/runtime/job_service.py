"""The job services that runners start on this machine: the program of Prism, and those of Flink and Spark in Java."""

from __future__ import annotations

import threading
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.portable_runner import PortableRunner

from schemas.errors import MillraceError

_TO_DO = {
    "PrismRunner": "check --prism_location, a program of Prism such as `make cloud-tools` builds",
    "FlinkRunner": "install Java, and check --flink_job_server_jar, the jar that Beam downloads otherwise",
    "SparkRunner": "install Java, and check --spark_job_server_jar, the jar that Beam downloads otherwise",
}


def explained(runner: PortableRunner) -> PortableRunner:
    """A runner like the given one, which raises a MillraceError of one line if its job service does not start."""
    kind: Any = type(runner)
    to_do = _TO_DO.get(kind.__name__, "check its options")

    class Explained(kind):
        def create_job_service(self, options: PipelineOptions) -> Any:
            _hide_closed_channels()
            try:
                return super().create_job_service(options)
            except Exception as error:
                said = " ".join(str(error).split()) or type(error).__name__
                raise MillraceError(
                    f"{kind.__name__}: its job service did not start: {said}; {to_do}; --verbose shows its log"
                ) from error

    Explained.__name__ = kind.__name__  # Beam looks at the name
    return Explained()


def _hide_closed_channels() -> None:
    """Prints no traceback of a thread of gRPC's that ends because Beam has closed its channel to a dead service.

    This stays, since such a thread may end after the error of the service was reported.
    """
    report = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if "Channel closed" not in str(args.exc_value):
            report(args)

    threading.excepthook = hook
