"""Small random clusters with pods that use every field of scheduling, well-formed and close enough to clash."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from orchestrators.kubernetes.rows import ClusterObjects

Manifest = dict[str, Any]
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
TOPOLOGIES = (HOST, ZONE, "rack")
NAMESPACES = {"n1": {"team": "a"}, "n2": {"team": "b"}, "n3": {}}
DRIVER = "disks.example"


FIELDS = (
    "initContainers",
    "overhead",
    "ports",
    "nodeSelector",
    "nodeAffinity",
    "podAffinity",
    "podAntiAffinity",
    "topologySpreadConstraints",
    "tolerations",
)


class Draw:
    """Parts of manifests, each in about as many forms as the API has."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.uses: set[str] = set()
        """The fields of the pod that is drawn: a few, so that often one alone decides."""

    def maybe(self, probability: float) -> bool:
        return self.random.random() < probability

    def one(self, *of: Any) -> Any:
        return self.random.choice(of)

    def some(self, of: list[Any] | tuple[Any, ...], least: int = 0) -> list[Any]:
        return self.random.sample(of, self.random.randint(least, len(of)))

    # ---- nodes ----

    def node(self, name: str) -> Manifest:
        labels = {
            HOST: name,
            ZONE: self.one("z1", "z2"),
            "rack": self.one("r1", "r2"),
            "disk": self.one("ssd", "hdd"),
        }
        labels |= {"cores": self.one("4", "16", "many", "-3"), "gpu": "yes"}
        for key in self.some(list(labels)):
            if self.maybe(0.25):
                del labels[key]
        allocatable = {
            "cpu": self.one("2", "3500m", "6"),
            "memory": self.one("4Gi", "6000M"),
            "pods": self.one("3", "110"),
        }
        allocatable["ephemeral-storage"] = self.one("10Gi", "1G")
        if self.maybe(0.5):
            allocatable["example.com/gpu"] = self.one("1", "2")
        spec: Manifest = {"taints": [self.taint() for _ in range(self.one(0, 0, 0, 1, 2))]}
        spec["taints"] = list({(each["key"], each["effect"]): each for each in spec["taints"]}.values())
        if self.maybe(0.1):
            spec["unschedulable"] = True
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": allocatable},
        }

    def taint(self) -> Manifest:
        taint = {
            "key": self.one("only", "old"),
            "effect": self.one("NoSchedule", "NoExecute", "PreferNoSchedule"),
        }
        return {**taint, **({"value": self.one("x", "y")} if self.maybe(0.6) else {})}

    # ---- selectors ----

    def requirement(self, operators: tuple[str, ...], labels: Mapping[str, tuple[str, ...]]) -> Manifest:
        key, operator = self.one(*labels), self.one(*operators)
        if operator in ("Gt", "Lt"):
            return {"key": "cores", "operator": operator, "values": [self.one("3", "4", "15", "-4")]}
        if operator in ("In", "NotIn"):
            return {"key": key, "operator": operator, "values": self.some(labels[key], 1)}
        return {"key": key, "operator": operator}

    def node_term(self) -> Manifest:
        labels = {"disk": ("ssd", "hdd"), ZONE: ("z1", "z2", "z3"), "rack": ("r1", "r2"), "gpu": ("yes",)}
        operators = ("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
        term: Manifest = {}
        if self.maybe(0.9):
            term["matchExpressions"] = [self.requirement(operators, labels) for _ in range(self.one(1, 1, 2))]
        if self.maybe(0.2):
            field = {
                "key": "metadata.name",
                "operator": self.one("In", "NotIn"),
                "values": [self.one("a", "b", "c")],
            }
            term["matchFields"] = [field]
        return term

    def selector(self) -> Manifest | None:
        labels = {"app": ("web", "db"), "version": ("1", "2")}
        if self.maybe(0.05):
            return None
        selector: Manifest = {}
        if self.maybe(0.6):
            selector["matchLabels"] = {"app": self.one("web", "db")}
        if self.maybe(0.4):
            operators = ("In", "NotIn", "Exists", "DoesNotExist")
            selector["matchExpressions"] = [self.requirement(operators, labels)]
        return selector

    def pod_term(self) -> Manifest:
        term: Manifest = {"topologyKey": self.one(*TOPOLOGIES), "labelSelector": self.selector()}
        if self.maybe(0.2):
            term["namespaces"] = self.some(list(NAMESPACES), 1)
        if self.maybe(0.2):
            term["namespaceSelector"] = self.one(
                {}, {"matchLabels": {"team": "a"}}, {"matchLabels": {"team": "b"}}
            )
        if self.maybe(0.15):
            term["matchLabelKeys"] = ["version"]
        elif self.maybe(0.15):
            term["mismatchLabelKeys"] = ["version"]
        return term

    def spread(self, topology: str) -> Manifest:
        spread = {
            "topologyKey": topology,
            "maxSkew": self.one(1, 1, 2),
            "whenUnsatisfiable": self.one(
                "DoNotSchedule", "DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"
            ),
            "labelSelector": self.selector(),
        }
        if self.maybe(0.3) and spread["whenUnsatisfiable"] == "DoNotSchedule":
            spread["minDomains"] = self.one(1, 2, 3)
        for policy in self.some(("nodeAffinityPolicy", "nodeTaintsPolicy")):
            spread[policy] = self.one("Honor", "Ignore")
        if self.maybe(0.2):
            spread["matchLabelKeys"] = ["version"]
        return spread

    # ---- pods ----

    def container(self, name: str) -> Manifest:
        requests = {
            "cpu": self.one("100m", "0.5", "1", "1500m"),
            "memory": self.one("100Mi", "1Gi", "2.5Gi", "1500M"),
        }
        requests |= {"ephemeral-storage": self.one("1Mi", "600M"), "example.com/gpu": self.one("1", "0")}
        container: Manifest = {"name": name, "image": self.one("app:1", "db")}
        container["resources"] = {
            "requests": {key: requests[key] for key in self.some(list(requests)) if self.maybe(0.7)}
        }
        if "ports" in self.uses:
            port = {"containerPort": 80, "hostPort": self.one(80, 81), "protocol": self.one("TCP", "UDP")}
            port |= {"hostIP": self.one("10.0.0.1", "10.0.0.2", "0.0.0.0")} if self.maybe(0.5) else {}
            container["ports"] = [port]
        return container

    def pod(self, name: str, node: str | None = None) -> Manifest:
        self.uses = set(self.some(FIELDS)[:3])
        labels = {"app": self.one("web", "db"), "version": self.one("1", "2")}
        for key in list(labels):
            if self.maybe(0.15):
                del labels[key]
        spec: Manifest = {"schedulerName": "rota", "containers": [self.container("main")], "affinity": {}}
        if "initContainers" in self.uses:
            starting = [self.container("first"), {**self.container("beside"), "restartPolicy": "Always"}]
            spec["initContainers"] = self.some(starting, 1)
        if "overhead" in self.uses:
            spec["overhead"] = {"cpu": "250m"}
        if "nodeSelector" in self.uses:
            spec["nodeSelector"] = self.one({"disk": "ssd"}, {ZONE: "z1"}, {"disk": "ssd", "rack": "r1"})
        if "nodeAffinity" in self.uses:
            terms = [self.node_term() for _ in range(self.one(1, 2))]
            preferred = [
                {"weight": self.one(1, 50, 100), "preference": self.node_term()}
                for _ in range(self.one(0, 2))
            ]
            spec["affinity"]["nodeAffinity"] = {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
                "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            }
        for kind in ("podAffinity", "podAntiAffinity"):
            if kind in self.uses:
                required = [self.pod_term() for _ in range(self.one(1, 1, 2))]
                preferred = [
                    {"weight": self.one(1, 100), "podAffinityTerm": self.pod_term()}
                    for _ in range(self.one(0, 1))
                ]
                spec["affinity"][kind] = {
                    "requiredDuringSchedulingIgnoredDuringExecution": required,
                    "preferredDuringSchedulingIgnoredDuringExecution": preferred,
                }
        if "topologySpreadConstraints" in self.uses:
            spec["topologySpreadConstraints"] = [self.spread(each) for each in self.some(TOPOLOGIES, 1)[:2]]
        if "tolerations" in self.uses or self.maybe(0.4):
            spec["tolerations"] = [self.toleration() for _ in range(self.one(1, 2))]
        metadata = {"name": name, "namespace": self.one("n1", "n1", "n2", "n3"), "labels": labels}
        if node is not None:
            spec["nodeName"] = node
            if self.maybe(0.1):
                metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return {"metadata": metadata, "spec": spec}

    def toleration(self) -> Manifest:
        toleration = {
            "key": self.one("only", "old", "node.kubernetes.io/unschedulable"),
            "operator": self.one("Exists", "Equal"),
        }
        if toleration["operator"] == "Equal" and self.maybe(0.8):
            toleration["value"] = self.one("x", "y")
        if self.maybe(0.15):
            toleration = {"operator": "Exists"}
        if self.maybe(0.4):
            toleration["effect"] = self.one("NoSchedule", "NoExecute")
            if toleration["effect"] == "NoExecute":
                toleration["tolerationSeconds"] = 300
        return toleration

    # ---- volumes ----

    def volume(self, name: str) -> Manifest:
        spec: Manifest = {"csi": {"driver": DRIVER, "volumeHandle": name}}
        if self.maybe(0.5):
            spec["nodeAffinity"] = {
                "required": {"nodeSelectorTerms": [self.node_term() for _ in range(self.one(1, 2))]}
            }
        labels = {ZONE: self.one("z1", "z1__z2", "z2")} if self.maybe(0.5) else {}
        return {"metadata": {"name": name, "labels": labels}, "spec": spec}

    def claim(self, pod: Manifest, volume: str | None) -> Manifest:
        """A claim of the pod, which uses it: bound, or to be bound with a node."""
        metadata: Manifest = {
            "name": f"c-{pod['metadata']['name']}",
            "namespace": pod["metadata"]["namespace"],
        }
        spec: Manifest = {"storageClassName": "late"}
        if volume is not None:
            metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
            spec["volumeName"] = volume
        pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": metadata["name"]}}]
        return {"metadata": metadata, "spec": spec}


def cluster(seed: int) -> ClusterObjects:
    """Three to five nodes, a few pods that run on them and as many that need a place."""
    draw = Draw(seed)
    nodes = [draw.node(name) for name in "abcde"[: draw.one(3, 4, 5)]]
    nodes[0]["metadata"]["labels"][HOST] = "a"
    names = [node["metadata"]["name"] for node in nodes]
    running = [draw.pod(f"r{number}", draw.one(*names)) for number in range(draw.one(2, 4, 6))]
    pending = [draw.pod(f"p{number}") for number in range(5)]
    volumes, claims = [], []
    for pod in (*running, *pending):
        if draw.maybe(0.25):
            volume = (
                draw.volume(f"v-{pod['metadata']['name']}") if draw.maybe(0.7) or pod in running else None
            )
            claims.append(draw.claim(pod, volume["metadata"]["name"] if volume else None))
            volumes += [volume] if volume else []
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": draw.some(("z1", "z2"), 1)}]}]
    late = {"metadata": {"name": "late"}, "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer"}
    limited = [
        {
            "metadata": {"name": name},
            "spec": {"drivers": [{"name": DRIVER, "allocatable": {"count": draw.one(0, 1, 2)}}]},
        }
        for name in names
        if draw.maybe(0.6)
    ]
    return ClusterObjects(
        nodes=nodes,
        pods=[*running, *pending],
        namespaces=[{"metadata": {"name": name, "labels": labels}} for name, labels in NAMESPACES.items()],
        persistent_volumes=volumes,
        persistent_volume_claims=claims,
        storage_classes=[{**late, **({"allowedTopologies": topologies} if draw.maybe(0.5) else {})}],
        csi_nodes=limited,
    )
