"""The node agent: membership, the log's servers and the control loop, wired into one process.

It moves values between the parts and decides nothing: views go from membership to the controller, requests
go to whoever is the controller, events of all parts go into one log.  The rooms of the house meet here only.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import trio

import membership
from agent import control_service, identity
from agent.api import build_application
from agent.control_service import ask, answer_requests
from agent.errors import AgentError, ApiError
from agent.event_log import EventLog
from agent.host_view import host_view
from agent.http_server import serve
from agent.settings import AgentSettings, default_data_dir
from datastore_adapter import LogAdapter, LogClient, LogServer, TrioRuntime
from membership import Address, Cluster, Configuration, Settings
from mgmt.control_errors import ControlError, NotControllerError
from mgmt.controller import Controller
from mgmt.hosts import HostView, controller_of
from mgmt.intent import Intent

log = logging.getLogger("rota")

STREAM_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
