"""engine.yaml as the operator renders it, for tests that need one to change."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

SAMPLE: dict[str, Any] = {
    "version": 1,
    "deployment": {"namespace": "default", "name": "chat"},
    "model": {
        "servedName": "chat",
        "source": "bundled",
        "path": "/opt/rwkv/models/tiny-recall",
        "format": "Auto",
        "dtype": "Auto",
        "maxModelLen": 4096,
        "download": None,
    },
    "stack": {"name": "cpu", "vendor": "cpu", "runtime": {}, "supports": {"quantization": []}},
    "engine": {
        "tensorParallelSize": 1,
        "maxNumSeqs": 16,
        "maxNumBatchedTokens": 2048,
        "quantization": "None",
        "extraArgs": [],
    },
    "state": {
        "store": "perPod",
        "path": "/var/lib/rwkv/state",
        "s3": None,
        "defaultTtlSeconds": 86400,
        "maxBytesPerTenant": 10 * 2**30,
        "hotBytes": 64 * 2**20,
        "automaticReuse": "Memory",
        "maxUploadBytes": 128 * 2**20,
        "openAccess": False,
        "peers": {
            "url": "http://chat-engine-{ordinal}.chat-engine.default.svc.cluster.local:8000",
            "ordinals": 16,
        },
    },
    "http": {"port": 8000, "internalKeyFile": "/etc/rwkv-internal/key"},
    "ops": {"port": 8001},
    "drain": {
        "routerCheckIntervalSeconds": 1,
        "shutdownTimeoutSeconds": 30,
        "flushTimeoutSeconds": 30,
    },
}


def changed(**fields: Any) -> dict[str, Any]:
    """The sample with some fields replaced: `model__path="/x"` sets model.path."""
    config = copy.deepcopy(SAMPLE)
    for field, value in fields.items():
        *parents, last = field.split("__")
        section = config
        for name in parents:
            section = section[name]
        section[last] = value
    return config


def write(path: Path, **fields: Any) -> Path:
    """Write the changed sample to `path`."""
    path.write_text(yaml.safe_dump(changed(**fields)))
    return path
