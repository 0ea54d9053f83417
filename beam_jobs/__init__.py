"""Raw files to a dataset directory, by Apache Beam and tf.Transform. `python -m beam_jobs.preprocess` is the command.

core       options, the `Source` of raw data, and how records are counted
transform  the preprocessing that a schema implies, as a tf.Transform graph
output     examples, the shuffle, shards, and the commit
rows       rows of any format as a source
images     image files as a source
runtime    the job itself, and the Beam runner that does the work
replay     corrected rejects into the dataset that rejected them
"""
