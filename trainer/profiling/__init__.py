"""What the doctor measures: a training, its input stage by stage, and changes of it."""

__all__ = ["diagnosis", "examination", "turns"]
