from pathlib import Path

import pytest

from rwkv_cluster import errors, layout
from rwkv_cluster.layout import Layout

CACHE = Path("/cache")


@pytest.mark.parametrize("name", ["", "Upper", "with-dash", "1st", "elevenchars", "a/b", "a\n"])
def test_names_that_no_link_could_have_are_refused(name: str) -> None:
    with pytest.raises(errors.UsageError, match="no good as a name"):
        Layout(name, CACHE)


@pytest.mark.parametrize("name", ["a", "rwkv", "tencharsab"])
def test_a_link_name_fits_the_kernels_limit(name: str) -> None:
    assert len(Layout(name, CACHE).link) <= 15


def test_two_clusters_share_no_name_and_no_folder() -> None:
    one, two = Layout("a", CACHE), Layout("b", CACHE)
    for part in ("run", "lock", "files", "link", "cgroup"):
        assert getattr(one, part) != getattr(two, part), part
    names = {layout.build_netns_name(name, n) for name in ("a", "b", "a2") for n in (1, 2)}
    assert len(names) == 6


def test_nodes_have_addresses_and_pod_ranges_of_their_own() -> None:
    first, second = (Layout("a", CACHE).node(n, "10.213.9") for n in (1, 2))
    assert (first.address, second.address) == ("10.213.9.2", "10.213.9.3")
    assert (first.pod_cidr, second.pod_cidr) == ("10.244.1.0/24", "10.244.2.0/24")
    assert layout.host_address("10.213.9") not in {first.address, second.address}


def test_socket_paths_fit_the_kernels_limit() -> None:
    node = Layout("tencharsab", CACHE).node(layout.MAX_NODES, "10.213.255")
    assert len(str(node.socket)) < 100


def test_what_stays_after_down_is_in_the_cache_folder() -> None:
    cluster = Layout("a", CACHE)
    assert cluster.logs.is_relative_to(CACHE)
    assert cluster.node(1, "10.213.9").store.is_relative_to(cluster.files)
    assert not cluster.node(1, "10.213.9").store.is_relative_to(cluster.live)


def test_a_subnet_in_use_is_passed_over() -> None:
    first = layout.choose_subnet("a", ["default", "192.0.2.0/24"])
    second = layout.choose_subnet("a", [f"{first}.0/24"])
    assert first != second
    assert second.startswith("10.213.")


def test_different_names_start_at_different_subnets() -> None:
    assert layout.choose_subnet("a", []) != layout.choose_subnet("b", [])


def test_no_subnet_left_is_said() -> None:
    taken = [f"10.213.{third}.0/24" for third in range(256)]
    with pytest.raises(errors.UsageError, match="no free subnet"):
        layout.choose_subnet("a", taken)
