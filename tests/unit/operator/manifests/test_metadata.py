from __future__ import annotations

import copy

import deployments

from rwkv_operator import names
from rwkv_operator.manifests import metadata

DEP = deployments.parsed()
CHILD = {"kind": "X", "metadata": {"name": "chat", "annotations": {"a": "b"}}, "spec": {"n": 1}}


def test_the_hash_knows_content_and_not_order() -> None:
    assert metadata.manifest_hash({"a": 1, "b": 2}) == metadata.manifest_hash({"b": 2, "a": 1})
    assert metadata.manifest_hash({"a": 1}) != metadata.manifest_hash({"a": "1"})


def test_an_owned_child_keeps_its_annotations_and_changes_its_hash_with_its_content() -> None:
    before = copy.deepcopy(CHILD)
    owned = metadata.build_owned(DEP, CHILD)
    assert owned["metadata"]["annotations"]["a"] == "b"
    changed = metadata.build_owned(DEP, {**CHILD, "spec": {"n": 2}})
    key = names.ANNOTATION_APPLIED_HASH
    assert owned["metadata"]["annotations"][key] != changed["metadata"]["annotations"][key]
    assert before == CHILD


def test_the_owner_is_the_controller() -> None:
    (owner,) = metadata.build_owned(DEP, CHILD)["metadata"]["ownerReferences"]
    assert owner["uid"] == deployments.UID
    assert owner["controller"] and owner["blockOwnerDeletion"]
