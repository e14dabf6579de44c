"""The first lines of the ``rota`` command: nothing but what makes an early Ctrl-C quiet."""

import sys


def main() -> None:
    """Import the command line and run it."""
    try:
        from agent.command_line import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
