"""The measured ways to do the work, a file for each library or idea.

A function takes its `benchmarks.measure.BenchmarkTask`, and keyword arguments that the table of contests sets. The ways
of other libraries follow the documentation that their files name, and use nothing of Millrace but its list of shards.
"""
