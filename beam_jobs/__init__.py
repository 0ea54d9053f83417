"""Writes raw files as a dataset, with Apache Beam and tf.Transform. The command is `python -m beam_jobs.preprocess`.

core        options, the interface of a source of raw data, and the counting of records
transform   the preprocessing that a schema implies, as a tf.Transform graph
records     encodes records as tf.Examples, shuffles them, writes shards, and checks the counts
rows        rows of any format as a source
images      image files as a source
engines     the Beam runners, in this process or on a cluster
runs        one run of a job: takes the lease, stages the input, runs the pipeline, checks, commits and cleans up
predicting  bulk inference with an exported model
dry_run     estimates from a sample what a job would read, reject and write
"""
