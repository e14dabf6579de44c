"""The solver-neutral model, what is recognised in it, and the backends that solve it.

It knows neither SQL nor a table; what a row of the model stands for is only a tag here.
"""
