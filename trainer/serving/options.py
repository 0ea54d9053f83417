"""The options of a server."""

from __future__ import annotations

import dataclasses

from schemas.errors import UsageError
from trainer.serving.batcher import BatchLimits


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What is served, where, and within which limits.

    Attributes:
      export_dir: the export.
      name: the model's name in addresses.
      host: the address to listen on.
      port: the port; 0: a free one.
      batches: how requests are batched.
      max_bytes: of a body.
      trust: load the graph even if it can do more than compute.
      verbose: also show TensorFlow's log.
    """

    export_dir: str
    name: str = "model"
    host: str = "127.0.0.1"
    port: int = 8501
    batches: BatchLimits = dataclasses.field(default_factory=BatchLimits)
    max_bytes: int = 32 << 20
    trust: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port < 2**16:
            raise UsageError(f"--port {self.port}: must be between 0 and 65,535")
