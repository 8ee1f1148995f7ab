#!/usr/bin/env python3
"""Holds the examples for clusters and containers to what the programs that read them accept.

Kubernetes' objects are compared with the fields that their definitions have (kubeflow.org/v2beta1 MPIJob,
jobset.x-k8s.io/v1alpha2 JobSet, and of a pod what the examples use); batch scripts with sbatch's options and with bash;
container files with the instructions that there are, and with the files of this repository that they copy.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
try:
    import yaml
except ImportError:
    yaml = None

POD = {"restartPolicy": str, "containers": [{
    "name": str, "image": str, "command": [str], "args": [str],
    "resources": {"requests": {"cpu": str, "memory": str}, "limits": {"cpu": str, "memory": str}},
    "volumeMounts": [{"name": str, "mountPath": str}]}],
    "volumes": [{"name": str, "persistentVolumeClaim": {"claimName": str}}]}
REPLICAS = {"replicas": int, "template": {"spec": POD}}
KINDS = {
    ("kubeflow.org/v2beta1", "MPIJob"): {
        "slotsPerWorker": int,
        "runPolicy": {"cleanPodPolicy": ("None", "Running", "All"), "backoffLimit": int},
        "mpiReplicaSpecs": {"Launcher": REPLICAS, "Worker": REPLICAS}},
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): {
        "failurePolicy": {"maxRestarts": int},
        "successPolicy": {"operator": ("All", "Any"), "targetReplicatedJobs": [str]},
        "replicatedJobs": [{"name": str, "replicas": int, "template": {"spec": {
            "parallelism": int, "completions": int, "backoffLimit": int, "template": {"spec": POD}}}}]},
}
SBATCH = {"job-name", "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "time", "output", "signal"}
INSTRUCTIONS = {"ARG", "FROM", "SHELL", "ENV", "WORKDIR", "COPY", "RUN", "USER", "ENTRYPOINT", "CMD"}


def misfits(found, schema, place):
    """Breaches of a value by a schema: a type, words, a list's item or a mapping's fields."""
    if isinstance(schema, type):
        return [] if isinstance(found, schema) else [f"{place}: {found!r} is no {schema.__name__}"]
    if isinstance(schema, tuple):
        return [] if found in schema else [f"{place}: {found!r}, accepted: {', '.join(schema)}"]
    if isinstance(schema, list):
        if not isinstance(found, list) or not found:
            return [f"{place}: no list"]
        return [each for i, item in enumerate(found) for each in misfits(item, schema[0], f"{place}[{i}]")]
    if not isinstance(found, dict):
        return [f"{place}: no mapping"]
    return [each for key, value in found.items()
            for each in ([f"{place}.{key}: unknown field"] if key not in schema
                         else misfits(value, schema[key], f"{place}.{key}"))]


class Examples(unittest.TestCase):
    @unittest.skipIf(yaml is None, "no PyYAML")
    def test_kubernetes(self):
        files = sorted((ROOT / "examples/kubernetes").glob("*.yaml"))
        self.assertEqual(len(files), len(KINDS))
        for path in files:
            found = yaml.safe_load(path.read_text())
            schema = KINDS[found["apiVersion"], found["kind"]]
            self.assertRegex(found["metadata"]["name"], r"^[a-z0-9-]{1,63}$")
            self.assertEqual(misfits(found["spec"], schema, path.name), [])
            self.claims_and_mounts(found, path.name)
        broken = yaml.safe_load(files[0].read_text())
        broken["spec"]["replicatedJobz"] = []
        self.assertTrue(misfits(broken["spec"], KINDS[broken["apiVersion"], broken["kind"]], "x"))

    def claims_and_mounts(self, found, place):
        """Every mount of a container names a volume of its pod."""
        if isinstance(found, list):
            for each in found:
                self.claims_and_mounts(each, place)
        if not isinstance(found, dict):
            return
        if "containers" in found:
            volumes = {v["name"] for v in found.get("volumes", [])}
            for container in found["containers"]:
                for mount in container.get("volumeMounts", []):
                    self.assertIn(mount["name"], volumes, place)
        for each in found.values():
            self.claims_and_mounts(each, place)

    def test_batch_scripts(self):
        for path in sorted((ROOT / "examples/slurm").iterdir()):
            subprocess.run(["bash", "-n", path], check=True)
            if shutil.which("shellcheck"):
                subprocess.run(["shellcheck", path], check=True)
            lines = path.read_text().splitlines()
            self.assertEqual(lines[0], "#!/usr/bin/env bash")
            options = [re.match(r"#SBATCH --([a-z-]+)=\S+$", line) for line in lines if line.startswith("#SBATCH")]
            self.assertTrue(options and all(options), path)
            self.assertEqual({o.group(1) for o in options} - SBATCH, set(), path)
            ends = max(i for i, line in enumerate(lines) if line.startswith("#SBATCH"))
            first = min(i for i, line in enumerate(lines) if line and not line.startswith("#"))
            self.assertLess(ends, first, "sbatch reads no option behind the first command")

    def test_container_files(self):
        files = sorted((ROOT / "tools/containers").glob("*.Dockerfile"))
        self.assertEqual([f.name for f in files], ["cpu.Dockerfile", "cuda.Dockerfile"])
        for path in files:
            text = re.sub(r"\\\n", " ", path.read_text())
            stages = set()
            for line in filter(None, (line.strip() for line in text.splitlines())):
                if line.startswith("#"):
                    continue
                word, rest = line.split(None, 1)
                self.assertIn(word, INSTRUCTIONS, f"{path.name}: {line}")
                if word == "FROM" and " AS " in rest:
                    stages.add(rest.split(" AS ")[1])
                if word == "COPY" and not rest.startswith("--from="):
                    self.assertTrue((ROOT / rest.split()[0]).exists(), f"{path.name}: {line}")
                if word == "COPY" and rest.startswith("--from="):
                    self.assertIn(rest.split()[0].removeprefix("--from="), stages)
                if word in ("ENTRYPOINT", "CMD", "SHELL"):
                    self.assertTrue(rest.startswith("[") and rest.endswith("]"), f"{path.name}: {line}")
                if word == "RUN":
                    subprocess.run(["bash", "-n", "-c", rest], check=True)
            self.assertIn("USER heddle", text, "the program does not run as root")
        if shutil.which("hadolint"):
            subprocess.run(["hadolint", *files], check=True)


if __name__ == "__main__":
    unittest.main()
