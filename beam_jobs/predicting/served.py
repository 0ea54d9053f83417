"""The exported model in a worker's process: loaded once, whichever bundles and threads ask for it."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from schemas import storage
from schemas.errors import MillraceError
from schemas.exports.notes import check_files, read_notes
from schemas.storage import folders

RAW = "serving_default"
WITHOUT_KEY = "without_key:serving_default"  # keys need not go through the model
OUTPUTS = ("class_id", "probabilities", "value", "error")


@dataclasses.dataclass(frozen=True)
class ExportRef:
    """An export as the launcher checked it. `sha256`: of its notes, which name the checksums of all its files."""

    path: str
    sha256: str


class Served:
    """A SavedModel in a session; many threads may call it at once.

    Its graph runs without Grappler, and each call in the thread that makes it: several batches at once keep the cores
    busy, with less work than one batch that is divided among threads.
    """

    def __init__(self, folder: str) -> None:
        import tensorflow as tf

        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, gpu_options={"allow_growth": True})
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        self._options = tf.compat.v1.RunOptions(inter_op_thread_pool=-1)
        self._graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=self._graph, config=config)
        level = tf.compat.v1.logging.get_verbosity()
        tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)  # a notice about code that uses sessions
        with self._graph.as_default():
            loaded = tf.compat.v1.saved_model.load(self._session, ["serve"], folder)
        tf.compat.v1.logging.set_verbosity(level)
        signatures = loaded.signature_def
        entry = signatures[WITHOUT_KEY if WITHOUT_KEY in signatures else RAW]
        self.inputs: Collection[str] = frozenset(entry.inputs)
        self._feeds = {name: info.name for name, info in entry.inputs.items()}
        self._fetches = {name: info.name for name, info in entry.outputs.items() if name in OUTPUTS}

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Runs one batch: raw columns by name -> the outputs of OUTPUTS that the model has, `[batch, ...]`."""
        feeds = {self._feeds[name]: values for name, values in inputs.items() if name in self._feeds}
        import tensorflow as tf

        try:
            outputs: dict[str, np.ndarray] = self._session.run(self._fetches, feeds, options=self._options)
        except tf.errors.OpError as error:
            raise MillraceError(f"the model failed: {error.message}") from error
        return outputs


_loaded: dict[ExportRef, Served] = {}
_loading = threading.Lock()


def served(export: ExportRef) -> Served:
    """The model, which is loaded when this process first asks for it.

    Raises:
      MillraceError: the export has changed since the launcher checked it, or cannot be read.
    """
    with _loading:
        if export not in _loaded:
            _loaded.clear()  # of an earlier job in this process
            with _on_disk(export) as folder:
                _loaded[export] = Served(folder)
        return _loaded[export]


@contextlib.contextmanager
def _on_disk(export: ExportRef) -> Iterator[str]:
    """The export in a local folder, its files compared with its notes: what is loaded is what was checked."""
    with contextlib.ExitStack() as stack:
        folder = export.path
        if not storage.is_local(folder):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-export-"))
            folders.copy(export.path, folder)
        _, notes = read_notes(folder)
        if notes_digest(folder) != export.sha256:
            raise MillraceError(f"{export.path}: was replaced by another export while the job ran; start again")
        check_files(folder, notes)
        yield folder


def notes_digest(folder: str) -> str:
    """The SHA-256 of an export's notes."""
    from schemas.dataset.opening import sha256
    from schemas.exports.notes import EXTRA, NOTES

    return sha256(storage.join(folder, EXTRA, NOTES))
