"""How many CPU cores this container may use, from its cgroup and its affinity mask.

Python's own count ignores the quota, and more OpenMP threads than cores of quota cost two thirds of
the speed.
"""

from __future__ import annotations

import os
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
V1_GROUPS = ("cpu", "cpu,cpuacct")


def parse_cpu_max(text: str) -> float | None:
    """Cores of a cgroup v2 `cpu.max`, such as `50000 100000`; None without a limit."""
    quota, _, period = text.strip().partition(" ")
    if quota == "max" or not period:
        return None
    return int(quota) / int(period)


def parse_cfs(quota: str, period: str) -> float | None:
    """Cores of cgroup v1's `cpu.cfs_quota_us` and `cpu.cfs_period_us`; None without a limit."""
    if int(quota) <= 0:
        return None
    return int(quota) / int(period)


def read_quota(root: Path = CGROUP_ROOT) -> float | None:
    """The quota in cores that a container sees at `root`; None if there is no limit or no file."""
    try:
        return parse_cpu_max((root / "cpu.max").read_text())
    except (OSError, ValueError):
        pass
    for group in V1_GROUPS:
        try:
            quota = (root / group / "cpu.cfs_quota_us").read_text()
            return parse_cfs(quota, (root / group / "cpu.cfs_period_us").read_text())
        except (OSError, ValueError):
            continue
    return None


def usable_cores(quota: float | None, affinity: int) -> int:
    """Whole cores under both limits, at least one."""
    return max(1, affinity if quota is None else min(affinity, int(quota)))


def read_cores() -> int:
    """Whole cores that this process may keep busy."""
    return usable_cores(read_quota(), len(os.sched_getaffinity(0)))
