"""The first lines of the ``rota`` command: a quick start, and what makes an early Ctrl-C quiet."""

import sys

from rota.imports import importing, what_to_install


def main() -> None:
    """Import the command line and run it."""
    try:
        with importing():
            from rota.commands.command_line import main as run

        run()
    except ModuleNotFoundError as error:  # the command line's own; it reports others itself
        advice = what_to_install(error, "the command line")
        if advice is None:
            raise
        sys.exit(f"rota: {advice}")
    except KeyboardInterrupt:
        sys.exit(130)
