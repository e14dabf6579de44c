"""The control loop: look, decide, agree, carry out, look again; and what operators ask of it.

It reaches the compiler and the solver only through ``mgmt.solving``.
"""
