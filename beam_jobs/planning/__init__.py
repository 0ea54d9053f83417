"""What a job on all of the data would need, from jobs on two samples of it: time, memory, disk, shards and money."""

__all__ = ["estimate", "measure", "prices", "report", "sample"]
