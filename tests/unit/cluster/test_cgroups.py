import os
from pathlib import Path

import pytest

from rwkv_cluster import cgroups

HYBRID = """\
28 22 0:25 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
29 28 0:26 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
30 28 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:5 - cgroup cgroup rw,cpu
31 28 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
40 22 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
"""


def test_every_hierarchy_of_a_hybrid_is_found() -> None:
    found = [path.name for path in cgroups.parse_hierarchies(HYBRID)]
    assert found == ["pids", "cpu", "unified"]


def test_one_unified_hierarchy_is_found() -> None:
    line = "31 28 0:28 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    assert cgroups.parse_hierarchies(line) == [Path("/sys/fs/cgroup")]


@pytest.fixture
def hierarchies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    roots = [tmp_path / name for name in ("pids", "cpuset")]
    for root in roots:
        root.mkdir()
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-3\n")
    (tmp_path / "cpuset" / "cpuset.mems").write_text("0\n")
    monkeypatch.setattr(cgroups, "read_hierarchies", lambda: roots)
    return roots


def test_processes_are_found_in_any_hierarchy_at_any_depth(hierarchies: list[Path]) -> None:
    for root, pid in zip(hierarchies, ("11", "12\n13"), strict=True):
        group = root / "mine" / "pods" / "one"
        group.mkdir(parents=True)
        (group / "cgroup.procs").write_text(f"{pid}\n")
        (root / "cgroup.procs").write_text("99\n")
    assert cgroups.list_processes("mine") == {11, 12, 13}


def test_a_group_that_is_not_there_has_no_processes_and_is_removed(
    hierarchies: list[Path],
) -> None:
    assert cgroups.list_processes("mine") == set()
    cgroups.remove("mine")


def test_groups_are_made_in_every_hierarchy_and_removed(hierarchies: list[Path]) -> None:
    cgroups.create("mine/system")
    assert all((root / "mine" / "system").is_dir() for root in hierarchies)
    assert cgroups.list_join_files("mine/system") == [
        root / "mine" / "system" / "cgroup.procs" for root in hierarchies
    ]
    cgroups.remove("mine")
    assert [os.listdir(hierarchies[0])] == [[]]
