"""The first lines of the ``rota`` command: a quick start, and what makes an early Ctrl-C quiet."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Import much in here: without the garbage collector, which finds nothing and costs a sixth of the time."""
    gc.disable()
    try:
        yield
    finally:
        # Modules and classes stay for good; later collections need not look at them again.
        gc.freeze()
        gc.enable()


def main() -> None:
    """Import the command line and run it."""
    try:
        with importing():
            from rota.command_line import main as run

        run()
    except ModuleNotFoundError as error:  # the command line's own; it reports others itself
        from rota.extras import what_to_install

        advice = what_to_install(error, "the command line")
        if advice is None:
            raise
        sys.exit(f"rota: {advice}")
    except KeyboardInterrupt:
        sys.exit(130)
