"""A training submitted to other machines, or to several processes of this one: `millrace submit`.

command      the command line
training     the training's own arguments, checked before anything is staged; its processes by role; the code for other
             machines, staged, and what installs it there (`bootstrap`)
local        processes of this machine
vertex       a job of Vertex AI, followed to its end, with its log; its request; vertex_study: many jobs, by --tune
kubernetes   Jobs and a headless Service, or a TFJob
"""

__all__: list[str] = []
