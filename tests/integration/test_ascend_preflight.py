"""The preflight on torch_npu and vllm-ascend as they are, on a machine with neither chip nor CANN.

Not a stand-in: the vendor's real packages, whose libraries can't be loaded here. Their files also
fix what our readers and the packed weights' seam rely on. `make engine-env STACK=ascend` first.
"""

from __future__ import annotations

import ast
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "build/engine-env/ascend/bin/python"
STACK = ROOT / "crds/stacks/ascend-910b3.yaml"
SITE = "import sys; print(*sys.path, sep='\\n')"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The preflight's exit code, its JSON and its last words."""
    last_words = tmp_path_factory.mktemp("ascend") / "termination-log"
    last_words.touch()
    arguments = ["preflight", "--json", "--stack", STACK, "--termination-log", last_words]
    command = [PYTHON, "-m", "rwkv_server", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {
        "code": done.returncode,
        "findings": {f["requirement"]: f for f in json.loads(done.stdout)["findings"]},
        "words": json.loads(last_words.read_text()),
    }


@pytest.fixture(scope="module")
def site() -> Path:
    """Where the vendor's packages lie."""
    done = subprocess.run([PYTHON, "-c", SITE], capture_output=True, text=True, check=True)
    folders = [Path(line) for line in done.stdout.splitlines() if line]
    return next(folder for folder in folders if (folder / "vllm_ascend").is_dir())


def test_a_framework_without_cann_is_refused_for_just_what_is_missing(told):
    findings = told["findings"]
    right = {name for name, finding in findings.items() if finding["ok"]}
    wrong = {"chip", "driver", "cann", "framework", "vllm"}
    wrong |= set() if platform.machine() == "aarch64" else {"architecture"}
    assert told["code"] == 78
    assert set(findings) - right == wrong
    assert right >= {"kernels", "torch", "torch-npu", "vllm-ascend"}


def test_the_library_that_is_missing_is_named(told):
    problem = told["findings"]["framework"]["problem"]
    assert "ImportError: libhccl.so: cannot open shared object file" in problem
    assert told["words"]["reason"] == "RuntimeMismatch"
    assert told["words"]["found"]["framework"] == "unknown"
    assert told["words"]["wanted"]["cann"] == "8.5.0"


def test_the_wheel_tells_the_generation_that_it_was_built_for(told, site):
    assert told["findings"]["kernels"]["found"] == "A2"
    (folder,) = {p.name for p in site.glob(
        "vllm_ascend/_cann_ops_custom/vendors/*/op_impl/ai_core/tbe/kernel/ascend*"
    )}  # fmt: skip
    assert folder == "ascend910b"


def test_vllm_ascend_registers_where_vllm_looks(site):
    (entry_points,) = site.glob("vllm_ascend-*.dist-info/entry_points.txt")
    text = entry_points.read_text()
    assert "[vllm.platform_plugins]\nascend = vllm_ascend:register" in text
    assert "[vllm.general_plugins]" in text


def test_the_quantized_product_takes_scales_offsets_and_groups_as_we_pack_them(site):
    tree = ast.parse((site / "torch_npu/op_plugin/meta/_meta_registrations.py").read_text())
    (function,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "npu_weight_quant_batchmatmul_meta"
    ]
    names = [argument.arg for argument in function.args.args]
    assert names[:4] == ["x", "weight", "antiquant_scale", "antiquant_offset"]
    assert "antiquant_group_size" in names


def test_plain_torch_stays_importable_beside_it():
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [PYTHON, "-c", "import torch; print(torch.__version__)"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("2.9.0")
