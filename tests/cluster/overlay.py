"""An overlay as it is applied here: the shipped one, with what a small node and a local cloud make necessary on top.

Nothing that is shipped is left out or replaced but: the cloud's addresses are added, requests of CPU and memory are
lowered (the limits stay), and executors are few and small.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.support.places import ROOT

_SMALL_EXECUTORS = {
    "spark.executor.instances": "1",
    "spark.executor.cores": "1",
    "spark.executor.memory": "1g",
    "spark.executor.memoryOverhead": "1g",
    "spark.kubernetes.executor.request.cores": "100m",
}


def write_overlay(folder: Path, shipped: str, environment: Mapping[str, str]) -> Path:
    """The overlay's folder, in a copy of `k8s/`."""
    shutil.copytree(ROOT / "k8s", folder / "k8s")
    mine = folder / "k8s/overlays/here"
    mine.mkdir()
    settings = yaml.safe_load((ROOT / f"k8s/overlays/{shipped}/ingestd.yaml").read_text())
    kustomization: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "ingestd-dev" if shipped == "dev" else "ingestd",
        "resources": [f"../{shipped}"],
        "patches": [{"target": {"kind": "Deployment", "name": "ingestd"}, "patch": json.dumps(_patch(environment))}],
    }
    if conf := settings.get("spark", {}).get("conf"):
        conf |= _SMALL_EXECUTORS
        (mine / "ingestd.yaml").write_text(yaml.safe_dump(settings))
        kustomization["configMapGenerator"] = [{"name": "ingestd", "behavior": "replace", "files": ["ingestd.yaml"]}]
    if settings["rules"]["url"].startswith("/"):
        shutil.copy(ROOT / "config/rules/clicks.yaml", mine)
        kustomization.setdefault("configMapGenerator", []).append(
            {"name": "ingestd-rules", "behavior": "merge", "files": ["clicks.yaml"]}
        )
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return mine


def _patch(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    container = "/spec/template/spec/containers/0"
    added: list[dict[str, Any]] = [
        {"op": "add", "path": f"{container}/env/-", "value": {"name": name, "value": value}}
        for name, value in environment.items()
    ]
    requests = {"cpu": "100m", "memory": "512Mi"}
    return [*added, {"op": "add", "path": f"{container}/resources/requests", "value": requests}]


def volumes(folder: Path, number: int) -> str:
    """Disks for pods that claim one: a storage class without a provisioner, and folders of this node."""
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "here", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    ]
    for index in range(number):
        disk = folder / f"disk-{index}"
        disk.mkdir()
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node"]}]}]
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": disk.name},
                "spec": {
                    "capacity": {"storage": "100Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "here",
                    "persistentVolumeReclaimPolicy": "Retain",
                    "local": {"path": str(disk)},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
                },
            }
        )
    return yaml.safe_dump_all(objects)


def google_kinds() -> str:
    """Google Managed Prometheus' kinds, so that objects of theirs are accepted; nothing acts on them here."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return yaml.safe_dump_all(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.monitoring.googleapis.com"},
            "spec": {
                "group": "monitoring.googleapis.com",
                "scope": "Namespaced",
                "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
            },
        }
        for plural, kind in (("podmonitorings", "PodMonitoring"), ("rules", "Rules"))
    )
