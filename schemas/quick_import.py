"""Large libraries imported without the garbage collector, which takes a fifth of the time that importing them takes.

TensorFlow, Beam and tf.Transform make hundreds of thousands of objects that live as long as the process. The collector
goes through them again and again while they are made, and whenever it runs later, and finds nothing.
"""

from __future__ import annotations

import gc
import importlib
import sys


def quick_import(*names: str) -> None:
    """Imports modules with no collection meanwhile, and keeps what exists then out of all later collections.

    Does nothing where they are imported already.
    """
    if all(name in sys.modules for name in names):
        return
    enabled = gc.isenabled()
    gc.disable()
    try:
        for name in names:
            importlib.import_module(name)
        gc.freeze()
    finally:
        if enabled:
            gc.enable()
