"""The commands of ``rota``, a module per topic; each lists its own in ``COMMANDS``."""
