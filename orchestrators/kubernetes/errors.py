"""What can go wrong between rota and a cluster."""

from __future__ import annotations


class KubernetesError(Exception):
    """Base of all errors here; the message is one complete line."""


class CredentialsError(KubernetesError):
    """No kubeconfig and no service account say how to reach an API server.  Says what was looked for."""


class UnreachableError(KubernetesError):
    """The API server does not answer: it is down, restarting, or the network is.  Worth trying again."""


class RequestError(KubernetesError):
    """The API server refused a request.  ``reason`` is its own: ``Conflict``, ``NotFound``, ``Forbidden``."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{message or 'the API server refused'} ({status} {reason})".rstrip())
        self.status = status
        self.reason = reason

    @property
    def is_worth_another_try(self) -> bool:
        """Whether the same request may succeed later: the server is busy or not ready."""
        return self.status in (429, 500, 502, 503, 504)


class ExpiredError(KubernetesError):
    """A watch cannot go on from its resource version: list again."""


class ObjectsError(KubernetesError):
    """What was given as a dump of a cluster is none.  Says what to give."""
