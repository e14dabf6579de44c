"""What no choice costs less than, in closed form."""
