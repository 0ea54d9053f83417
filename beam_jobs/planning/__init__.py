"""What a job on all of the data would need, from jobs on two samples of it: time, memory, disk, shards and money.

A schema and a listing go in; `sample` takes two small inputs from it, `estimate` runs the job on them and draws a line
through what they needed, and `report` adds machines and money, and says it to people or programs.
"""

__all__ = ["estimate", "report", "sample"]
