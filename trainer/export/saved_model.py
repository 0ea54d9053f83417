"""Opens an exported model for prediction: its graph in a session."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any

from schemas.exports.notes import check_files, read_notes
from schemas.storage.gcs_access import check_tensorflow
from trainer.verbosity import quiet_logs


def check_export(export_dir: str, *, trust: bool = False) -> None:
    """Checks an export as far as that goes without loading it. Its arguments and errors are those of `ServedModel`."""
    check_files(export_dir, read_notes(export_dir)[1])
    if not trust:
        from schemas.graphs.check import check_graph

        check_graph(export_dir)


class ServedModel:
    """Runs a SavedModel's signatures like a server. Imports TensorFlow; a context manager.

    Its graph runs as it is, without Grappler: see `graph_values.plain_session`.

    Args:
      export_dir: the export.
      checked: skip the checks, since they were just made or this process has just written the export.
      trust: load the graph even if it can do more than compute; the files are still compared with the notes.

    Raises:
      MillraceError: the files differ from the notes, or the graph can do more than compute.
    """

    def __init__(self, export_dir: str, *, checked: bool = False, trust: bool = False) -> None:
        check_tensorflow(export_dir)
        if not checked:
            check_export(export_dir, trust=trust)
        with quiet_logs():  # else with a notice of deprecation, which is about writing new code with sessions
            import tensorflow as tf

            from trainer.export.warmup import plain_session

            self._graph = tf.Graph()
            self._session = tf.compat.v1.Session(graph=self._graph, config=plain_session())
            with self._graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(self._session, ["serve"], export_dir)
        self.signatures: Mapping[str, Any] = meta_graph.signature_def

    def predict(
        self, inputs: Mapping[str, Any], *, signature: str = "serving_default", outputs: Collection[str] | None = None
    ) -> dict[str, Any]:
        """Runs one batch.

        Args:
          inputs: arrays with a leading batch dimension, by the signature's input names.
          signature: the signature's name.
          outputs: the outputs to compute, of those that the signature has; None: all.

        Returns:
          NumPy arrays by output name (strings as objects of `bytes`).
        """
        entry = self.signatures[signature]
        feeds = {entry.inputs[name].name: value for name, value in inputs.items()}
        fetches = {name: info.name for name, info in entry.outputs.items() if outputs is None or name in outputs}
        return self._session.run(fetches, feeds)

    def close(self) -> None:
        """Frees the `tf.Session`."""
        self._session.close()

    def __enter__(self) -> ServedModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
