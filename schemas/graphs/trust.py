"""The option `--trust` of the commands that load a graph: it skips `schemas.graphs.check`."""

from __future__ import annotations

TRUST_HELP = "load graphs that can do more than compute, such as write files; only if you trust their author"
