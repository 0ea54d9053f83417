"""A training submitted to other machines, or to several processes of this one: `millrace submit`.

command      the command line
training     the training's own arguments, checked before anything is submitted, and its processes by role
local        processes of this machine
vertex       a CustomJob of Vertex AI
kubernetes   Jobs and a headless Service
"""

__all__: list[str] = []
