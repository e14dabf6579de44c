"""The assignment as an integer program over cell counts, its linear relaxation, and the solvers it is given to."""
