"""What the data is: schema files, raw records, datasets on disk. Imports neither Beam nor TensorFlow.

    spec      the schema file: features, label, splits, and the raw columns that follow
    rows      what a format of rows is: files, ranges, batches of raw columns with their rejects
    csv       CSV as such a format, every record accounted for
    formats   the table of the formats of rows
    images    image files and their listings: headers, limits
    storage   files on local disk and Google Cloud Storage
    dataset   the dataset directory: manifest, lease, verification, clean-up
    graphs    whether a TensorFlow graph from elsewhere may be loaded
    samples   synthetic files in the shape of the datasets whose schemas ship

The schemas that ship (`census.yaml`, `covertype.yaml`, ...) lie beside this file.
"""
