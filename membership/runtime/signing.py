"""Signing: the key pair of one incarnation.

Ed25519: 32 us to sign, 110 us to verify, 64 bytes. The pair is drawn at every start and never written down. An
incarnation is the hash of a public key, so the view says which key is whose.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from membership.protocol.context.alert_signatures import incarnation_of


class Ed25519Signer:
    """See `Signer`."""

    def __init__(self) -> None:
        self._private = Ed25519PrivateKey.generate()
        self.public_key = self._private.public_key().public_bytes_raw()

    @property
    def incarnation(self) -> bytes:
        """The incarnation of the process that signs with this."""
        return incarnation_of(self.public_key)

    def sign(self, statement: bytes) -> bytes:
        """The signature of `statement`."""
        return self._private.sign(statement)

    def verify(self, public_key: bytes, signature: bytes, statement: bytes) -> bool:
        """Whether `signature` is of `statement` under `public_key`."""
        try:
            Ed25519PublicKey.from_public_bytes(public_key).verify(signature, statement)
        except (InvalidSignature, ValueError):
            return False
        return True
