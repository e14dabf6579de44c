"""Parts of a program that no demand connects, each solved by itself: as an assignment, or as a constraint model."""
