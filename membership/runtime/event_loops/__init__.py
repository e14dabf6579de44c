"""How a process's membership shares an event loop: with an application's block, with other members, with a thread."""
