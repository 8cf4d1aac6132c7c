"""Random pods with resource claims, decided by a real kube-scheduler and made again by ksched.

kube-scheduler decides on a real API server, with every object in the form that the server gave it,
and its claims are read afterwards. What ksched makes of the same objects is compared whole: node,
message, scores, and in each claim the devices, configurations, reservations and finalizers.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPSConnection
from random import Random
from typing import Any

from ksched.configuration import load_config
from ksched.errors import KschedError
from lab.child_process import ChildProcess
from lab.control_plane import HOST, USERS, ControlPlane
from lab.device_recordings import SPECIAL, DeviceDecider, shown_claim
from lab.parity.explained import explained
from lab.parity.kube_scheduler_log import ScoreLog
from lab.parity.tally import Tally
from lab.random_devices import (
    ALLOCATION,
    BIND,
    BINDING,
    FILTER_TIMEOUT,
    NAMESPACE,
    STATUS,
    TEMPLATE,
    Json,
    RandomDevices,
)

SCHEDULER = "devices-kube-scheduler"
PATIENCE_SECONDS = 30.0
DECISIONS = 12
_GROUP = "/apis/resource.k8s.io/v1"
_CLAIMS = f"{_GROUP}/namespaces/{NAMESPACE}/resourceclaims"
_TEMPLATES = f"{_GROUP}/namespaces/{NAMESPACE}/resourceclaimtemplates"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
_IN_USE = 5


class Refused(KschedError):
    """The API server refused a request."""


class Gone(KschedError):
    """There is no such object."""


class Undecided(KschedError):
    """kube-scheduler did not decide in time."""


class _Api:
    """One connection to the API server, as its administrator."""

    def __init__(self, plane: ControlPlane) -> None:
        port = int(plane.url.rpartition(":")[2])
        context = plane.ssl_context()
        self._connection = HTTPSConnection(HOST, port, timeout=30, context=context)
        self._headers = {
            "Authorization": f"Bearer {USERS['admin'].token}",
            "Accept": "application/json",
        }

    def request(self, method: str, path: str, body: object = None) -> Any:
        """The object that the server answers with; raises ``Refused``."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {**self._headers, "Content-Type": kind}
        payload = None if body is None else json.dumps(body, separators=(",", ":"))
        self._connection.request(method, path, payload, headers)
        response = self._connection.getresponse()
        answer = json.loads(response.read())
        if response.status == 404:
            raise Gone(path)
        if response.status >= 400:
            raise Refused(f"{method} {path}: {answer.get('message')}: {payload}")
        return answer

    def close(self) -> None:
        self._connection.close()


class DeviceScenario:
    """The cluster of one seed on an API server that kube-scheduler watches."""

    def __init__(
        self,
        plane: ControlPlane,
        log: ScoreLog,
        seed: int,
        plugin_config: Sequence[Json] = (),
        *,
        extended_percent: int = 12,
        long_percent: int = 0,
        template_percent: int = 0,
    ) -> None:
        self._extended_percent, self._long_percent = extended_percent, long_percent
        self._template_percent = template_percent
        """How many claims are made from templates, by the controller that runs beside."""
        profile = {"schedulerName": "default-scheduler", "pluginConfig": plugin_config}
        self._configuration = load_config(
            json.dumps(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "profiles": [profile],
                }
            )
        )
        self._plane, self._api, self._log, self._seed = plane, _Api(plane), log, seed
        self.pods_explained = 0
        self._rng = Random(seed)
        self._source = RandomDevices(self._rng, f"s{seed}-")
        self._made: list[str] = []
        self._used: set[tuple[str, str, str]] = set()

    @classmethod
    @contextmanager
    def scheduler(
        cls, plane: ControlPlane, plugin_config: Sequence[Json] = ()
    ) -> Iterator[ScoreLog]:
        """A kube-scheduler for all seeds."""
        label = {"resource.kubernetes.io/admin-access": "true"}
        namespace = {"metadata": {"name": NAMESPACE, "labels": label}}
        with closing(_Api(plane)) as api:
            if NAMESPACE not in {
                one["metadata"]["name"] for one in api.request("GET", "/api/v1/namespaces")["items"]
            }:
                api.request("POST", "/api/v1/namespaces", namespace)
        profile = {"schedulerName": SCHEDULER, "pluginConfig": plugin_config}
        process: ChildProcess = plane.kube_scheduler(
            SCHEDULER,
            scheduler_name=SCHEDULER,
            verbosity=10,
            config={"profiles": [profile]},
            flags=("--feature-gates=OpportunisticBatching=false",),
        )
        with process as running:
            yield ScoreLog(running.log_path)

    async def play(self, tally: Tally, decisions: int = DECISIONS) -> list[str]:
        """Decide some pods; returns what differs."""
        try:
            cluster = self._build()
            decider = DeviceDecider(cluster, self._configuration)
            found = []
            for number in range(decisions):
                decision = await self._decide(number, is_last=number == decisions - 1)
                differences = await decider.find_disagreements(decision)
                differences += self._misexplained(decision)
                tally.add([ALLOCATION, *decision["features"]], differs=bool(differences))
                found += [f"seed {self._seed}, decision {number}:", *differences] * bool(
                    differences
                )
            return found
        finally:
            for path in reversed(self._made):
                self._remove(path)
            self._api.close()

    # -- the cluster ----------------------------------------------------------------------------

    def _build(self) -> Json:
        source = self._source
        source.make_cluster()
        if self._long_percent:
            source.add_long_searches()
        cluster = {
            "nodes": [self._make("/api/v1/nodes", one) for one in source.nodes],
            "pods": [],
            "deviceclasses": [self._make(f"{_GROUP}/deviceclasses", one) for one in source.classes],
            "resourceslices": [
                self._make(f"{_GROUP}/resourceslices", one) for one in source.slices
            ],
            "resourceclaims": [],
        }
        for number in range(self._rng.randint(0, _IN_USE)):
            claim = self._unused(f"used-{self._seed}-{number}")
            if claim is not None:
                cluster["resourceclaims"].append(self._make_claim(claim, is_kept=True))
        # Watches of different kinds are in no order.
        time.sleep(0.4)
        return cluster

    def _unused(self, name: str, driver: str = "") -> Json | None:
        """A claim with a device that no other claim has for itself."""
        for _ in range(20):
            claim = self._source.allocated_claim(name)
            if claim is None:
                return None
            result = claim["status"]["allocation"]["devices"]["results"][0]
            device = (result["driver"], result["pool"], result["device"])
            if driver and (result["driver"] != driver or "bindingConditions" not in result):
                continue
            if "shareID" in result or "adminAccess" in result or device not in self._used:
                self._used.add(device)
                return claim
        return None

    def _make(self, path: str, obj: Json) -> Json:
        made: Json = self._api.request("POST", path, obj)
        self._made.append(f"{path}/{made['metadata']['name']}")
        return made

    def _make_claim(self, claim: Json, *, is_kept: bool = False) -> Json:
        claim = dict(claim)
        status = claim.pop("status", None)
        made: Json = self._api.request("POST", _CLAIMS, claim)
        path = f"{_CLAIMS}/{made['metadata']['name']}"
        if is_kept:
            self._made.append(path)
        if status is not None:
            made["status"] = status
            made = self._api.request("PUT", f"{path}/status", made)
        return made

    def _make_template(self, claim: Json) -> str:
        name: str = claim["metadata"]["name"]
        body = {"metadata": claim["metadata"], "spec": {"spec": claim["spec"]}}
        self._api.request("POST", _TEMPLATES, body)
        return name

    def _remove(self, path: str) -> None:
        # kube-scheduler may be the first, where it made a claim for nothing.
        with suppress(Gone):
            if path.startswith(_CLAIMS):
                body = {"metadata": {"finalizers": None}}
                self._api.request("PATCH", path, body)
            self._api.request("DELETE", f"{path}?gracePeriodSeconds=0")

    # -- decisions ------------------------------------------------------------------------------

    async def _decide(self, number: int, *, is_last: bool) -> Json:
        """Have one pod decided, as a recorded decision; it and its claims are gone afterwards."""
        name = f"p-{self._seed}-{number}"
        features: set[str] = set()
        # A pod that waits for its devices is remembered for a while: nothing may follow it.
        self._source.kinds = (BIND,) if is_last else self._source.kinds_that_bind_at_once
        claims: list[Json] = []
        templates: list[str] = []
        if number == 1 and (ready := self._ready_claim(f"{name}-ready")) is not None:
            claims.append(ready)
            # A claim in its first version, without devices, would be given others.
            await asyncio.sleep(0.1)
            features |= {STATUS, BINDING}
        elif self._long_percent and self._source.sometimes(self._long_percent):
            claims.append(self._make_claim(self._source.long_claim(f"{name}-long")))
        elif is_last or not self._source.sometimes(self._extended_percent):
            for index in range(self._rng.choice((1, 1, 1, 2))):
                claim, asked = self._source.claim(f"{name}-c{index}")
                features |= asked
                if self._template_percent and self._source.sometimes(self._template_percent):
                    templates.append(self._make_template(claim))
                    features.add(TEMPLATE)
                else:
                    claims.append(self._make_claim(claim))
        names = [one["metadata"]["name"] for one in claims]
        pod = self._source.pod(name, [*names, *templates], features)
        for entry in pod["spec"].get("resourceClaims", ())[len(names) :]:
            entry["resourceClaimTemplateName"] = entry.pop("resourceClaimName")
        pod["spec"]["schedulerName"] = SCHEDULER
        if not claims and not templates:
            await asyncio.sleep(0.05)
        stored = self._api.request("POST", _PODS, pod)
        verdict, scheduled = self._verdict(name)
        if "timed out" in verdict.get("message", ""):
            features.add(FILTER_TIMEOUT)
        told = ""
        if verdict.get("reason") == "Unschedulable" and FILTER_TIMEOUT not in features:
            theirs = self._configuration.profiles[0]
            theirs = theirs.model_copy(update={"scheduler_name": SCHEDULER})
            configuration = self._configuration.model_copy(update={"profiles": [theirs]})
            told = (await explained(self._plane, NAMESPACE, name, configuration)).message
        scores, _ = self._log.take(f"{NAMESPACE}/{name}")
        stored["spec"]["schedulerName"] = "default-scheduler"
        if templates:
            made = scheduled["status"]["resourceClaimStatuses"]
            stored["status"]["resourceClaimStatuses"] = made
            names += [one["resourceClaimName"] for one in made]
            claims += [
                _before(one)
                for one in self._claims_of(name, names)
                if one["metadata"]["name"] in names[-len(made) :]
            ]
        decision: Json = {
            "features": sorted(features),
            "pod": stored,
            "claims": claims,
            "pods": [],
            "verdict": verdict,
            "explained": told,
            "scores": scores if "node" in verdict else {},
            "result": {},
        }
        for claim in self._claims_of(name, names):
            made_for_resources = claim["metadata"]["name"] not in names
            key = SPECIAL if made_for_resources else claim["metadata"]["name"]
            if verdict.get("reason") != "SchedulerError":
                decision["result"][key] = shown_claim(claim, made_for_resources)
        mappings = scheduled.get("status", {}).get("extendedResourceClaimStatus")
        if mappings and "node" in verdict:
            decision["mappings"] = mappings["requestMappings"]
        self._api.request("DELETE", f"{_PODS}/{name}?gracePeriodSeconds=0")
        for template in templates:
            self._api.request("DELETE", f"{_TEMPLATES}/{template}")
        for claim in self._claims_of(name, names):
            self._remove(f"{_CLAIMS}/{claim['metadata']['name']}")
        return decision

    def _misexplained(self, decision: Json) -> list[str]:
        """Compare what ``ksched explain`` says of a pod that stays pending."""
        told, message = decision.pop("explained"), decision["verdict"].get("message", "")
        if told:
            self.pods_explained += 1
        if not told or told == message:
            return []
        return [f"explain: {told}", f"kube-scheduler: {message}"]

    def _ready_claim(self, name: str) -> Json | None:
        """A claim that has a device whose driver says that it can be used."""
        claim = self._unused(name, BIND)
        if claim is None:
            return None
        result = claim["status"]["allocation"]["devices"]["results"][0]
        condition = {
            "type": "attached",
            "status": "True",
            "reason": "Attached",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        device = {key: result[key] for key in ("driver", "pool", "device")}
        claim["status"]["devices"] = [{**device, "conditions": [condition]}]
        return self._make_claim(claim)

    def _claims_of(self, pod: str, names: list[str]) -> list[Json]:
        listed = self._api.request("GET", _CLAIMS)["items"]
        return [
            one
            for one in listed
            if one["metadata"]["name"] in names
            or any(owner["name"] == pod for owner in one["metadata"].get("ownerReferences", []))
        ]

    def _verdict(self, name: str) -> tuple[Json, Json]:
        """What kube-scheduler decided, and the pod then."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            pod: Json = self._api.request("GET", f"{_PODS}/{name}")
            if node := pod["spec"].get("nodeName"):
                return {"node": node}, pod
            for condition in pod.get("status", {}).get("conditions", []):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    reason, message = condition["reason"], condition["message"]
                    if "deallocation of ResourceClaim" not in message:
                        return {"reason": reason, "message": message}, pod
            node = pod.get("status", {}).get("nominatedNodeName")
            if node and self._is_waiting(name):
                return {"node": node}, self._api.request("GET", f"{_PODS}/{name}")
            time.sleep(0.005)
        raise Undecided(f"{name}: not decided within {PATIENCE_SECONDS:.0f} s: {json.dumps(pod)}")

    def _is_waiting(self, pod: str) -> bool:
        """Whether all claims are written, and the pod waits for binding conditions."""
        events = self._api.request("GET", f"{_EVENTS}?fieldSelector=involvedObject.name={pod}")
        return any(one["reason"] == "BindingConditionsPending" for one in events["items"])


def _before(claim: Json) -> Json:
    """A claim as it was before it got devices."""
    metadata = {key: one for key, one in claim["metadata"].items() if key != "finalizers"}
    return {**claim, "metadata": metadata, "status": {}}
