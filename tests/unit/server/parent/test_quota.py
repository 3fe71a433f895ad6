from __future__ import annotations

import pytest

from rwkv_server.parent import quota


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "50000 100000\n"}, 0.5),
        ({"cpu.max": "250000 100000\n"}, 2.5),
        ({"cpu.max": "garbage"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1.5),
        ({"cpu,cpuacct/cpu.cfs_quota_us": "4000", "cpu,cpuacct/cpu.cfs_period_us": "1000"}, 4.0),
        ({}, None),
    ],
)
def test_both_cgroup_versions(files, cores, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert quota.read_quota(tmp_path) == cores


@pytest.mark.parametrize(
    ("limit", "affinity", "cores"),
    [(None, 8, 8), (0.25, 8, 1), (1.9, 8, 1), (2.0, 8, 2), (16.0, 4, 4)],
)
def test_whole_cores(limit, affinity, cores):
    assert quota.usable_cores(limit, affinity) == cores
