"""A search for hyper-parameters on this machine: many trainings, whose values Optuna chooses.

command    the command `millrace tune`
space      the hyper-parameters that are searched, and the command line of a trial
study      the trials of an Optuna study, one after another
trial      one trial: a training in a process of its own, watched and pruned
"""

__all__ = ["command", "space", "study", "trial"]
