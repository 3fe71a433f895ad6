import urllib.request

import pytest

from rwkv_operator.handlers import ops
from rwkv_operator.handlers.contact import Contact
from rwkv_operator.metrics import Metrics


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.mark.parametrize(("age", "status"), [(0, 200), (299, 200), (301, 503)])
def test_liveness_is_the_age_of_the_last_word_from_the_api_server(age: float, status: int) -> None:
    clock = Clock()
    contact = Contact(clock)
    clock.time = 1000
    contact.heard()
    clock.time += age
    assert ops.answer("/livez", contact, Metrics(), 300)[0] == status


def test_it_is_ready_once_it_knows_all_deployments() -> None:
    contact = Contact(Clock())
    assert ops.answer("/readyz", contact, Metrics(), 300)[0] == 503
    contact.listed = True
    assert ops.answer("/readyz", contact, Metrics(), 300)[0] == 200


def test_metrics_are_served_over_http_and_nothing_else_is() -> None:
    with ops.serve(0, Contact(Clock()), Metrics(), 300) as port:
        url = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            assert b"rwkv_operator_reconciles_total" in answer.read()
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"{url}/debug")
        assert error.value.code == 404
        error.value.close()
