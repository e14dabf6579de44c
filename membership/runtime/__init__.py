"""What runs a core in real time, on trio: the driver, the files it keeps, and what applications hear."""
