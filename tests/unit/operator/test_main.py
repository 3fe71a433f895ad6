import pytest

from rwkv_operator import __main__ as program
from rwkv_operator import errors


def test_a_missing_setting_is_one_line_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["rwkv-operator", "run"])
    monkeypatch.delenv("RWKV_OPERATOR_IMAGE", raising=False)
    assert program.main() == 2
    error = capsys.readouterr().err
    assert error == (
        "rwkv-operator: RWKV_OPERATOR_IMAGE: found nothing, wanted an image reference\n"
    )


def test_an_error_of_ours_is_one_line_and_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail(_: object) -> None:
        raise errors.InvalidSpec("x.yaml: kind", "Pod", "RWKVHardwareStack")

    monkeypatch.setattr("sys.argv", ["rwkv-operator", "run"])
    monkeypatch.setenv("RWKV_OPERATOR_IMAGE", "o")
    monkeypatch.setenv("RWKV_ROUTER_IMAGE", "r")
    monkeypatch.setattr(program.startup, "run", fail)
    assert program.main() == 1
    assert capsys.readouterr().err == (
        "rwkv-operator: x.yaml: kind: found Pod, wanted RWKVHardwareStack\n"
    )
