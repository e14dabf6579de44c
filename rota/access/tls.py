"""TLS of the HTTP interface: the certificate, its key, and the authorities whose clients are let in.

Read again on SIGHUP: connections that are open keep what they began with.
"""

from __future__ import annotations

import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

from rota.errors import SettingsError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    certificate: Path
    """The agent's certificate in PEM, and after it those that lead to its authority."""
    key: Path
    client_ca: Path | None = None
    """Authorities of clients: who has no certificate of one of them is not even heard."""

    @classmethod
    def of(cls, certificate: Path | None, key: Path | None, client_ca: Path | None) -> TlsFiles | None:
        """None where there is no certificate."""
        return None if certificate is None or key is None else cls(certificate, key, client_ca)

    def context(self) -> ssl.SSLContext:
        """What connections begin with from now on.  Raises :class:`SettingsError`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        # Each connection has its own: a ticket would let a client in whose authority was taken away since.
        context.num_tickets = 0
        _check_private(self.key)
        try:
            # Without a password it would be asked for on the terminal.
            context.load_cert_chain(self.certificate, self.key, password="")
        except ssl.SSLError as error:
            raise SettingsError(
                f"api_certificate: {self.certificate} and {self.key} are no certificate and its key in PEM, without "
                f"a password ({error.reason or error})"
            ) from error
        except OSError as error:
            raise SettingsError(f"api_certificate: {self.certificate}: {error.strerror}") from error
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(self.client_ca)
            except ssl.SSLError as error:
                raise SettingsError(
                    f"api_client_ca: {self.client_ca}: no certificate in PEM is in it"
                ) from error
            except OSError as error:
                raise SettingsError(f"api_client_ca: {self.client_ca}: {error.strerror}") from error
        return context

    def names_and_expiry(self) -> tuple[tuple[str, ...], int]:
        """The DNS names and IP addresses that the certificate is for, and until when, in Unix seconds.

        Raises :class:`SettingsError`.
        """
        from cryptography import x509  # only who serves TLS pays for this

        try:
            certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except OSError as error:
            raise SettingsError(f"api_certificate: {self.certificate}: {error.strerror}") from error
        except (ValueError, x509.ExtensionNotFound) as error:
            raise SettingsError(
                f"api_certificate: {self.certificate} names no host (subjectAltName): no client could check it"
            ) from error
        addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
        expiry = int(certificate.not_valid_after_utc.timestamp())
        return (*names.get_values_for_type(x509.DNSName), *addresses), expiry


def _check_private(key: Path) -> None:
    try:
        mode = key.stat().st_mode
    except OSError as error:
        raise SettingsError(f"api_key: {key}: {error.strerror}") from error
    if mode & 0o007:
        raise SettingsError(
            f"api_key: everybody can reach {key} (mode {stat.S_IMODE(mode):04o}); chmod 600 it"
        )
