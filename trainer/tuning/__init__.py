"""A search for hyper-parameters on this machine: many trainings, whose values Optuna chooses.

space          what is searched: names, ranges and choices, as they are written, also for `millrace submit vertex`
settings       how a study is searched
commands       the arguments of a trial's training
records        the study in its file: its trials, what they reported, how they ended
trainings      trainings side by side, in processes forked from one that has imported TensorFlow
trial_process  such a process; preloaded: what is imported before
study          trials one after another, until there are enough or the time is up
progress       what is said meanwhile
results        the trials as a table and as JSON
page, figures  the same as a page
"""

__all__ = ["commands", "page", "progress", "records", "results", "settings", "space", "study", "trainings"]
