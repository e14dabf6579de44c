"""``python -m agent``: the same as the ``rota`` command."""

from agent.entry import main

if __name__ == "__main__":
    main()
