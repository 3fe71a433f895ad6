"""One pass over one deployment: gather, decide, apply, tell. Every event leads here.

A pass reads everything that it needs anew, so it doesn't matter what woke it, whether an earlier
one was cut off, or what another did in between. What is right already isn't written again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from rwkv_operator import errors, names
from rwkv_operator.api import conditions, events, observed, spec, status
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.observed import Observed
from rwkv_operator.api.pods import Pod
from rwkv_operator.api.refusal import Refusal
from rwkv_operator.api.stack import Stack
from rwkv_operator.cluster import gather
from rwkv_operator.cluster.client import Cluster
from rwkv_operator.cluster.nodes import Nodes
from rwkv_operator.cluster.pods import PodReports, Told
from rwkv_operator.decide import admission, plan, readiness, refusal, resync
from rwkv_operator.decide import secrets as decide_secrets
from rwkv_operator.manifests import children, context, engine, haproxy, secrets
from rwkv_operator.metrics import Metrics
from rwkv_operator.settings import Settings

_log = logging.getLogger(__name__)

_REFUSED: Final = (400, 403, 422)
"""Answers of the API server that another try of the same request won't change."""

_COLLECTOR_SECONDS: Final = 2.0
"""How often to look whether the garbage collector has removed what a former deployment had."""


@dataclass(frozen=True)
class Seen:
    """What the first half of a pass leaves to the second."""

    obj: Mapping[str, Any]
    dep: spec.Deployment
    admitted: Condition
    observed: Observed


class Reconciler:
    """Brings deployments to what their specs say.

    Clock, randomness and transports come from outside.
    """

    def __init__(
        self,
        cluster: Cluster,
        nodes: Nodes,
        reports: PodReports,
        settings: Settings,
        metrics: Metrics,
        now: Callable[[], str],
        make_key: Callable[[], str],
    ) -> None:
        """Keep the parts.

        Args:
            cluster: the API server.
            nodes: the cluster's nodes.
            reports: the pods' ops ports.
            settings: the process' settings.
            metrics: counters.
            now: wall clock, in Kubernetes' format.
            make_key: a new random key, for Secrets and names of events.
        """
        self._cluster = cluster
        self._nodes = nodes
        self._reports = reports
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._make_key = make_key
        self._intervals = resync.Intervals(
            settings.moving_seconds, settings.unready_seconds, settings.steady_seconds
        )

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """One pass; returns the seconds until the next look, None where there is nothing to do.

        Raises:
            ClusterError: the API server couldn't be reached or asked to try again.
            NotYet: something else has to happen first.
        """
        started = time.perf_counter()
        result = "error"
        try:
            delay = await self._pass(namespace, name)
            result = "gone" if delay is None else "ok"
            return delay
        finally:
            self._metrics.reconciles.labels(result).inc()
            self._metrics.seconds.observe(time.perf_counter() - started)

    async def _pass(self, namespace: str, name: str) -> float | None:
        obj = await asyncio.to_thread(gather.gather_deployment, self._cluster, namespace, name)
        if obj is None or "deletionTimestamp" in obj["metadata"]:
            # The garbage collector removes the children by their owner.
            self._reports.forget(namespace, name)
            return None
        try:
            dep = spec.parse_deployment(obj)
        except errors.InvalidSpec as error:
            await asyncio.to_thread(self._tell_unreadable, obj, error)
            return self._intervals.steady
        seen = await asyncio.to_thread(self._bring_about, obj, dep)
        told = await self._reports.ask(namespace, name, seen.observed.pods)
        return await asyncio.to_thread(self._tell, seen, told)

    def _bring_about(self, obj: Mapping[str, Any], dep: spec.Deployment) -> Seen:
        """Everything but the status: the children, and what is to be seen of them afterwards."""
        stack = gather.gather_stack(self._cluster, dep.spec.hardware.stack)
        known = gather.gather_stack_names(self._cluster) if stack is None else ()
        verdict = admission.decide_admission(dep, stack, self._nodes.all(), known)
        found = gather.gather_children(self._cluster, dep.namespace, dep.name)
        live = {key: item for key, item in found.live.items() if plan.is_owned(item, dep.uid)}
        pods = gather.gather_pods(self._cluster, dep.namespace, dep.name)
        seen = Observed(stack=stack if isinstance(stack, Stack) else None, pods=pods)
        if verdict.allowed and isinstance(stack, Stack):
            ctx = self._context(stack, found)
            ctx = replace(ctx, refusal=self._decide_refusal(dep, ctx, verdict, live, pods))
            desired = children.build_children(dep, ctx)
            named = self._gather_missing(dep, desired, found)
            steps = plan.decide_plan(desired, {**found.live, **named}, dep.uid)
            digest = haproxy.config_hash(haproxy.render(dep, ctx))
            if steps.secrets or decide_secrets.are_awaited(pods):
                fresh = decide_secrets.may_be_anothers(obj, live, self._now())
                seen = replace(seen, refused=self._make_secrets(dep, fresh))
            seen = self._apply(dep, steps, live, seen)
            seen = replace(seen, config_hash=digest, refusal=ctx.refusal)
        engines = observed.parse_workload(live.get(("StatefulSet", names.engine(dep.name))))
        seen = replace(
            seen,
            engines=engines,
            routers=observed.parse_workload(live.get(("Deployment", names.router(dep.name)))),
            events=gather.gather_warnings(self._cluster, dep.namespace, engines, pods),
        )
        return Seen(obj, dep, verdict.condition, seen)

    def _decide_refusal(
        self,
        dep: spec.Deployment,
        ctx: context.Context,
        verdict: admission.Admission,
        live: Mapping[plan.Key, Mapping[str, Any]],
        pods: tuple[Pod, ...],
    ) -> Refusal | None:
        """A preflight's refusal that keeps engines away, or that does so from now on."""
        template = engine.build_template(dep, ctx)
        key = refusal.refusal_key(ctx.stack, template, verdict.candidates)
        statefulset = live.get(("StatefulSet", names.engine(dep.name)))
        return refusal.decide_refusal(key, template, statefulset, pods)

    def _gather_missing(
        self, dep: spec.Deployment, desired: list[dict[str, Any]], found: gather.Children
    ) -> dict[plan.Key, dict[str, Any]]:
        """Foreign objects that have the names of children.

        A first pass doesn't ask: nearly always there are none, and making a child says so, too.
        """
        if not found.live:
            return {}
        missing = [key for key in map(plan.key_of, desired) if key not in found.live]
        return gather.gather_named(self._cluster, dep.namespace, missing)

    def _apply(
        self,
        dep: spec.Deployment,
        steps: plan.Plan,
        live: dict[plan.Key, dict[str, Any]],
        seen: Observed,
    ) -> Observed:
        """Carry out a plan; `live` becomes what the API server answers."""
        refused = list(seen.refused)
        foreign = list(steps.foreign)
        for step in steps.applies:
            key = plan.key_of(step.desired)
            try:
                done = self._write(dep, step)
            except errors.ClusterError as error:
                refused.append(_refusal(step.desired, error))
                continue
            if isinstance(done, observed.Foreign):
                foreign.append(done)
            else:
                live[key] = done
                self._metrics.applied.labels(key[0]).inc()
        for going in steps.deletes:
            self._cluster.delete(going.kind, dep.namespace, going.name, going.uid)
            live.pop((going.kind, going.name), None)
        return replace(seen, refused=tuple(refused), foreign=tuple(foreign))

    def _write(self, dep: spec.Deployment, step: plan.Apply) -> dict[str, Any] | observed.Foreign:
        kind, name = plan.key_of(step.desired)
        if step.uid is not None:
            fields = ", ".join(step.paths)
            _log.info("%s/%s: setting %s of %s %s", dep.namespace, dep.name, fields, kind, name)
            return self._cluster.apply(step.desired, step.uid)
        try:
            return self._cluster.make(step.desired)
        except errors.Conflict:
            taken = self._cluster.get(kind, dep.namespace, name)
            if taken is None or plan.is_owned(taken, dep.uid):
                raise
            return observed.Foreign(kind, name, plan.owner_text(taken))

    def _make_secrets(
        self, dep: spec.Deployment, fresh: bool = False
    ) -> tuple[observed.Refused, ...]:
        """Make the Secrets, before the pods that mount them; existing ones stay as they are.

        Args:
            dep: the deployment.
            fresh: existing ones may still be those of a former deployment.

        Raises:
            NotYet: the former ones have to go first; pods that start with their keys wouldn't be
                let in by those that start later.
        """
        wanted = [secrets.build_internal_secret(dep, self._make_key())]
        if dep.spec.auth.makes_key:
            wanted.append(secrets.build_api_key_secret(dep, self._make_key()))
        refused = []
        for secret in wanted:
            try:
                made = self._cluster.create(secret)
            except errors.ClusterError as error:
                refused.append(_refusal(secret, error))
                continue
            if fresh and not made:
                name = secret["metadata"]["name"]
                text = f"Secret {name} may be a former deployment's, about to go"
                raise errors.NotYet(text, _COLLECTOR_SECONDS)
        return tuple(refused)

    def _tell(self, seen: Seen, told: Told) -> float:
        """Write the status where it differs; returns the seconds until the next look."""
        if seen.dep.spec.auth.makes_key and decide_secrets.are_keys_missing(told.routers.values()):
            self._make_secrets(seen.dep)
        full = seen.observed.hear(told.engines, told.fetches, told.routers)
        admitted = admission.decide_agreement(seen.dep, seen.admitted, full)
        admitted = refusal.decide_disagreement(admitted, full)
        verdicts = readiness.decide_conditions(seen.dep, full, admitted)
        stored = seen.obj.get("status") or {}
        wanted = status.build_status(
            seen.dep, full, verdicts, stored, self._now(), self._settings.cluster_domain
        )
        self._write_status(seen.obj, wanted)
        delay = resync.decide_resync(verdicts, full, self._intervals)
        return min(delay, self._intervals.moving) if told.missed else delay

    def _tell_unreadable(self, obj: Mapping[str, Any], error: errors.InvalidSpec) -> None:
        verdicts = readiness.decide_unseen(admission.decide_unreadable(error))
        wanted = status.build_unreadable_status(
            obj["metadata"].get("generation", 0), verdicts, obj.get("status") or {}, self._now()
        )
        self._write_status(obj, wanted)

    def _write_status(self, obj: Mapping[str, Any], wanted: dict[str, Any]) -> None:
        stored = obj.get("status") or {}
        if wanted == stored:
            return
        metadata = obj["metadata"]
        patch = {
            "apiVersion": names.API_VERSION,
            "kind": names.DEPLOYMENT_KIND,
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "status": wanted,
        }
        try:
            self._cluster.apply_status(patch, metadata["uid"])
        except errors.ClusterError as error:
            if error.status not in (404, 409):
                raise
            # Deleted, or deleted and made anew, since it was read: its own event follows.
            return
        notes = events.build_notes(stored.get("conditions") or (), wanted["conditions"])
        for note in (*notes, *events.build_download_notes(stored, wanted)):
            suffix = self._make_key()[:10].lower()
            self._post(events.build_event(obj, note, self._now(), suffix))

    def _post(self, event: dict[str, Any]) -> None:
        try:
            self._cluster.create(event)
        except errors.ClusterError as error:
            # The conditions say the same; an Event is not worth another pass.
            _log.warning("event about %s not posted: %s", event["involvedObject"]["name"], error)

    def _context(self, stack: Stack, found: gather.Children) -> context.Context:
        settings = self._settings
        return context.Context(
            stack=stack,
            operator_image=settings.operator_image,
            router_image=settings.router_image,
            operator_namespace=settings.namespace,
            operator_labels=settings.labels,
            cluster_domain=settings.cluster_domain,
            pod_monitor="PodMonitor" in found.served,
            scrape_from=settings.scrape_from,
        )


def _refusal(obj: Mapping[str, Any], error: errors.ClusterError) -> observed.Refused:
    """What to tell of a refused object; raises what another try may get through."""
    if error.status not in _REFUSED:
        raise error
    kind, name = plan.key_of(obj)
    return observed.Refused(kind, name, str(error))


def is_ready(obj: Mapping[str, Any]) -> bool:
    """Whether a stored deployment is Ready at the generation that its spec has now."""
    stored = obj.get("status") or {}
    if stored.get("observedGeneration") != obj["metadata"].get("generation"):
        return False
    return any(
        entry["type"] == conditions.READY and entry["status"] == "True"
        for entry in stored.get("conditions") or ()
    )
