"""The run's end of the control channel: a Unix socket that agents call, and the reports they send over it.

Connections and lines. Whoever made it is told of each report, and of each connection that ends.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from chaos.errors import BackendError
from chaos.processes import control_messages as control
from chaos.processes.agent_process import AgentProcess
from membership.protocol.view.configuration import ConfigurationError

_READ = 1 << 20
_CALLERS_WAITING = 512


class AgentConnection:
    """One connection: whose it is, once it has said so, and the line that has only half arrived."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.lines = control.Lines()
        self.agent: AgentProcess | None = None


class ControlListener:
    """Listens at `path`. `on_report` is called with each report and who sent it, `on_end` with who has hung up."""

    def __init__(
        self,
        path: Path,
        on_report: Callable[[AgentConnection, control.Report], None],
        on_end: Callable[[AgentConnection], None],
    ) -> None:
        self._on_report = on_report
        self._on_end = on_end
        self._selector = selectors.DefaultSelector()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(_CALLERS_WAITING)
        self._socket.setblocking(False)
        self._selector.register(self._socket, selectors.EVENT_READ, None)

    def poll(self, timeout: float) -> None:
        """Take what agents say within `timeout` seconds. Raises BackendError when it can not be read."""
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._socket:
                self._accept()
            else:
                self._read(key.data)

    def close(self) -> None:
        """Hang up on everybody."""
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def _accept(self) -> None:
        connection, _ = self._socket.accept()
        connection.setblocking(True)
        self._selector.register(connection, selectors.EVENT_READ, AgentConnection(connection))

    def _read(self, caller: AgentConnection) -> None:
        try:
            data = caller.connection.recv(_READ)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(caller.connection)
            caller.connection.close()
            self._on_end(caller)
            return
        for line in caller.lines.feed(data):
            try:
                self._on_report(caller, control.decode_report(line))
            except (msgspec.DecodeError, ConfigurationError) as error:
                raise BackendError(f"an agent reported what can not be read: {error}") from error
