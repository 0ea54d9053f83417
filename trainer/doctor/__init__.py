"""What limits the speed of a training: its input or its model, and which setting to change.

A dataset and the options of a training go in; steps and the stages of the input are timed in turn (`measure`,
`stages`), and figures, verdict and advice come out (`diagnosis`). Others may import `command`.
"""

__all__ = ["command"]
