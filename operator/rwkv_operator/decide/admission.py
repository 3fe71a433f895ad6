"""Whether a deployment may have pods: checks that run before any exists.

The API server has refused what a schema can tell; here is what needs a look at the stack. Checks
of nodes and of what a pod finds inside belong here too once they exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from rwkv_operator.api import conditions
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.spec import Deployment
from rwkv_operator.api.stack import Stack
from rwkv_operator.errors import InvalidSpec

Check = Callable[[Deployment, Stack], str | None]


def decide_admission(
    dep: Deployment, stack: Stack | InvalidSpec | None, known: Iterable[str] = ()
) -> Condition:
    """The Admitted condition.

    Args:
        dep: the deployment.
        stack: the stack that it names; None where there is none of that name, the error where
            it can't be read.
        known: names of the stacks that there are, to choose from.
    """
    name = dep.spec.hardware.stack
    if stack is None:
        choice = ", ".join(sorted(known)) or "none; install the catalogue with the chart"
        return _refuse(
            "UnknownStack",
            f"spec.hardware.stack: found {name}, wanted an RWKVHardwareStack of the cluster: "
            f"{choice}",
        )
    if isinstance(stack, InvalidSpec):
        return _refuse("InvalidStack", f"RWKVHardwareStack {name}: {stack}")
    for check in CHECKS:
        problem = check(dep, stack)
        if problem is not None:
            return _refuse("UnsupportedCombination", problem)
    return Condition(conditions.ADMITTED, "True", "Admitted", f"stack {name} can run the spec")


def decide_unreadable(error: InvalidSpec) -> Condition:
    """The Admitted condition of an object whose spec can't be read."""
    return _refuse("InvalidSpec", str(error))


def check_devices(dep: Deployment, stack: Stack) -> str | None:
    """The stack was tested with this many devices per replica."""
    return _unsupported(
        "spec.hardware.devicesPerReplica",
        dep.spec.hardware.devices_per_replica,
        stack.supports.devices_per_replica,
        stack,
    )


def check_dtype(dep: Deployment, stack: Stack) -> str | None:
    """The stack computes in this dtype."""
    dtype = dep.spec.model.dtype
    if dtype == "Auto":
        return None
    return _unsupported("spec.model.dtype", dtype, stack.supports.dtypes, stack)


def check_format(dep: Deployment, stack: Stack) -> str | None:
    """The stack loads this format."""
    wanted = dep.spec.model.format
    if wanted == "Auto":
        return None
    return _unsupported("spec.model.format", wanted, stack.supports.formats, stack)


CHECKS: Final[tuple[Check, ...]] = (check_devices, check_dtype, check_format)


def _unsupported(
    field: str, found: object, supported: tuple[object, ...], stack: Stack
) -> str | None:
    if not supported or found in supported:
        return None
    choice = ", ".join(str(value) for value in supported)
    return f"{field}: found {found}, wanted one that stack {stack.name} supports: {choice}"


def _refuse(reason: str, message: str) -> Condition:
    return Condition(conditions.ADMITTED, "False", reason, message)
