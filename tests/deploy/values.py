"""Values for the chart: each of them set at least once, and some that it has to refuse.

Owns the sets. `test_deploy.py` holds that none is forgotten; `python -m tests.deploy` renders them.
"""

from __future__ import annotations

from typing import Any, Final

Values = dict[str, Any]

ADMIN: Final[Values] = {
    "name": "admin",
    "password_hash": "$scrypt$ln=15,r=8,p=3$c2FsdHNhbHRzYWx0c2FsdA$" + "A" * 43,
    "operate": True,
    "manage": ["*"],
    "sessions": 500,
}

ISSUED: Final[Values] = {
    "enabled": True,
    "issuerRef": {"name": "fifo", "kind": "ClusterIssuer"},
    "duration": "720h",
    "renewBefore": "240h",
}

SETS: Final[dict[str, Values]] = {
    "the defaults, one user": {"users": [ADMIN]},
    "names, image, storage, a secret that is there": {
        "users": [ADMIN],
        "replicas": 5,
        "founders": 5,
        "clusterName": "shop.orders",
        "image": {"repository": "registry.example/fifo", "tag": "0.1.0", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "clusterDomain": "example.internal",
        "storage": {"size": "100Gi", "className": "local"},
        "secret": {"existingSecret": "orders", "key": "members"},
    },
    "an image by its digest, a single node": {
        "users": [ADMIN],
        "replicas": 1,
        "founders": 1,
        "begin": True,
        "image": {"repository": "fifo", "digest": "sha256:" + "0a" * 32},
    },
    "three that have grown to five": {"users": [ADMIN], "replicas": 5, "peerTls": ISSUED},
    "one that has grown to three": {"users": [], "usersInLog": True, "founders": 0},
    "users of the log, balancers": {
        "users": [],
        "usersInLog": True,
        "balancers": ["10.0.0.0/24", "fd00::1"],
    },
    "TLS everywhere, a service monitor": {
        "users": [ADMIN],
        "tls": ISSUED,
        "peerTls": ISSUED,
        "serviceMonitor": {
            "enabled": True,
            "interval": "30s",
            "labels": {"release": "prometheus"},
            "basicAuthSecret": "fifo-monitor",
        },
    },
    "TLS of clients alone": {"users": [ADMIN], "tls": ISSUED},
    "certificates that pods have alone": {
        "users": [ADMIN],
        "peerTls": {**ISSUED, "csiDriver": True},
    },
    "settings of nodes, logs, resources": {
        "users": [ADMIN],
        "raft": {"heartbeat_ms": 50},
        "limits": {"disk_low_bytes": 1 << 30},
        "log": {"format": "text", "level": "debug"},
        "resources": {"limits": {"memory": "8Gi"}, "requests": {"cpu": "2", "memory": "8Gi"}},
        "podDisruptionBudget": {"enabled": False},
    },
    "where pods run": {
        "users": [ADMIN],
        "podAnnotations": {"example.org/owner": "shop"},
        "podLabels": {"team": "shop"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "fifo", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
                    ]
                }
            }
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "fifo"}},
            }
        ],
        "priorityClassName": "system-cluster-critical",
        "serviceAccount": {"annotations": {"example.org/role": "fifo"}},
    },
}

REFUSED: Final[dict[str, Values]] = {
    "no users at all": {},
    "a password as a value": {"users": [{"name": "admin", "password": "secret"}]},
    "a value that there is not": {"users": [ADMIN], "replica": 3},
    "the beginning of one node alone in three": {"users": [ADMIN], "begin": True},
    "one node that would join": {"users": [ADMIN], "replicas": 1, "founders": 0},
    "no node": {"users": [ADMIN], "replicas": 0},
    "TLS without an issuer": {"users": [ADMIN], "tls": {"enabled": True}},
    "TLS of peers without an issuer": {"users": [ADMIN], "peerTls": {"enabled": True}},
    "a client port's certificate for each pod": {
        "users": [ADMIN],
        "tls": {**ISSUED, "csiDriver": True},
    },
    "a digest that is none": {"users": [ADMIN], "image": {"repository": "fifo", "digest": "1.0"}},
}


def leaves(values: Values, above: str = "") -> set[str]:
    """The paths of values that are set: `image.tag`."""
    found: set[str] = set()
    for key, value in values.items():
        path = f"{above}{key}"
        found.add(path)
        if isinstance(value, dict):
            found |= leaves(value, f"{path}.")
    return found


def known(schema: Values, top: Values | None = None, above: str = "") -> set[str]:
    """The paths that a schema of values names."""
    top = top or schema
    found: set[str] = set()
    for key, one in schema.get("properties", {}).items():
        if "$ref" in one:
            one = top["definitions"][one["$ref"].rpartition("/")[2]]
        path = f"{above}{key}"
        found |= {path} | known(one, top, f"{path}.")
    return found
