"""Values for the schema of a CRD: the API server's defaulting, and strategies for Hypothesis.

Only what our own schemas use. Rules in CEL aren't read, except that a union has exactly one member.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from rwkv_operator import names

CRDS = Path(__file__).resolve().parents[2] / "crds"

Schema = Mapping[str, Any]
Known = Mapping[str, st.SearchStrategy[Any]]


def load_schema(plural: str) -> Schema:
    """The schema of the only version of a CRD."""
    crd = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def with_defaults(schema: Schema, value: Any) -> Any:
    """What the API server stores for a value."""
    if isinstance(value, Mapping):
        properties = schema.get("properties", {})
        missing = {
            key: child["default"]
            for key, child in properties.items()
            if key not in value and "default" in child
        }
        return {
            key: with_defaults(properties.get(key, {}), child)
            for key, child in {**value, **missing}.items()
        }
    if isinstance(value, list):
        return [with_defaults(schema.get("items", {}), item) for item in value]
    return value


def names_of_deployments() -> st.SearchStrategy[str]:
    """Names that a deployment may have."""
    pattern = names.DEPLOYMENT_NAME.pattern
    return st.from_regex(pattern, fullmatch=True).filter(names.is_deployment_name)


def values(schema: Schema, known: Known | None = None) -> st.SearchStrategy[Any]:
    """Values that the schema accepts, with and without their optional fields.

    Args:
        schema: the schema, or a part of it.
        known: strategies for properties by name, where a rule in CEL asks for more.
    """
    known = known or {}
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.one_of(st.integers(0, 1000), st.sampled_from(["250m", "1Gi", "1.5"]))
    match schema["type"]:
        case "object":
            return _objects(schema, known)
        case "array":
            return _lists(schema, known)
        case "integer":
            return st.integers(schema.get("minimum", 0), schema.get("maximum", 2**31 - 1))
        case "boolean":
            return st.booleans()
        case "string":
            return _strings(schema)
    raise AssertionError(f"no strategy for {schema}")


def _lists(schema: Schema, known: Known) -> st.SearchStrategy[list[Any]]:
    keys = schema.get("x-kubernetes-list-map-keys")
    unique: Callable[[Any], Any] | None = None
    if schema.get("x-kubernetes-list-type") == "set":
        unique = str
    elif keys:
        unique = operator.itemgetter(*keys)
    return st.lists(
        values(schema["items"], known),
        min_size=schema.get("minItems", 0),
        max_size=min(schema.get("maxItems", 3), 3),
        unique_by=unique,
    )


def _strings(schema: Schema) -> st.SearchStrategy[str]:
    low, high = schema.get("minLength", 0), schema.get("maxLength", 40)
    if "pattern" not in schema:
        return st.text(st.characters(codec="utf-8"), min_size=low, max_size=min(high, 40))
    # Python's $ also matches before a line end.
    pattern = schema["pattern"].removesuffix("$") + r"\Z"
    return st.from_regex(pattern).filter(lambda text: low <= len(text) <= high)


def _objects(schema: Schema, known: Known) -> st.SearchStrategy[dict[str, Any]]:
    if "additionalProperties" in schema:
        keys = st.from_regex(r"\A[a-z][a-z0-9]{0,8}(\.io/[a-z]{1,8})?\Z")
        return st.dictionaries(keys, values(schema["additionalProperties"], known), max_size=3)
    members = {
        key: known[key] if key in known else values(child, known)
        for key, child in schema.get("properties", {}).items()
    }
    rules = [rule["rule"] for rule in schema.get("x-kubernetes-validations", [])]
    if any("exists_one" in rule for rule in rules):
        return st.one_of(*(st.fixed_dictionaries({key: each}) for key, each in members.items()))
    required = {key: members.pop(key) for key in schema.get("required", [])}
    objects = st.fixed_dictionaries(required, optional=members)
    least = schema.get("minProperties", 0)
    return objects.filter(lambda obj: len(obj) >= least) if least else objects
