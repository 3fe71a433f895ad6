"""What a hardware stack requires against what was read: a finding for each requirement.

Pure, exact and fail closed: what could not be read is a mismatch that says why, and so are places
that contradict each other. Nothing here knows how a fact is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rwkv_server.preflight import ascend_build, versions
from rwkv_server.preflight.machine import Reading
from rwkv_server.settings import Stack

UNKNOWN = "unknown"
_MAX_TEXT = 200


@dataclass(frozen=True)
class Finding:
    """One requirement, what is there, and whether it will do.

    Attributes:
        source: the places that told what was found.
        problem: one clause, empty if all is well.
    """

    requirement: str
    wanted: str
    found: str
    source: str
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether the requirement is met."""
        return not self.problem


@dataclass(frozen=True)
class Rule:
    """One requirement of a stack.

    Attributes:
        wanted: for people.
        accepts: whether a value will do; False for values that can't be compared.
        same: whether two places agree.
    """

    requirement: str
    wanted: str
    accepts: Callable[[str], bool]
    same: Callable[[str, str], bool] = str.__eq__


def build_rules(stack: Stack, devices: int | None = None) -> list[Rule]:
    """The stack's requirements in the order that a person would check them.

    Args:
        stack: the stack.
        devices: how many the engine is to use; None where nobody has said.
    """
    runtime = stack.runtime
    rules = []
    if runtime.architecture:
        rules.append(_one_of("architecture", runtime.architecture, str.__eq__))
    if runtime.chip:
        rules.append(_one_of("chip", runtime.chip, _same_name))
    if devices is not None and stack.vendor != "cpu":
        rules.append(_one_of("devices", [str(devices)], str.__eq__))
    if runtime.driver:
        rules.append(_at_least("driver", runtime.driver.at_least))
    if runtime.cann:
        rules.append(_exactly("cann", runtime.cann))
    if runtime.cuda:
        rules.append(_at_least("cuda", runtime.cuda.at_least))
    if runtime.compute_capability:
        rules.append(_at_least("computeCapability", runtime.compute_capability.at_least))
    if stack.vendor == "ascend":
        rules += _ascend_rules(runtime.chip)
    rules += [_package(name, version) for name, version in sorted(runtime.packages.items())]
    return rules


def judge(rules: Sequence[Rule], facts: Mapping[str, Sequence[Reading]]) -> list[Finding]:
    """One finding per rule; `facts` holds the readings by requirement."""
    return [_judge(rule, facts.get(rule.requirement, ())) for rule in rules]


def _judge(rule: Rule, readings: Sequence[Reading]) -> Finding:
    told = [reading for reading in readings if reading.value is not None]
    if not told:
        causes = "; ".join(dict.fromkeys(_cause(reading) for reading in readings))
        problem = f"could not be read: {causes or 'nothing reads it'}"
        missing = readings and all(reading.problem == "not installed" for reading in readings)
        found = "not installed" if missing else UNKNOWN
        return Finding(rule.requirement, rule.wanted, found, "", found if missing else problem)
    values = [reading.value for reading in told if reading.value is not None]
    source = ", ".join(dict.fromkeys(reading.source for reading in told))
    if any(not rule.same(values[0], value) for value in values):
        found = "; ".join(f"{reading.value} ({reading.source})" for reading in told)
        problem = "the places that tell it disagree"
        return Finding(rule.requirement, rule.wanted, _short(found), source, problem)
    problem = "" if all(rule.accepts(value) for value in values) else "another one is wanted"
    return Finding(rule.requirement, rule.wanted, _short(values[0]), source, problem)


def _one_of(requirement: str, wanted: Sequence[str], same: Callable[[str, str], bool]) -> Rule:
    return Rule(
        requirement,
        " or ".join(wanted),
        lambda found: any(same(found, name) for name in wanted),
        same,
    )


def _at_least(requirement: str, least: str) -> Rule:
    def accepts(found: str) -> bool:
        order = versions.compare_dotted(found, least)
        return order is not None and order >= 0

    return Rule(requirement, f"at least {least}", accepts, _same_version)


def _exactly(requirement: str, wanted: str) -> Rule:
    return Rule(requirement, wanted, lambda found: _same_version(found, wanted), _same_version)


def _package(name: str, version: str) -> Rule:
    return Rule(name, version, lambda found: versions.same_public(found, version))


def _ascend_rules(chips: list[str]) -> list[Rule]:
    """What every Ascend stack needs, beside its own list."""
    groups = sorted({ascend_build.generation_of_chip(chip) or "none" for chip in chips})
    return [
        _one_of("framework", ["loads"], str.__eq__),
        _one_of("kernels", groups or ["the chip's generation"], str.__eq__),
    ]


def _same_name(left: str, right: str) -> bool:
    """Device names, but for case and for how labels write spaces."""
    plain = (name.lower().replace(" ", "-") for name in (left, right))
    return len(set(plain)) == 1


def _same_version(left: str, right: str) -> bool:
    return versions.compare_dotted(left, right) == 0 or left == right


def _cause(reading: Reading) -> str:
    return f"{reading.source}: {reading.problem}"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "…"
