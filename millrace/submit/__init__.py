"""Submits a training to other machines, or runs it as several processes of this machine: `millrace submit`.

command      the command line
training     the training's own arguments, checked before anything is submitted, and its processes by role
local        runs processes on this machine
vertex       submits a CustomJob to Vertex AI
kubernetes   writes Jobs and a headless Service for Kubernetes
"""

__all__: list[str] = []
