"""``python -m orchestrators.vsphere.simulator``: a vCenter to try `rota vsphere` on, until Ctrl-C."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from orchestrators.vsphere.errors import SimulatorError
from orchestrators.vsphere.simulator.server import SimulatedVCenter, skewed


def main() -> None:
    """Serve, and say how it is reached."""
    parser = argparse.ArgumentParser(prog="python -m orchestrators.vsphere.simulator", description=__doc__)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=2.0, help="that a migration takes")
    parser.add_argument("--listen", default="127.0.0.1:8989")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    described = skewed(given.hosts, given.machines, given.seed, round(1000 * given.seconds))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the server ends with this process
    login, authority = Path("vcenter.login"), Path("vcenter.pem")
    try:
        with SimulatedVCenter(described, given.listen) as vcenter:
            login.touch(mode=0o600)
            os.chmod(login, 0o600)
            login.write_text(f"{vcenter.credentials.user}\n{vcenter.credentials.password}\n")
            assert vcenter.address.ca_file is not None
            authority.write_bytes(vcenter.address.ca_file.read_bytes())
            print(
                f"a simulated vCenter; try\n  rota vsphere plan --address {vcenter.address} "
                f"--credentials {login} --ca-file {authority}",
                flush=True,
            )
            vcenter.wait()
    except SimulatorError as error:
        raise SystemExit(f"rota: {error}") from error
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
