"""The option `--trust`, of each command that loads a graph; `schemas.graphs.check` is what it passes over."""

from __future__ import annotations

TRUST_HELP = "load graphs that can do more than compute, such as write files; only if you trust their author"
