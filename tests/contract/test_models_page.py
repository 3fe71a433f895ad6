"""docs/models.md shows the samples that are tested, and numbers that the code computes."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from rwkv_operator.api import conditions
from rwkv_server import errors
from rwkv_server.inspection.inspect import Inspection
from rwkv_server.model import state_layout, weights
from rwkv_server.model.config import RWKV7Config, parse_config

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "models.md"
SAMPLES = sorted((ROOT / "crds" / "samples").glob("*.yaml"))
SHOWN = re.compile(r"<!-- (crds/samples/[a-z-]+\.yaml) -->\n```yaml\n(.*?)```\n", re.DOTALL)
SIZES = re.compile(r"(?<=<!-- sizes -->\n)(\n?\|.*?\n)*", re.DOTALL)

# Layers, width, ranks of decay, learning rate, value residual and gate; parameters as published.
WORLD = {
    "0.1B": (12, 768, (64, 64, 32, 128), 191_034_624),
    "0.4B": (24, 1024, (64, 64, 32, 128), 450_767_872),
    "1.5B": (24, 2048, (96, 96, 64, 256), 1_527_404_544),
    "2.9B": (32, 2560, (96, 96, 64, 320), 2_947_735_040),
    "7.2B": (32, 4096, (128, 128, 96, 480), 7_199_141_888),
}
COLUMNS = (
    "size",
    "parameters",
    "weights, 16 bit",
    "state of a session",
    "memory, BFloat16",
    "memory, Float32",
)


def config(layers: int, width: int, ranks: tuple[int, int, int, int]) -> RWKV7Config:
    names = ("decay", "a", "v", "gate")
    low = {f"{name}_low_rank_dim": rank for name, rank in zip(names, ranks, strict=True)}
    sizes = {"vocab_size": 65536, "hidden_size": width, "num_hidden_layers": layers}
    return parse_config({"model_type": "rwkv7", "intermediate_size": 4 * width, **sizes, **low})


def parameters(config: RWKV7Config) -> int:
    return sum(math.prod(shape) for shape in weights.expected_tensors(config).values())


def row(name: str) -> str:
    layers, width, ranks, _ = WORLD[name]
    shape = config(layers, width, ranks)
    count = parameters(shape)
    replica = Inspection(Path(), config=shape, parameters=count)
    state = state_layout.session_bytes(shape, "bfloat16")
    memory = [replica.memory_bytes(dtype) or 0 for dtype in ("bfloat16", "float32")]
    return line([name, f"{count:,}", gib(2 * count), f"{state:,} bytes", *map(gib, memory)])


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


@pytest.mark.parametrize("name", WORLD)
def test_the_shapes_give_the_published_number_of_parameters(name: str) -> None:
    layers, width, ranks, published = WORLD[name]
    assert parameters(config(layers, width, ranks)) == published


def test_the_page_has_the_computed_sizes_and_the_samples_as_they_are() -> None:
    text = PAGE.read_text()
    wanted = SHOWN.sub(lambda found: shown(found[1]), text)
    wanted = SIZES.sub(
        lambda _: "".join([line(COLUMNS), "|---" * 6 + "|\n", *map(row, WORLD)]), wanted
    )
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted, "run `make golden` and read the diff"


def shown(path: str) -> str:
    return f"<!-- {path} -->\n```yaml\n{(ROOT / path).read_text()}```\n"


def test_every_source_has_a_sample_on_the_page() -> None:
    names = [path for path, _ in SHOWN.findall(PAGE.read_text())]
    models = [yaml.safe_load((ROOT / path).read_text())["spec"]["model"] for path in names]
    assert len({kind for each in models for kind in each["source"]}) == 5
    assert {each.get("format", "Auto") for each in models} >= {"Auto", "PTH"}
    about_models = {path for path in SAMPLES if path.stem.startswith("model-")}
    assert about_models <= {ROOT / path for path in names}


def test_the_page_says_what_to_do_about_every_reason() -> None:
    table = PAGE.read_text().split("## What ModelLoaded says")[1]
    listed = re.findall(r"^\| `([A-Za-z]+)` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(conditions.REASONS[conditions.MODEL_LOADED])


def test_the_operator_has_a_reason_for_every_end_of_a_download() -> None:
    ends = {kind.__name__ for kind in errors.FetchError.__subclasses__()}
    assert ends <= set(conditions.REASONS[conditions.MODEL_LOADED])
    operations = (ROOT / "docs" / "operations.md").read_text()
    for kind in (*errors.FetchError.__subclasses__(), *errors.ModelError.__subclasses__()):
        assert f"| {kind.exit_code} | {kind.__name__} |" in operations
