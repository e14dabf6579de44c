"""A program that knows nothing of rota keeps its data in the cluster that rota looks after.

    python examples/valkey_client.py --password-file cluster/n1/engine/password write 1000
    python examples/valkey_client.py --password-file cluster/n1/engine/password check 1000

It asks any agent where the servers are; a program of yours may as well be told the addresses of some of them. From then
on the client finds its way by itself, as any client of Valkey or Redis Cluster does.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from urllib.request import urlopen

from valkey.cluster import ClusterNode, ValkeyCluster

REPLICAS = 1
PATIENCE = 1000  # milliseconds


def servers(api: str) -> list[ClusterNode]:
    """Every server of every member, as the view says."""
    with urlopen(f"{api}/v1/members", timeout=10) as answer:
        members = json.load(answer)["members"]
    addresses = [address for member in members for address in member["tags"]["engine"].split(",")]
    return [ClusterNode(host, int(port)) for host, port in (address.rsplit(":", 1) for address in addresses)]


def write(client: ValkeyCluster, count: int) -> None:
    """Write so many keys, and wait for each until a replica has it: then it survives the loss of the primary."""
    began = time.monotonic()
    for number in range(count):
        key = f"key:{number}"
        server = client.get_valkey_connection(client.get_node_from_key(key))
        with server.pipeline(transaction=False) as pipeline:  # one connection: WAIT is about what it wrote
            pipeline.set(key, number)
            pipeline.wait(REPLICAS, PATIENCE)
            copies = pipeline.execute()[1]
        if copies < REPLICAS:
            raise SystemExit(f"{key}: no replica has it after {PATIENCE} ms")
    print(f"{count} keys written, each on {REPLICAS + 1} hosts, in {time.monotonic() - began:.1f} s")


def check(client: ValkeyCluster, count: int) -> None:
    """Read them back."""
    found = sum(client.get(f"key:{number}") == str(number).encode() for number in range(count))
    print(f"{found} of {count} keys are there")
    if found < count:
        raise SystemExit(1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--api", default=os.environ.get("ROTA_API", "http://127.0.0.1:7947"), help="of any agent"
    )
    parser.add_argument("--password-file", type=Path, required=True)
    parser.add_argument("action", choices=["write", "check"])
    parser.add_argument("count", type=int)
    arguments = parser.parse_args()
    password = arguments.password_file.read_text().strip()
    client = ValkeyCluster(startup_nodes=servers(arguments.api), password=password)
    {"write": write, "check": check}[arguments.action](client, arguments.count)
    client.close()


if __name__ == "__main__":
    main()
