from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rwkv_server.metrics import Metrics, sum_samples

TEXT = """\
# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a } b"} 3.0
vllm:num_requests_running{engine="1",model_name="a"} 2.0
vllm:num_requests_running_total 9.0
bare 1e3
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [("vllm:num_requests_running", 5.0), ("bare", 1000.0), ("absent", None), ("bar", None)],
)
def test_samples_are_summed_by_exact_name(name, value):
    assert sum_samples(TEXT, name) == value


def test_the_childs_text_follows_ours_and_both_parse():
    metrics = Metrics()
    metrics.ready.set(True)
    text = metrics.render("child_metric 4.0\n")
    names = [family.name for family in text_string_to_metric_families(text)]
    assert len(names) == len(set(names))
    assert sum_samples(text, "rwkv_engine_ready") == 1
    assert sum_samples(text, "rwkv_engine_child_up") == 1
    assert sum_samples(text, "child_metric") == 4


def test_without_a_child_ours_remain():
    text = Metrics().render(None)
    assert sum_samples(text, "rwkv_engine_child_up") == 0
