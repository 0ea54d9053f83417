"""A training submitted to other machines, or to several processes of this one: `millrace submit`.

flags        the command line
pools        how many processes of which role
training     the training's own arguments, checked before anything is staged
package      the code for other machines: a source distribution, staged, and what installs it there
local        processes of this machine
vertex       a CustomJob of Vertex AI: its request, its client, its log, and following it
kubernetes   Jobs and a headless Service
"""

__all__: list[str] = []
