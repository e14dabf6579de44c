"""What does not lift, and why."""


class NotLiftedError(Exception):
    """A demand or an objective has no structure that an assignment can have; ``str`` says why."""
