"""kube-apiserver and kube-scheduler, built from their Go modules once into the user's cache.

``python tests/orchestrators/kubernetes/servers/programs.py`` builds what is missing: about seven minutes of a
processor.  etcd is Debian's (``etcd-server``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

VERSION: Final = "1.34.2"
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rota/kubernetes" / VERSION
NAMES: Final = ("kube-apiserver", "kube-scheduler")
STAGING: Final = """
    api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap
    code-generator component-base component-helpers controller-manager cri-api cri-client csi-translation-lib
    dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator kube-controller-manager kube-proxy
    kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission sample-apiserver sample-cli-plugin
    sample-controller
"""
"""Modules that live in the repository of k8s.io/kubernetes, which requires each at v0.0.0."""


def missing(names: Iterable[str] = NAMES) -> str | None:
    """One line that says what is not there, and what to do; None where all is."""
    if shutil.which("etcd") is None:
        return "no etcd: apt-get install etcd-server"
    for name in names:
        if not (CACHE / name).is_file():
            if shutil.which("go") is None:
                return f"no {name} in {CACHE}, and no go to build it with"
            return f"no {name} in {CACHE}: `make test-kubernetes` builds it, or python {Path(__file__).name}"
    return None


def build() -> None:
    """Build what is missing.  Raises SystemExit with one line where there is no Go."""
    for name in NAMES:
        if (CACHE / name).is_file():
            continue
        if shutil.which("go") is None:
            raise SystemExit(f"{name} is built with go, which is not installed")
        print(f"building {name} {VERSION} into {CACHE}: some minutes, once", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            _build(name, Path(folder))


def _build(name: str, folder: Path) -> None:
    main = Path(__file__).parent / name.removeprefix("kube-") / "main.go"
    shutil.copy(main, folder)
    (folder / "go.mod").write_text(_module(name))
    CACHE.mkdir(parents=True, exist_ok=True)
    low = ["nice", "-n", "19"]
    subprocess.run([*low, "go", "mod", "tidy"], cwd=folder, check=True, stderr=subprocess.DEVNULL)
    made = folder / name
    subprocess.run(
        [*low, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(made), "."], cwd=folder, check=True
    )
    shutil.move(made, CACHE / name)


def _module(name: str) -> str:
    staging = f"v0{VERSION[1:]}"
    required = f"require (\n\tk8s.io/kubernetes v{VERSION}\n\tk8s.io/component-base {staging}\n)\n"
    replaced = "".join(f"replace k8s.io/{each} => k8s.io/{each} {staging}\n" for each in STAGING.split())
    return f"module rota.test/{name}\n\ngo 1.24.0\n\n{required}\n{replaced}"


if __name__ == "__main__":
    build()
    sys.exit(missing())
