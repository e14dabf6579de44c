"""What is noted of a run: views, sizes, bytes; and what a cluster under test has to offer for that."""
