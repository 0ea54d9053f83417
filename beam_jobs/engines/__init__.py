"""Runs pipelines on Beam's runners, in this process or on a cluster, and asks about jobs that run on a cluster.

The clusters are Dataflow, and those behind a job service: Prism, Flink and Spark.
"""

__all__ = ["checks", "dataflow", "jobs", "portable", "remote_job", "runner"]
