"""The files of deploy/, as far as they can be checked without Docker, Kubernetes and Slurm.

Compose files are read by an implementation of the Compose specification, pod templates are checked against Kubernetes'
own schemas, both strictly; every option of every command is looked for in the command that is installed here.
"""

import copy
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import compose_spec
import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
MANIFESTS = ("settings.yaml", "raycluster.yaml", "rayjob.yaml")
SECRET_WORDS = ("PASSWORD", "SECRET", "TOKEN", "ACCESS_KEY", "USERNAME")
CLUSTER_FIELDS = {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
GROUP_FIELDS = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
JOB_FIELDS = {"entrypoint", "backoffLimit", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "rayClusterSpec"}
"""Of KubeRay's definitions, those that are used; https://docs.ray.io has them all."""


def compose(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / name).read_text(encoding="utf-8"))
    return loaded


def manifests() -> list[dict[str, Any]]:
    texts = [(DEPLOY / "kuberay" / name).read_text(encoding="utf-8") for name in MANIFESTS]
    return [document for text in texts for document in yaml.safe_load_all(text)]


def clusters() -> list[dict[str, Any]]:
    specs = {each["kind"]: each["spec"] for each in manifests() if each["kind"].startswith("Ray")}
    return [specs["RayCluster"], specs["RayJob"]["rayClusterSpec"]]


def pods() -> list[dict[str, Any]]:
    groups = [group for each in clusters() for group in (each["headGroupSpec"], *each["workerGroupSpecs"])]
    return [group["template"]["spec"] for group in groups]


def read_strictly(plain: dict[str, Any]) -> compose_spec.PyCompose:
    read = compose_spec.PyCompose.from_yaml(yaml.safe_dump(plain))
    read.validate()
    return read


def test_compose_files_are_what_the_specification_allows() -> None:
    whole, gpu = compose("compose.yaml"), compose("compose.gpu.yaml")
    assert set(read_strictly(whole).service_names()) == {"postgres", "store", "mlflow", "head", "worker", "dashboard"}
    assert set(read_strictly(gpu).service_names()) <= set(whole["services"])
    misspelt = copy.deepcopy(whole)
    misspelt["services"]["head"]["prots"] = misspelt["services"]["head"].pop("ports")
    with pytest.raises(ValueError, match="prots"):
        read_strictly(misspelt)


def test_compose_publishes_on_this_machine_only_and_waits_for_what_is_well() -> None:
    services = compose("compose.yaml")["services"]
    ports = [port for each in services.values() for port in each.get("ports", [])]
    assert len(ports) == 3
    assert all(str(port).startswith("127.0.0.1:") for port in ports)
    for each in services.values():
        assert not each["image"].endswith(":latest")
        assert ":" in each["image"]
        for name, condition in each.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert "healthcheck" in services[name]


def test_compose_has_no_secret_and_no_default_for_one() -> None:
    text = (DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8")
    asked = set(re.findall(r"\$\{(\w+)", text))
    assert set(re.findall(r"\$\{(\w+):\?", text)) == asked  # every one is refused when it is empty
    assert len(re.findall(r"\$\{", text)) == len(re.findall(r"\$\{\w+:\?[^}]+\}", text))
    example = (DEPLOY / "compose" / "env.example").read_text(encoding="utf-8")
    assert re.findall(r"^(\w+)=(.*)$", example, re.MULTILINE) == [(name, "") for name in names_of(example)]
    assert set(names_of(example)) == asked
    for service in compose("compose.yaml")["services"].values():
        for name, value in service.get("environment", {}).items():
            if any(word in name for word in SECRET_WORDS):
                assert re.fullmatch(r"\$\{\w+:\?[^}]+\}", value), name


def names_of(example: str) -> list[str]:
    return re.findall(r"^(\w+)=", example, re.MULTILINE)


def test_pods_are_what_kubernetes_allows() -> None:
    for spec in pods():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plt"}, "spec": spec}
        kubernetes_validate.validate(pod, "1.31", strict=True)
        volumes = {volume["name"] for volume in spec["volumes"]}
        mounted = {mount["name"] for each in spec["containers"] for mount in each["volumeMounts"]}
        assert mounted == volumes
        assert spec["securityContext"]["runAsNonRoot"]
        misspelt = {**pod, "spec": {**spec, "nodeSelecter": {"zone": "a"}}}
        with pytest.raises(kubernetes_validate.ValidationError, match="nodeSelecter"):
            kubernetes_validate.validate(misspelt, "1.31", strict=True)
    for document in manifests():
        if not document["apiVersion"].startswith("ray.io/"):
            kubernetes_validate.validate(document, "1.31", strict=True)


def test_clusters_have_only_fields_of_kuberay() -> None:
    job = next(each for each in manifests() if each["kind"] == "RayJob")
    assert job["apiVersion"] == "ray.io/v1"
    assert set(job["spec"]) == JOB_FIELDS
    for cluster in clusters():
        assert set(cluster) == CLUSTER_FIELDS
        assert cluster["authOptions"] == {"mode": "token"}
        assert cluster["rayVersion"] == version("ray")
        assert set(cluster["headGroupSpec"]) == {"rayStartParams", "template"}
        for group in cluster["workerGroupSpecs"]:
            assert set(group) == GROUP_FIELDS
            assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
            params = group["rayStartParams"] | cluster["headGroupSpec"]["rayStartParams"]
            assert all(isinstance(value, str) for value in params.values())  # KubeRay refuses numbers
        (gpu,) = [group for group in cluster["workerGroupSpecs"] if group["groupName"] == "gpu"]
        (container,) = gpu["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert gpu["template"]["spec"]["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_secrets_of_pods_are_references_that_the_readme_makes() -> None:
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    made = set(re.findall(r"--from-literal=(\w+)=", readme))
    settings = next(each for each in manifests() if each["kind"] == "ConfigMap")["data"]
    assert not [name for name in settings if any(word in name for word in SECRET_WORDS)]
    used = set()
    for container in (each for spec in pods() for each in spec["containers"]):
        assert container["envFrom"] == [{"configMapRef": {"name": "plt"}}]
        for variable in container["env"]:
            reference = variable["valueFrom"]["secretKeyRef"]
            assert reference == {"name": "plt", "key": variable["name"]}
            used.add(variable["name"])
    assert used == made
    workers = [group for each in clusters() for group in each["workerGroupSpecs"]]
    for container in (each for group in workers for each in group["template"]["spec"]["containers"]):
        assert {each["name"] for each in container["env"]} == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


def test_variables_are_those_that_the_code_reads() -> None:
    packages = [path for name in ("orchestrator", "workers", "dashboard") for path in (ROOT / name).rglob("*.py")]
    read = set(re.findall(r"\"(PLT_[A-Z_]+)\"", "\n".join(path.read_text(encoding="utf-8") for path in packages)))
    named = {each for path in FILES for each in re.findall(r"\bPLT_[A-Z_]+\b", path.read_text(encoding="utf-8"))}
    assert named
    assert named <= read
    sources = {
        "MLFLOW_": [source_of("mlflow", "environment_variables.py"), source_of("mlflow", "server/auth/__init__.py")],
        "AWS_": [source_of("botocore", "configprovider.py"), source_of("botocore", "credentials.py")],
    }
    for prefix, texts in sources.items():
        for name in variables():
            if name.startswith(prefix) and name not in ("AWS_ENDPOINT_URL",):  # botocore makes that one up of parts
                assert re.search(rf"\b{name}\b", "\n".join(texts)), name


def source_of(package: str, path: str) -> str:
    """The text of a library's module, which is not imported: MLflow's server takes seconds."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / path).read_text(encoding="utf-8")


def variables() -> set[str]:
    """Every variable that a container is given."""
    services = compose("compose.yaml")["services"].values()
    found = {name for each in services for name in each.get("environment", {})}
    found |= {variable["name"] for spec in pods() for each in spec["containers"] for variable in each["env"]}
    return found | set(next(each for each in manifests() if each["kind"] == "ConfigMap")["data"])


def commands() -> Iterator[list[str]]:
    """Every command of ours, Ray's and MLflow's that is run, as words."""
    for service in compose("compose.yaml")["services"].values():
        if service["image"].startswith("plt-"):
            yield service["command"]
            check = service.get("healthcheck", {}).get("test", ["CMD", "none"])
            yield check[1:]
    for container in (each for spec in pods() for each in spec["containers"] if "command" in each):
        yield container["command"]
    yield shlex.split(next(each for each in manifests() if each["kind"] == "RayJob")["spec"]["entrypoint"])
    for text in ((DEPLOY / "slurm" / "study.sbatch").read_text(encoding="utf-8"), readme_commands()):
        for line in text.replace("\\\n", " ").splitlines():
            command = line.split("#")[0].split(" &")[0].split(" >")[0].strip()
            found = re.search(r"\b(plt [a-z]|ray (?:start|health-check) |mlflow server ).*", command)
            if found and not command.startswith("docker build"):
                yield shlex.split(found.group())


def readme_commands() -> str:
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    return "\n".join(line for line in readme.splitlines() if line.startswith("    "))


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")
def test_every_option_of_every_command_exists() -> None:
    from mlflow.cli import server
    from ray.scripts.scripts import healthcheck, start

    from orchestrator.main import cli

    checked = 0
    for words in commands():
        match words:
            case ["ray", "start", *rest]:
                command: click.Command = start
            case ["ray", "health-check", *rest]:
                command = healthcheck
            case ["mlflow", "server", *rest]:
                command = server
            case ["plt", name, *rest]:
                found = cli.get_command(click.Context(cli), name)
                assert found is not None, words
                command = found
            case _:
                continue
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        for word in (each.partition("=")[0] for each in rest if each.startswith("--")):
            assert word in known, words
            checked += 1
    assert checked > 20


def test_the_slurm_script_is_sound() -> None:
    script = DEPLOY / "slurm" / "study.sbatch"
    for check in (["bash", "-n"], [str(Path(sys.executable).with_name("shellcheck"))]):
        done = subprocess.run([*check, str(script)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    text = script.read_text(encoding="utf-8")
    assert text.index("set -euo pipefail") > text.rindex("\n#SBATCH")  # Slurm reads no further than the first command


def test_the_image_is_built_from_what_is_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in allowed
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = re.findall(r"'\.\[([\w,-]+)\]'", text)[0].split(",")
    assert set(extras) <= project["optional-dependencies"].keys()
    users = re.findall(r"^USER (\w+)$", text, re.MULTILINE)
    assert users[-1] != "root"
    assert not re.search(r"^(ARG|ENV).*(PASSWORD|SECRET|TOKEN)", text, re.MULTILINE)
    images = {each["image"] for each in compose("compose.yaml")["services"].values()}
    images |= {container["image"] for spec in pods() for container in spec["containers"]}
    assert f"plt-orchestrator:{project['version']}" in images
    assert len([image for image in images if image.startswith("plt-")]) == 1


def test_the_readme_names_every_file() -> None:
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    for path in FILES:
        assert path.name in readme or path.name == "README.md"
    for target in re.findall(r"\]\(([^)#:]+)\)", readme):
        assert (DEPLOY / target).exists(), target
