import pytest

from rwkv_operator.errors import SettingsError
from rwkv_operator.settings import Settings, parse_settings

IMAGES = {"RWKV_OPERATOR_IMAGE": "operator:1", "RWKV_ROUTER_IMAGE": "router:1"}


def test_the_images_are_enough() -> None:
    assert parse_settings(IMAGES) == Settings("operator:1", "router:1", "default")


def test_everything_can_be_set() -> None:
    settings = parse_settings(
        {
            **IMAGES,
            "POD_NAMESPACE": "rwkv-system",
            "RWKV_OPERATOR_LABELS": "app=rwkv,part=operator",
            "RWKV_WATCH_NAMESPACE": "talk",
            "RWKV_CATALOGUE": "/etc/catalogue",
            "RWKV_CLUSTER_DOMAIN": "example.org",
            "RWKV_SCRAPE_FROM": '[{"podSelector": {}}]',
            "RWKV_WORKERS": "2",
            "RWKV_HTTP_PORT": "9000",
            "RWKV_SILENCE_SECONDS": "60",
            "RWKV_MOVING_SECONDS": "0.5",
            "RWKV_UNREADY_SECONDS": "5",
            "RWKV_STEADY_SECONDS": "50",
        }
    )
    assert settings == Settings(
        operator_image="operator:1",
        router_image="router:1",
        namespace="rwkv-system",
        labels={"app": "rwkv", "part": "operator"},
        watch_namespace="talk",
        catalogue="/etc/catalogue",
        cluster_domain="example.org",
        scrape_from=({"podSelector": {}},),
        workers=2,
        http_port=9000,
        silence_seconds=60,
        moving_seconds=0.5,
        unready_seconds=5,
        steady_seconds=50,
    )


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("RWKV_ROUTER_IMAGE", "", "RWKV_ROUTER_IMAGE: found nothing, wanted an image reference"),
        ("RWKV_WORKERS", "many", "RWKV_WORKERS: found many, wanted a number above 0"),
        ("RWKV_HTTP_PORT", "-1", "RWKV_HTTP_PORT: found -1"),
        ("RWKV_OPERATOR_LABELS", "app", "wanted labels as key=value"),
        ("RWKV_SCRAPE_FROM", "{}", "wanted a JSON list"),
        ("RWKV_SCRAPE_FROM", "[", "wanted a JSON list"),
    ],
)
def test_a_bad_setting_is_named(name: str, value: str, text: str) -> None:
    with pytest.raises(SettingsError, match=text.replace("[", r"\[")):
        parse_settings({**IMAGES, name: value})
