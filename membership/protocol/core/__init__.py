"""The core of a member: one object per process, which joins all components and drives them.

`Core` is what a host drives. Beside it: who says what to whom (dispatch), and from one view to the next.
"""

from membership.protocol.core.core import Core

__all__ = ["Core"]
