"""A search for hyper-parameters on this machine: many trainings, whose values Optuna chooses.

command    the command `millrace tune`
space      what is searched: names, ranges and choices, as they are written, also for `millrace submit vertex`; the
           arguments of a trial's training
records    how a study is searched, and the study in its file: its trials, what they reported, how they ended
trainings  trainings side by side, in processes forked from one that has imported TensorFlow (`preloaded`)
study      trials one after another, until there are enough or the time is up, and what is said meanwhile
page       the trials as a table, as JSON and as a page
"""

__all__ = ["command", "page", "records", "space", "study", "trainings"]
