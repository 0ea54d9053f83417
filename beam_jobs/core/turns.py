"""The bundles of a worker process take turns, as many at once as it has cores.

A runner may hand a process more of them: Prism up to eight, and more often so the longer the input. Each holds a batch
of rows and what becomes of it, or the records of a shard. So memory would grow with their number, and no core would
do more.
"""

from __future__ import annotations

import os
import threading

# Held while an element is worked on, never while one is waited for: so nobody who has a turn waits for another one.
TURN = threading.Semaphore(os.cpu_count() or 1)
