"""A training submitted to other machines, or to several processes of this one: `millrace submit`.

flags        the command line
pools        how many processes of which role
training     the training's own arguments, checked before anything is staged
package      the code for other machines: a source distribution, staged, and what installs it there
local        processes of this machine
vertex       a job of Vertex AI: its request, its client, its log, and following it; vertex_study: many, by --tune
kubernetes   Jobs and a headless Service, or a TFJob
"""

__all__: list[str] = []
