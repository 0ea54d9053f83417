"""Searches for hyper-parameters on this machine by many trainings, for which Optuna chooses the values.

command    the command `millrace tune`
space      the hyper-parameters that are searched, and the command line of a trial
study      runs the trials of an Optuna study, one after another
trial      one trial: a training in a process of its own, which is watched and can be ended early
"""

__all__ = ["command", "space", "study", "trial"]
