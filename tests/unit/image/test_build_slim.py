"""What the slimmed environment loses, on trees and libraries made here."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

import slim

READELF = """
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND
    41: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND cublasCreate_v2@libcublas.so.13 (3)
    42: 0000000000012340    12 FUNC    GLOBAL DEFAULT   12 cublasDestroy_v2@@libcublas.so.13
    43: 0000000000212340     8 OBJECT  WEAK   DEFAULT   25 some_table
"""


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_symbols_are_read_with_their_versions() -> None:
    assert list(slim.parse_symbols(READELF)) == [
        ("cublasCreate_v2@libcublas.so.13", "FUNC", False),
        ("cublasDestroy_v2@libcublas.so.13", "FUNC", True),
        ("some_table", "OBJECT", True),
    ]


def test_a_stub_has_a_function_for_each_name_under_its_version() -> None:
    source, script = slim.render_stub(["a@V1", "b@V1", "c"])
    assert source.count("return 1") == 3
    assert script == "V1 { global: a; b; };"


def test_headers_tests_and_gpu_tools_go_and_the_rest_stays(tmp_path: Path) -> None:
    gone = ["torch/include/a.h", "numpy/lib/tests/test_a.py", "nvidia/cu13/include/b.h", "x/y.pyi"]
    gone += ["cv2/a.so", "numba-0.65.0.dist-info/METADATA", "numba/a.py"]
    kept = ["torch/lib/libtorch_cpu.so", "torch/bin/torch_shm_manager", "torch/testing/a.py"]
    for name in (*gone, *kept):
        touch(tmp_path / name)
    slim.remove_unused(tmp_path)
    assert [name for name in gone if (tmp_path / name).exists()] == []
    assert [name for name in kept if not (tmp_path / name).exists()] == []


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_a_stub_stands_in_for_the_library_that_another_is_linked_to(tmp_path: Path) -> None:
    nvidia = tmp_path / "nvidia" / "cu13" / "lib"
    torch = tmp_path / "torch" / "lib"
    nvidia.mkdir(parents=True)
    torch.mkdir(parents=True)
    real = nvidia / "libfancy.so.1"
    source = tmp_path / "fancy.c"
    source.write_text("int used(void) { return 0; }\nint unused(void) { return 0; }\n")
    shared = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libfancy.so.1"]
    subprocess.run([*shared, str(source), "-o", str(real)], check=True)
    user = tmp_path / "user.c"
    user.write_text("int used(void);\nint call(void) { return used(); }\n")
    link = ["gcc", "-shared", "-fPIC", f"-Wl,-rpath,{nvidia}", str(user), str(real)]
    subprocess.run([*link, "-o", str(torch / "libtorch.so")], check=True)

    assert slim.stub_cuda(tmp_path) == 1
    defined = {name for name, _, here in slim.dynamic_symbols(real) if here}
    assert "used" in defined
    assert "unused" not in defined
    assert ctypes.CDLL(str(torch / "libtorch.so")).call() == 1
