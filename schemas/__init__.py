"""Defines what the data is: schema files, raw records, and datasets on disk. Imports neither Beam nor TensorFlow.

    spec      the schema file: features, label, splits, and the raw columns that follow from them
    rows      the interface of a format of rows: files, ranges, batches of raw columns with their rejects
    csv       CSV, which is such a format; every record is accounted for
    formats   the table of all formats of rows
    images    image files and their listings: headers, limits
    storage   files on local disk and Google Cloud Storage
    dataset   the dataset directory: manifest, lease, verification, clean-up
    graphs    checks whether a TensorFlow graph of unknown origin may be loaded
    samples   synthetic files in the format of the datasets whose schemas ship

The schemas that ship (`census.yaml`, `covertype.yaml`, ...) are in the same folder as this file.
"""
