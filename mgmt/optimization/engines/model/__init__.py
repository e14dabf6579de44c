"""An assignment as the engines see it: equivalence classes of rows, cells of classes and values, cost functions."""
