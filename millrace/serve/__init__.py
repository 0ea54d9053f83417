"""Serves an exported model over HTTP: one process, one thread for the model, batches of all clients' rows.

A request goes from `connections` (limits, who may ask) to `app`, which reads its JSON (`bodies`) as rows (`requests`)
for the model's inputs; `batcher` has the model answer and the store take what was answered, `bodies` writes JSON.
`server` runs all this, `pages` answers everything else, `model` loads exports and `versions` exchanges them.
"""

__all__ = ["options", "server"]
