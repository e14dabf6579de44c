"""The console: one web page over the interface under ``/v1``, which the agent serves at ``/``.

Here are its files and the routes to them.  What it shows it asks for like every other client; there is no data, and
no right, that only the console has.
"""

from rota.http.console.files import PAGE, StaticFile, page_wanted, static_files

__all__ = ["PAGE", "StaticFile", "page_wanted", "static_files"]
