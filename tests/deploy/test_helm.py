"""The chart: what Kubernetes takes, commands that exist, wrong values that are refused."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml

from tests.deploy.commands import parse
from tests.deploy.tools import KUBERNETES, check, go_tool, kubernetes_schemas
from tools import release

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "helm" / "sarit"
CLUSTER = {
    "mode": "cluster",
    "cluster": {
        "zookeeper": "zookeeper://zk:2181/first",
        "log": "bookkeeper://zk:2181/ledgers",
        "storage": "s3://bucket/p",
    },
}
EVERYTHING = {
    "registry": True,
    "s3": {"existingSecret": "keys", "region": "eu-1", "endpoint": "http://s3:9000"},
    "metrics": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
    "image": {"digest": "sha256:" + "a" * 64, "pullSecrets": [{"name": "registry"}]},
    "security": {"existingSecret": "secured", "zookeeperAuth": True},
    "networkPolicy": {
        "clients": [{"namespaceSelector": {"matchLabels": {"team": "shop"}}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "monitoring": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
    },
    "config": {"log-level": "info", "store": {"weight": 2}},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "streams", "operator": "Exists"}],
    "serviceAccount": {"annotations": {"role": "streams"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "extraEnv": [{"name": "SARIT_SCRUB", "value": "4M"}],
    "priorityClassName": "high",
    "service": {"type": "LoadBalancer", "annotations": {"e": "f"}},
}
VALUES = {
    "standalone": {},
    "standalone-everything": EVERYTHING,
    "cluster": CLUSTER,
    "cluster-everything": CLUSTER | EVERYTHING,
}
CUSTOM = {"ServiceMonitor", "PrometheusRule"}  # of the Prometheus operator


def render(values: dict[str, object]) -> str:
    """The manifests; `go install` builds a helm that knows no version of Kubernetes."""
    command = [go_tool("helm"), "template", "shop", CHART, "--kube-version", KUBERNETES, "--namespace", "streams"]
    return check(*command, "--values", "-", stdin=yaml.safe_dump(values))


def objects(values: dict[str, object]) -> dict[tuple[str, str], dict]:
    """The manifests by kind and name."""
    found = [each for each in yaml.safe_load_all(render(values)) if each]
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(by_name) == len(found)
    return by_name


def pods(values: dict[str, object]) -> dict[str, dict]:
    """The pods' specifications by the name of what makes them."""
    makers = {name: each for (kind, name), each in objects(values).items() if kind in ("StatefulSet", "Job")}
    return {name: each["spec"]["template"]["spec"] for name, each in makers.items()}


pytestmark = pytest.mark.long  # Helm and kubeconform are built with Go


@pytest.mark.parametrize("name", VALUES)
def test_kubernetes_accepts_what_the_chart_makes(name) -> None:
    command = [go_tool("kubeconform"), "-strict", "-skip", ",".join(CUSTOM), "-schema-location", kubernetes_schemas()]
    check(*command, "-", stdin=render(VALUES[name]))


def test_the_schemas_refuse_a_field_that_is_not_there() -> None:
    wrong = render({}).replace("replicas: 1", "replicaz: 1")
    command = [go_tool("kubeconform"), "-strict", "-schema-location", kubernetes_schemas(), "-"]
    with pytest.raises(AssertionError, match="replicaz"):
        check(*command, stdin=wrong)


def test_the_linter_of_helm_finds_nothing() -> None:
    assert "[WARNING]" not in check(go_tool("helm"), "lint", "--strict", CHART)


@pytest.mark.parametrize("name", VALUES)
def test_commands_have_options_that_exist(name) -> None:
    for made_by, pod in pods(VALUES[name]).items():
        (container,) = pod["containers"]
        arguments = container["args"]
        if made_by.endswith("-init"):
            arguments = ["cluster", *arguments[1:]]
        # As Kubernetes does; what it does not know stays.
        for variable, value in {"$(POD_NAME)": f"{made_by}-0", "$(NODE_NAME)": "machine-1"}.items():
            arguments = [argument.replace(variable, value) for argument in arguments]
        assert "$(" not in "".join(arguments)
        parse(arguments, {"SARIT_CLUSTER": "zookeeper://zk:2181/first"})


@pytest.mark.parametrize("name", VALUES)
def test_each_pod_may_do_little(name) -> None:
    for pod in pods(VALUES[name]).values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", VALUES)
def test_each_part_stops_within_its_grace_period_and_is_probed(name) -> None:
    least = {"shop-sarit": 10, "shop-sarit-store": 60, "shop-sarit-controller": 5}
    for made_by, pod in pods(VALUES[name]).items():
        if made_by.endswith("-init"):
            continue
        assert pod["terminationGracePeriodSeconds"] > least[made_by]
        (container,) = pod["containers"]
        asked = {name: _asked(probe) for name, probe in container.items() if name.endswith("Probe")}
        assert asked == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}


def _asked(probe: dict) -> str:
    """With TLS the kubelet cannot ask by itself: the container does."""
    if "exec" in probe:
        command, name = probe["exec"]["command"]
        assert command == "sarit-probe"
        return f"/{name}"
    return probe["httpGet"]["path"]


@pytest.mark.parametrize("name", VALUES)
def test_files_that_variables_name_are_mounted(name) -> None:
    for made_by, pod in pods(VALUES[name]).items():
        (container,) = pod["containers"]
        mounted = tuple(mount["mountPath"] + "/" for mount in container["volumeMounts"])
        named = [each["value"] for each in container["env"] if each.get("value", "").startswith("/")]
        assert bool(named) == ("security" in VALUES[name]), made_by
        assert all(path.startswith(mounted) for path in named), (made_by, named)


def test_services_select_the_pods_and_their_ports() -> None:
    for values in VALUES.values():
        found = objects(values)
        sets = [each for (kind, _), each in found.items() if kind == "StatefulSet"]
        for (kind, name), service in found.items():
            if kind != "Service":
                continue
            selector = service["spec"]["selector"].items()
            chosen = [each for each in sets if selector <= each["spec"]["template"]["metadata"]["labels"].items()]
            assert len(chosen) == 1, name
            (container,) = chosen[0]["spec"]["template"]["spec"]["containers"]
            names = {port["name"] for port in container["ports"]}
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= names
            if service["spec"].get("clusterIP") != "None":
                wanted = {name, f"{name}.streams", f"{name}.streams.svc", f"{name}.streams.svc.cluster.local"}
                assert {f"--http-name={each}" for each in wanted} <= set(container["args"])
        for each in sets:
            assert ("Service", each["spec"]["serviceName"]) in found


@pytest.mark.parametrize("name", VALUES)
def test_pods_are_reached_by_each_other_by_clients_and_by_who_scrapes_alone(name) -> None:
    found = objects(VALUES[name])
    policy = found[("NetworkPolicy", "shop-sarit")]["spec"]
    selector = policy["podSelector"]["matchLabels"].items()
    makers = [each for (kind, _), each in found.items() if kind == "StatefulSet"]
    ports: set[str] = set()
    for each in makers:
        assert selector <= each["spec"]["template"]["metadata"]["labels"].items()
        (container,) = each["spec"]["template"]["spec"]["containers"]
        ports |= {port["name"] for port in container["ports"]}
    assert policy["policyTypes"] == ["Ingress"]
    ours, clients, *scrapers = policy["ingress"]
    assert ours == {"from": [{"podSelector": policy["podSelector"]}]}
    expected = {"grpc", "wire", "http"} | ({"registry"} if "registry" in VALUES[name] else set())
    assert {port["port"] for port in clients["ports"]} == ports == expected
    wanted = VALUES[name].get("networkPolicy", {"clients": [{"podSelector": {}}]})
    assert clients["from"] == wanted["clients"]
    assert [each["from"] for each in scrapers] == ([wanted["monitoring"]] if "monitoring" in wanted else [])
    assert all(each["ports"] == [{"port": "http", "protocol": "TCP"}] for each in scrapers)


def test_policy_of_the_network_can_be_left_out() -> None:
    assert not [kind for kind, _ in objects({"networkPolicy": {"enabled": False}}) if kind == "NetworkPolicy"]


def test_configuration_is_the_file_that_processes_read() -> None:
    config = objects(CLUSTER | EVERYTHING)[("ConfigMap", "shop-sarit")]
    assert tomllib.loads(config["data"]["sarit.toml"]) == EVERYTHING["config"]


def test_alert_rules_are_those_of_prometheus() -> None:
    rule = objects(EVERYTHING)[("PrometheusRule", "shop-sarit")]
    assert rule["spec"] == yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mode": "single"}, "mode"),
        ({"standalone": {"memry": "1G"}}, "memry"),
        ({"standalone": {"memory": "lots"}}, "memory"),
        ({"store": {"replicas": 0}}, "replicas"),
        ({"mode": "cluster"}, "mode cluster needs cluster.zookeeper"),
        ({"cluster": {"lease": 2}}, "lease"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"metrics": {"serviceMonitor": {"enabled": True}}}, "needs networkPolicy.monitoring"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(values, message) -> None:
    with pytest.raises(AssertionError, match=message):
        render(values)


def test_packed_chart_makes_what_the_folder_makes(tmp_path) -> None:
    release.package_chart(tmp_path, "0.0.0", "1700000000")
    (packed,) = tmp_path.iterdir()
    command = [go_tool("helm"), "template", "shop", packed, "--kube-version", KUBERNETES, "--namespace", "streams"]
    assert check(*command, "--values", "-", stdin=yaml.safe_dump(CLUSTER)) == render(CLUSTER)
