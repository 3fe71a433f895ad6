"""Gate 3: does this container, on this machine, equal the hardware stack it was made for.

The only place that knows which reader belongs to which requirement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rwkv_server.errors import RuntimeMismatch
from rwkv_server.preflight import ascend_build, rules
from rwkv_server.preflight.architecture import read_architecture
from rwkv_server.preflight.cann import read_cann
from rwkv_server.preflight.chip import read_chips, read_compute_capabilities
from rwkv_server.preflight.cuda import read_cuda
from rwkv_server.preflight.devices import read_devices
from rwkv_server.preflight.driver import read_driver
from rwkv_server.preflight.machine import Machine, Reading
from rwkv_server.preflight.packages import read_package
from rwkv_server.settings import Stack


def examine(stack: Stack, machine: Machine, devices: int | None = None) -> list[rules.Finding]:
    """Read every fact that the stack asks for and judge it.

    Args:
        stack: the stack.
        machine: where to read.
        devices: how many have to be visible, not one more; None doesn't ask.
    """
    wanted = rules.build_rules(stack, devices)
    return rules.judge(wanted, gather_facts(stack, machine, [rule.requirement for rule in wanted]))


def gather_facts(
    stack: Stack, machine: Machine, requirements: Sequence[str]
) -> dict[str, list[Reading]]:
    """The readings for each requirement; only what is asked for is read."""
    vendor = stack.vendor
    readers: Mapping[str, Callable[[], list[Reading]]] = {
        "architecture": lambda: read_architecture(machine),
        "chip": lambda: read_chips(vendor, machine),
        "devices": lambda: read_devices(vendor, machine),
        "driver": lambda: read_driver(vendor, machine),
        "cann": lambda: read_cann(vendor, machine),
        "cuda": lambda: read_cuda(vendor, machine),
        "computeCapability": lambda: read_compute_capabilities(vendor, machine),
        "framework": lambda: ascend_build.read_framework(machine),
        "kernels": lambda: ascend_build.read_kernels(machine),
    }
    facts = {}
    for name in requirements:
        is_package = name in stack.runtime.packages
        facts[name] = read_package(name, machine) if is_package else readers[name]()
    return facts


def check_stack(stack: Stack, machine: Machine, devices: int | None = None) -> list[rules.Finding]:
    """As `examine`; raises RuntimeMismatch if a requirement isn't met."""
    findings = examine(stack, machine, devices)
    error = build_error(stack.name, findings)
    if error:
        raise error
    return findings


def build_error(name: str, findings: Sequence[rules.Finding]) -> RuntimeMismatch | None:
    """The error that a pod ends with, naming every requirement that isn't met; None if all are."""
    wrong = [finding for finding in findings if not finding.ok]
    if not wrong:
        return None
    told = "; ".join(_tell(finding) for finding in wrong)
    return RuntimeMismatch(
        f"this container doesn't match the hardware stack {name}: {told}. "
        "Use the image and the nodes that the stack is for, or a stack made for these.",
        found={finding.requirement: finding.found for finding in wrong},
        wanted={finding.requirement: finding.wanted for finding in wrong},
    )


def describe(stack: Stack, machine: Machine) -> list[str]:
    """What is good to know beside the findings, a line each."""
    kernels = ascend_build.describe_kernels(machine) if stack.vendor == "ascend" else ""
    return [f"kernels in vllm-ascend: {kernels}"] if kernels else []


def render_table(stack: Stack, findings: Sequence[rules.Finding], notes: Sequence[str]) -> str:
    """For people: a line for each requirement, then what is wrong in words."""
    rows = [("REQUIREMENT", "WANTED", "FOUND", "OK", "TOLD BY")]
    rows += [
        (f.requirement, f.wanted, f.found, "yes" if f.ok else "NO", f.source or "-")
        for f in findings
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, [*widths, 0], strict=True)) for row in rows]
    lines += [f"{f.requirement}: {f.problem}" for f in findings if f.problem]
    wrong = sum(not f.ok for f in findings)
    verdict = f"{wrong} of {len(findings)} requirements not met" if wrong else "matches"
    return "\n".join([f"stack {stack.name} ({stack.vendor}): {verdict}", *lines, *notes])


def render_json(stack: Stack, findings: Sequence[rules.Finding]) -> dict[str, Any]:
    """For programs."""
    return {
        "stack": stack.name,
        "vendor": stack.vendor,
        "ok": all(finding.ok for finding in findings),
        "findings": [{**vars(finding), "ok": finding.ok} for finding in findings],
    }


def _tell(finding: rules.Finding) -> str:
    if finding.found == rules.UNKNOWN:
        return f"{finding.requirement}, wanted {finding.wanted}, {finding.problem}"
    return f"{finding.requirement} is {finding.found}, wanted {finding.wanted}"
