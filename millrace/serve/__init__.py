"""Serves an exported model over HTTP: one process, one thread for the model, batches of all clients' rows.

`server` runs a server from its start to its end. A request comes to `app`, which reads its JSON (`bodies`) as rows
(`requests`) for the model's inputs; `batcher` has the model answer and the store take what was answered, and `bodies`
writes JSON. `model` loads exports, `trial` tries newer ones out, and `versions` exchanges them.
"""

__all__ = ["options", "server"]
