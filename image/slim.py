"""Make an installed cpu engine environment small: what a pod on a CPU never uses goes away.

Runs inside the image build only, right after the install. torch from the package index is the CUDA
build, linked to 2.5 GB of NVIDIA libraries that a CPU engine never calls. The loader still wants
the files and the symbols, so each becomes a stub whose functions all return an error code. Nothing
here decides what is installed: that is `engine_env.py` and its constraint files.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Whole packages that vLLM opens only for pictures, films, n-gram speculation or a GPU.
UNUSED_PACKAGES = (
    "cv2", "opencv_python_headless*", "llvmlite*", "numba*", "cuda", "cuda_bindings*",
    "cuda_pathfinder*", "cuda_toolkit*", "triton*",
)  # fmt: skip
# Headers, tests, tools for building against a package, and libraries that are opened by name when
# a GPU is used. Paths in site-packages.
NEVER_USED = (
    "torch/include", "torch/bin/protoc*", "torch/share", "torch/test",
    "torch/lib/libtorch_cuda_linalg.so", "nvidia/cu13/lib/libpcsampling*",
    "nvidia/cu13/bin", "nvidia/cu13/nvvm", "nvidia/nvshmem/bin",
    "nvidia/cu13/lib/libnvJitLink*", "nvidia/cu13/lib/libnvrtc-builtins*",
    "nvidia/cu13/lib/libnvrtc.alt*", "nvidia/cu13/lib/libnvperf*", "nvidia/cu13/lib/libnvblas*",
    "nvidia/cu13/lib/libcufftw*", "nvidia/cu13/lib/libcusolverMg*",
    "nvidia/cu13/lib/libcheckpoint*", "nvidia/cudnn/lib/libcudnn_*", "nvidia/nvshmem/lib/nvshmem_*",
)  # fmt: skip
ANYWHERE = (
    "nvidia/**/include", "nvidia/**/*.a", "nvidia/**/*.bc",
    "**/sympy/**/tests", "**/numpy/**/tests", "**/networkx/**/tests", "**/supervisor/tests",
    "**/*.pyi",
)  # fmt: skip
# Small ones that torch calls at start stay real: the CUDA runtime answers "no device".
KEPT = ("libcudart.so", "libcupti.so", "libcufile.so", "libcufile_rdma.so", "libcudnn.so")
STRIPPED = ("vllm/*.so", "torch/lib/*.so")

SYMBOL = re.compile(
    r"\s(?P<type>FUNC|OBJECT|NOTYPE|GNU_IFUNC)\s.*\s(?P<where>UND|\d+)\s(?P<name>\S+)"
)


def remove_unused(site: Path) -> None:
    """Delete files and folders by the lists above; what isn't there is fine."""
    patterns = (*UNUSED_PACKAGES, *NEVER_USED, *ANYWHERE)
    for path in [path for pattern in patterns for path in sorted(site.glob(pattern))]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def parse_symbols(listing: str) -> Iterator[tuple[str, str, bool]]:
    """Name with version (`f@V`), type and whether it is defined, from `readelf --dyn-syms -W`."""
    for line in listing.splitlines():
        if found := SYMBOL.search(line):
            name = found["name"].replace("@@", "@")
            yield name, found["type"], found["where"] != "UND"


def dynamic_symbols(library: Path) -> list[tuple[str, str, bool]]:
    """The dynamic symbols of a shared library."""
    command = ["readelf", "--dyn-syms", "-W", str(library)]
    return list(parse_symbols(subprocess.run(command, check=True, stdout=-1, text=True).stdout))


def render_stub(names: list[str]) -> tuple[str, str]:
    """C source and linker version script of a library that defines `names` (`f` or `f@V`)."""
    versions: dict[str, list[str]] = {}
    for name in names:
        symbol, _, version = name.partition("@")
        versions.setdefault(version, []).append(symbol)
    source = "".join(f"int {name.partition('@')[0]}(void) {{ return 1; }}\n" for name in names)
    nodes = [
        f"{version} {{ global: {'; '.join(symbols)}; }};"
        for version, symbols in versions.items()
        if version
    ]
    return source or "typedef int empty;\n", "\n".join(nodes)


def write_stub(library: Path, wanted: set[str]) -> None:
    """Replace `library` by a stub with those of its symbols that are wanted."""
    names = []
    for name, kind, defined in dynamic_symbols(library):
        if not defined or name not in wanted:
            continue
        if kind == "OBJECT":
            raise SystemExit(
                f"slim: {library.name} lends the data symbol {name}: it can't be a stub"
            )
        names.append(name)
    source, script = render_stub(sorted(set(names)))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "stub.c").write_text(source)
        (Path(folder) / "stub.map").write_text(script)
        options = ["-shared", "-fPIC", "-nostdlib", "-fno-builtin", "-Os", "-w"]
        options += [f"-Wl,-soname,{library.name}"]
        if script:
            options += [f"-Wl,--version-script={folder}/stub.map"]
        library.unlink()
        compiler = ["gcc", *options, f"{folder}/stub.c", "-o", str(library)]
        subprocess.run(compiler, check=True)


def stub_cuda(site: Path) -> int:
    """Turn the NVIDIA libraries that torch is linked to into stubs; the number of them."""
    torch = sorted((site / "torch" / "lib").glob("*.so"))
    wanted = {n for lib in torch for n, _, defined in dynamic_symbols(lib) if not defined}
    stubs = [
        path
        for path in sorted((site / "nvidia").glob("**/lib*.so.*"))
        if path.is_file() and not path.is_symlink() and not path.name.startswith(KEPT)
    ]
    for library in stubs:
        write_stub(library, wanted)
    return len(stubs)


def strip(site: Path) -> None:
    """Drop symbol tables and debug sections that only a debugger reads."""
    libraries = [str(path) for pattern in STRIPPED for path in sorted(site.glob(pattern))]
    if libraries:
        subprocess.run(["strip", "--strip-unneeded", *libraries], check=True)


def folder_size(root: Path) -> int:
    """Bytes of the files under `root`, links not followed."""
    return sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())


def main() -> None:
    """Slim the environment named on the command line."""
    env = Path(sys.argv[1])
    (site,) = env.glob("lib/python3*/site-packages")
    before = folder_size(env)
    remove_unused(site)
    count = stub_cuda(site)
    strip(site)
    after = folder_size(env)
    print(f"slim: {before / 2**20:.0f} → {after / 2**20:.0f} MiB, {count} libraries are stubs now")


if __name__ == "__main__":
    main()
