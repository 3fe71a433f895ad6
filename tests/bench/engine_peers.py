"""Builds what the engine's bench compares with: llama.cpp, and one model in everyone's form.

Everything is kept in the cache folder under a digest of what it was made from, so that a bench
builds once per machine. The model has random weights of the 0.1B shape: speed doesn't depend on
what a model knows. llama.cpp comes from a pinned source package and is compiled for this very CPU;
its own converter and quantiser turn our checkpoint into its format.
"""

from __future__ import annotations

import fcntl
import hashlib
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "image"))

import engine_env  # noqa: E402

ENGINE_PYTHON = ROOT / "build" / "engine-env" / "cpu" / "bin" / "python"
SUPPORT = ROOT / "tests" / "support"
PIN = HERE / "llama_cpp.txt"
GGUF_KINDS = ("f32", "bf16", "q8_0", "q4_0")
VOCABULARY = "rwkv_vocab_v20230424.txt"
CMAKE_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DGGML_OPENMP=ON",
    "-DBUILD_SHARED_LIBS=ON",
    "-DLLAMA_BUILD_COMMON=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_TOOLS=OFF",
)


@dataclass(frozen=True)
class Peers:
    """Where everything lies.

    Attributes:
        model: the checkpoint's folder, fla names, fp32.
        official: the same weights for PyPI `rwkv`, without the suffix .pth.
        gguf: the same weights for llama.cpp, a file for each of `GGUF_KINDS`.
        llama: llama_worker, compiled.
        memory: memory_worker, compiled.
    """

    model: Path
    official: Path
    gguf: dict[str, Path]
    llama: Path
    memory: Path


def prepare() -> Peers:
    """Build what isn't there yet and say where it is."""
    source = _made("llama-source", _digest(PIN), _unpack_llama)
    cpu = platform.processor() + _cpu_flags()
    worker = HERE / "llama_worker.cpp"
    build = _made("llama-build", _digest(PIN, extra=cpu), lambda at: _build_llama(source, at))
    tools = _made(
        "tools",
        _digest(PIN, worker, HERE / "memory_worker.cpp", extra=cpu),
        lambda at: _compile_workers(source, build, at),
    )
    writers = (SUPPORT / "random_checkpoint.py", SUPPORT / "fla_to_pth.py")
    models = _made(
        "models", _digest(PIN, *writers), lambda at: _write_models(source, tools / "llama", at)
    )
    return Peers(
        model=models / "hf",
        official=models / "official",
        gguf={kind: models / f"{kind}.gguf" for kind in GGUF_KINDS},
        llama=tools / "llama",
        memory=tools / "memory",
    )


def _made(name: str, digest: str, make: Callable[[Path], None]) -> Path:
    """The cached folder of that name and digest; older ones of the name go."""
    cache = engine_env.cache_root() / "bench"
    target = cache / f"{name}-{digest}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # another checkout may be at it
        if (target / "complete").exists():
            return target
        for old in cache.glob(f"{name}-*"):
            shutil.rmtree(old)
        target.mkdir()
        print(f"bench-engine: making {target}", flush=True)
        make(target)
        (target / "complete").touch()
    return target


def _digest(*files: Path, extra: str = "") -> str:
    whole = b"\0".join([*(file.read_bytes() for file in files), extra.encode()])
    return hashlib.sha256(whole).hexdigest()[:12]


def _cpu_flags() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    """Run a build step; its output is shown when it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        words = " ".join(map(str, command))
        raise SystemExit(f"{done.stdout[-4000:]}\nbench-engine: failed: {words}")


def _unpack_llama(target: Path) -> None:
    """Fetch the pinned source package; pip checks its hash."""
    download = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps")
    options = ("--no-binary", ":all:", "--require-hashes", "-r", PIN, "-d", target)
    _run(*download, *options)
    (package,) = target.glob("*.tar.gz")
    with tarfile.open(package) as archive:
        archive.extractall(target, filter="data")
    package.unlink()
    (vendored,) = target.glob("*/vendor/llama.cpp")
    vendored.rename(target / "llama.cpp")
    shutil.rmtree(vendored.parents[1])


def _build_llama(source: Path, target: Path) -> None:
    if shutil.which("cmake") is None:
        raise SystemExit("bench-engine: llama.cpp needs cmake to build: apt-get install cmake")
    _run("cmake", "-S", source / "llama.cpp", "-B", target, *CMAKE_OPTIONS)
    _run("cmake", "--build", target, "--target", "llama", "--parallel")


def _compile_workers(source: Path, build: Path, target: Path) -> None:
    options = ("g++", "-O3", "-march=native", "-std=c++17", "-Wall", "-Wextra")
    llama = source / "llama.cpp"
    includes = ("-I", llama / "include", "-I", llama / "ggml" / "include")
    libraries = ("-L", build / "bin", "-lllama", "-lggml", "-lggml-base", "-lggml-cpu")
    where = f"-Wl,-rpath,{build / 'bin'}"
    worker = HERE / "llama_worker.cpp"
    _run(*options, *includes, worker, *libraries, where, "-o", target / "llama")
    _run(*options, HERE / "memory_worker.cpp", "-o", target / "memory")


def _write_models(source: Path, llama: Path, target: Path) -> None:
    """The checkpoint, and from it the official form and llama.cpp's, 3 GB in all."""
    write = (ENGINE_PYTHON, SUPPORT / "random_checkpoint.py", target / "hf", "0.1b")
    _run("env", f"PYTHONPATH={ROOT / 'server'}", *write)
    code = (
        "import pathlib, sys; sys.path.insert(0, sys.argv[1]); import fla_to_pth; "
        "fla_to_pth.write_pth(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))"
    )
    _run(ENGINE_PYTHON, "-c", code, SUPPORT, target / "hf", target / "official.pth")
    # The converter wants the World vocabulary beside the weights; `rwkv` brings it.
    find = "import importlib.util as u; print(u.find_spec('rwkv').submodule_search_locations[0])"
    package = subprocess.check_output([ENGINE_PYTHON, "-c", find], text=True).strip()
    shutil.copytree(target / "hf", target / "world", copy_function=_link)
    shutil.copy(Path(package) / VOCABULARY, target / "world")
    convert = source / "llama.cpp" / "convert_hf_to_gguf.py"
    for kind in ("f32", "bf16"):
        out = target / f"{kind}.gguf"
        _run(ENGINE_PYTHON, convert, target / "world", "--outtype", kind, "--outfile", out)
    for kind in ("q8_0", "q4_0"):
        _run(llama, "--quantize", target / "f32.gguf", target / f"{kind}.gguf", kind)
    shutil.rmtree(target / "world")


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


if __name__ == "__main__":
    print(prepare())
