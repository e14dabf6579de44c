"""A vCenter that is simulated, to try things on: govmomi's simulator, built once with Go into the user's cache."""

from __future__ import annotations

from orchestrators.vsphere.simulator.server import Description, Load, SimulatedVCenter, binary, skewed

__all__ = ["Description", "Load", "SimulatedVCenter", "binary", "skewed"]
