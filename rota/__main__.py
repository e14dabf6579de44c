"""``python -m rota``: the same as the ``rota`` command."""

from rota.entry import main

if __name__ == "__main__":
    main()
