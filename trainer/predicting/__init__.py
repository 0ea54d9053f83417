"""Files of rows and images through an exported model, to JSON lines or CSV, in order and in one process.

`inputs` opens the files and gives an `options.PredictedPart` for each batch: lines, rejects, counts. `output` is where
lines go: a file that appears when it is complete, or standard output. The model is `schemas.exports.model`.
"""

__all__ = ["inputs", "options", "output"]
