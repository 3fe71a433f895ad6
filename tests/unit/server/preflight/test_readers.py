"""Readers on odd answers; the ordinary ones are in test_stack_check.py."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from paper_machine import PaperMachine

from rwkv_server.preflight import (
    architecture,
    ascend_build,
    cann,
    chip,
    cuda,
    driver,
    install_info,
    nvml_probe,
)
from rwkv_server.preflight.machine import LocalMachine, Unreadable, look

NPU_PROBE = "python -m rwkv_server.preflight.npu_probe"


def values(readings):
    return [reading.value for reading in readings]


def test_the_driver_is_looked_for_where_the_installer_says():
    files = {
        "/etc/ascend_install.info": "Driver_Install_Path_Param=/opt/asc/\n",
        "/opt/asc/driver/version.info": "Version=25.2.0\npackage_version=1\n",
    }
    file, tool = driver.read_driver("ascend", PaperMachine(files=files))
    assert (file.source, file.value) == ("/opt/asc/driver/version.info", "25.2.0")
    assert tool.problem == "npu-smi is not installed"


def test_cann_is_looked_for_where_the_environment_says_too():
    path = "/opt/cann-8.5.0/x86_64-linux/ascend_toolkit_install.info"
    machine = PaperMachine(
        variables={"ASCEND_HOME_PATH": "/opt/cann-8.5.0/"}, files={path: "version=8.5.0\n"}
    )
    found = cann.read_cann("ascend", machine)
    assert [(r.source, r.value) for r in found] == [(path, "8.5.0"), ("torch.version.cann", None)]


def test_a_probe_that_prints_no_object_is_unreadable():
    for text in ("", "warning\n", "warning\n[1]\n"):
        (tool, probe) = chip.read_chips("ascend", PaperMachine(commands={NPU_PROBE: text}))
        assert probe.problem == "the torch_npu probe printed no answer"
        assert tool.problem == "npu-smi is not installed"


def test_a_probe_may_print_warnings_before_its_answer():
    text = "a warning\n" + json.dumps({"devices": ["Ascend910B3"], "soc": 223, "cann": None})
    machine = PaperMachine(commands={NPU_PROBE: text})
    assert values(chip.read_chips("ascend", machine)) == [None, "Ascend910B3"]
    assert values(ascend_build.read_kernels(machine)) == [None, "A2"]
    assert values(ascend_build.read_framework(machine)) == ["loads"]


def test_no_device_is_said():
    machine = PaperMachine(commands={NPU_PROBE: '{"devices": [], "soc": null, "cann": "8.5.0"}'})
    assert [r.problem for r in chip.read_chips("ascend", machine)][1] == "torch_npu sees no device"
    assert ascend_build.read_kernels(machine)[1].problem == "torch_npu tells no SoC id"


@pytest.mark.parametrize("vendor", ["cpu", "nvidia", "ascend"])
def test_every_reader_answers_for_every_vendor(vendor):
    machine = PaperMachine()
    for read in (
        chip.read_chips,
        chip.read_compute_capabilities,
        driver.read_driver,
        cann.read_cann,
        cuda.read_cuda,
    ):
        readings = read(vendor, machine)
        assert readings and all(r.value is None and r.problem for r in readings)


def test_nvidia_smi_of_newer_drivers_names_cuda_differently():
    machine = PaperMachine(commands={"nvidia-smi": "| CUDA UMD Version: 13.1  |\n"})
    assert values(cuda.read_cuda("nvidia", machine)) == ["13.1", None]


@pytest.mark.parametrize(
    ("kernel", "name"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", "riscv64")]
)
def test_architectures_have_kubernetes_names(kernel, name):
    assert values(architecture.read_architecture(PaperMachine(architecture=kernel))) == [name]


def test_install_files_are_read_with_care():
    text = "# version=0\nVersion = 8.5.0 \nnonsense\nversion=9\n"
    assert install_info.parse(text) == {"version": "8.5.0"}


def test_an_empty_answer_is_no_value():
    assert look("x", lambda: " ").problem == look("x", lambda: None).problem


def test_the_real_machine_tells_why_it_cannot_answer():
    machine = LocalMachine()
    with pytest.raises(Unreadable, match="no-such-program is not installed"):
        machine.run("no-such-program")
    with pytest.raises(Unreadable, match=r"^the reason$"):
        machine.run("python", "-c", "raise SystemExit('a line\\nthe reason')")
    with pytest.raises(Unreadable, match=r"^no such file or directory$"):
        machine.read("/no/such")
    with pytest.raises(Unreadable, match="package surely_none is not installed"):
        machine.package_folder("surely_none")
    assert machine.run("python", "-c", "print(1)") == "1\n"
    assert machine.package_folder("packaging").endswith("/packaging")
    assert machine.find("/proc/self/stat?s") == ["/proc/self/status"]


STUB = """
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetDriverVersion(char *t, unsigned n) { strncpy(t, "580.95.05", n); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13010; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) {
  *h = (void *)(0x7f0000000000ul + i); return 0; }
int nvmlDeviceGetName(void *h, char *t, unsigned n) {
  strncpy(t, h == (void *)0x7f0000000001ul ? "second" : "first", n); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *h, int *a, int *b) {
  if (h < (void *)0x7f0000000000ul) return 2;
  *a = 9; *b = 0; return 0; }
"""


def test_nvml_is_called_as_its_header_says(tmp_path):
    """A stand-in library with NVML's signatures; handles don't fit into 32 bits."""
    (tmp_path / "nvml.c").write_text(STUB)
    library = tmp_path / "libnvml.so"
    command = ["cc", "-shared", "-fPIC", "-o", library, tmp_path / "nvml.c"]
    subprocess.run(command, check=True)
    assert nvml_probe.ask(str(library)) == {
        "driver": "580.95.05",
        "cuda": "13.1",
        "devices": [
            {"name": "first", "computeCapability": "9.0"},
            {"name": "second", "computeCapability": "9.0"},
        ],
    }


def test_a_probe_without_its_library_says_so_in_its_last_line():
    command = [sys.executable, "-m", "rwkv_server.preflight.nvml_probe", "libnone.so"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("NVML can't be asked: libnone.so: cannot open")
