"""The restricted profile of Kubernetes' Pod Security Standards, as the admission controller judges a pod."""

from collections.abc import Mapping
from typing import Any

_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def refusals(spec: Mapping[str, Any]) -> list[str]:
    """Why the pod would not be admitted; empty when it is."""
    found = [f"{field} is set" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    for volume in spec.get("volumes", ()):
        found += [f"volume {volume['name']}: {kind}" for kind in volume if kind != "name" and kind not in _VOLUMES]
    shared = spec.get("securityContext", {})
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        own = container.get("securityContext", {})
        told = {**shared, **own}
        wrong = {
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is not False,
            "privileged": bool(own.get("privileged")),
            "runAsNonRoot": told.get("runAsNonRoot") is not True,
            "runAsUser": told.get("runAsUser") == 0,
            "seccompProfile": told.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"),
            "capabilities.drop": "ALL" not in own.get("capabilities", {}).get("drop", ()),
            "capabilities.add": bool(set(own.get("capabilities", {}).get("add", ())) - {"NET_BIND_SERVICE"}),
            "hostPort": any(port.get("hostPort") for port in container.get("ports", ())),
        }
        found += [f"container {container['name']}: {field}" for field, is_wrong in wrong.items() if is_wrong]
    return found
