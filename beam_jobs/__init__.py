"""Raw files to a dataset directory, by Apache Beam and tf.Transform. `python -m beam_jobs.preprocess` is the command.

core        options, the `Source` of raw data, and how records are counted
transform   the preprocessing that a schema implies, as a tf.Transform graph
records     examples, the shuffle, shards, and the accounts of all records
rows        rows of any format as a source
images      image files as a source
engines     the Beam runner that does the work, here or on a cluster
runs        one run: lease, stage, execute, check, commit, clean up
predicting  bulk inference with an exported model
dry_run     what a job would read, reject and write
"""
