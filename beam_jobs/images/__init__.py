"""Image files as the source of a job: each file is listed, read once, decoded, resized, stored and measured.

`source` lists the images, `reader` and `ingest` turn a file into a record, `facts` holds the measurements of an image,
and `pipeline` runs these steps in Beam.
"""

__all__ = ["facts", "pipeline", "reader", "source"]
