#!/usr/bin/env python3
"""Runs the chart deploy/helm/fdn through Helm, and holds what it renders against the API's schemas, the programs and deploy/kubernetes.

    scripts/deploy/helm.py check PROGRAMS [PLACE]    every set of values in the chart's folder ci; an install and an upgrade at an API server that is made up
    scripts/deploy/helm.py write [PLACE]             writes deploy/kubernetes anew, which is what ci/edge.yaml renders to

Helm and the schemas come from PyPI, once for each set of versions, into PLACE (target/helm).
"""

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
REQUIREMENTS = ROOT / "scripts/deploy/helm-requirements.txt"
CHART = ROOT / "deploy/helm/fdn"
PLAIN = ROOT / "deploy/kubernetes"
DOCS = ROOT / "docs/operations/kubernetes.md"
# The files of deploy/kubernetes, and the templates that each is rendered from.
WRITTEN = {"rbac.yaml": "agents/rbac.yaml", "network.yaml": "agents/network.yaml", "edge-agent.yaml": "agents/edge-agent.yaml"}
HEAD = """# Made from the chart deploy/helm/fdn with its values ci/edge.yaml by scripts/deploy/helm.py write; change those. `make test` compares.
#
#   kubectl create namespace fdn
#   kubectl apply -f rbac.yaml -f network.yaml -f edge-agent.yaml
"""


def enter(arguments):
    """Goes on in a Python that has what is needed."""
    place = Path(arguments.pop() if len(arguments) > (2 if arguments[0] == "check" else 1) else ROOT / "target/helm").resolve()
    python = place / "venv/bin/python"
    if Path(sys.prefix) != place / "venv":
        subprocess.run([ROOT / "scripts/venv.sh", place / "venv", REQUIREMENTS, "python", "-c", "import jsonschema, kubernetes_validate, yaml"], check=True)
        os.execv(python, [python, __file__, *arguments, str(place)])
    return place


# --- Helm


class Helm:
    def __init__(self, place):
        self.program = place / "venv/bin/helm"
        self.home = tempfile.TemporaryDirectory(prefix="fdn-helm-")
        self.environment = {"HOME": self.home.name, "PATH": "/usr/bin:/bin", "HELM_NAMESPACE": "fdn"}

    def run(self, *arguments):
        """Exit code, standard output, and the lines of standard error but those that tell of the chart's link to the rules."""
        argv = [str(word) for word in (self.program, *arguments)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=self.environment)
        said = [line for line in done.stderr.splitlines() if "found symbolic link" not in line]
        return done.returncode, done.stdout, "\n".join(said)

    def render(self, values, *more):
        code, text, said = self.run("template", "fdn", CHART, "--values", values, *more)
        if code:
            raise SystemExit(f"error: helm template with {values.name}: {said}")
        return text


def value_sets():
    return sorted((CHART / "ci").glob("*.yaml"))


def write(helm):
    for name, text in plain(helm).items():
        (PLAIN / name).write_text(text)
        print(f"wrote {(PLAIN / name).relative_to(ROOT)}")


def plain(helm):
    """The files of deploy/kubernetes as the chart renders them, without what Helm alone needs."""
    texts = {}
    for name, template in WRITTEN.items():
        text = helm.render(CHART / "ci/edge.yaml", "--show-only", f"templates/{template}")
        text = re.sub(r"^# Source: .*\n", "", text, flags=re.M)
        text = re.sub(r"^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n", "", text, flags=re.M)
        texts[name] = HEAD + re.sub(r"[ \t]+$", "", text, flags=re.M).strip().removeprefix("---\n") + "\n"
    return texts


# --- the chart itself


def chart(helm):
    """What is wrong with the chart before anything is rendered."""
    import yaml

    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    if (about["version"], about["appVersion"]) != (version, version):
        yield f"Chart.yaml is of {about['version']} and {about['appVersion']}, the programs are of {version}"
    text = (CHART / "values.yaml").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    in_values, in_schema = set(paths(yaml.safe_load(text))), set(schema_paths(schema, schema))
    # Filled by whoever installs: their keys are no values of the chart.
    if in_values ^ in_schema - {"global"}:
        yield f"values.yaml and its schema differ in {sorted(in_values ^ (in_schema - {'global'}))}"
    lines = text.splitlines()
    for number, line in enumerate(lines):
        # Tables need no comment of their own: what is in them has one.
        if re.match(r" *[A-Za-z]\w*: *\S", line) and not lines[number - 1].lstrip().startswith("#"):
            yield f"values.yaml:{number + 1} says not what it is: {line.strip()}"
    for values in [None, *value_sets()]:
        code, said, more = helm.run("lint", "--strict", CHART, *(["--values", values] if values else []))
        if code or "[WARNING]" in said + more:
            yield f"helm lint --strict with {values.name if values else 'no values'}: {said}\n{more}"


FREE = re.compile(r"(settings|resources|nodeSelector|affinity|location|annotations|podAnnotations|labels|tlsConfig|digests|blocked\.\w+)$")


def paths(values, at=""):
    for key, value in values.items():
        path = f"{at}{key}"
        if isinstance(value, dict) and not FREE.search(path):
            yield from paths(value, f"{path}.")
        else:
            yield path


def schema_paths(schema, node, at=""):
    for key, value in node["properties"].items():
        path = f"{at}{key}"
        while "$ref" in value:
            value = schema["definitions"][value["$ref"].rsplit("/", 1)[1]]
        if "properties" in value and not FREE.search(path):
            if value.get("additionalProperties") is not False:
                yield f"{path} takes unknown values"
            yield from schema_paths(schema, value, f"{path}.")
        else:
            yield path


# What is refused, and what is said then.
REFUSED = [
    ("edge", ["agents.replica=2"], "agents: Additional property replica is not allowed"),
    ("edge", ["agent.enabled=true"], "(root): Additional property agent is not allowed"),
    ("edge", ["agents.hostNetwork=maybe"], "agents.hostNetwork: Invalid type. Expected: boolean, given: string"),
    ("edge", ["agents.ports.gateway=70000"], "agents.ports.gateway: Must be less than or equal to 65535"),
    ("edge", ["agents.capacity.memory=lots"], "agents.capacity.memory: Does not match pattern"),
    ("edge", ["user=0"], "user: Must be greater than or equal to 1"),
    ("edge", ["agents.cluster="], "agents.cluster is needed"),
    ("edge", ["agents.peers.seeds=null"], "agents.peers.seeds is needed"),
    ("edge", ["centre.url="], "centre.url is needed"),
    ("edge", ["centre.url=http://controller.example.org"], "which is not encrypted"),
    ("edge", ["centre.controllers=null"], "centre.controllers is needed"),
    ("edge", ["agents.enabled=false"], "nothing is to run here"),
    ("edge", ["agents.location.lat=91", "agents.location.lon=0"], "agents.location.lat: Must be less than or equal to 90"),
    ("dns", ["dns.servers=null"], "dns.servers is needed"),
    ("dns", ["monitoring.serviceMonitors.enabled=true"], "dns.adminAddress is needed"),
    ("dns", ["networkPolicies.clients[0].ip=192.0.2.1"], "networkPolicies.clients.0: Additional property ip is not allowed"),
    ("centre", ["controllers.zone="], "controllers.zone is needed"),
    ("centre", ["controllers.replicas=2"], "controllers.artifacts.volume.accessModes=[ReadWriteMany]"),
    ("centre", ["controllers.edge.type=LoadBalancer"], "controllers.edge.advertise is needed"),
    ("centre", ["controllers.artifacts.store=s3"], "controllers.artifacts.s3.bucket is needed"),
    ("centre", ["controllers.artifacts.store=disk"], "controllers.artifacts.store: controllers.artifacts.store must be one of the following"),
    ("centre", ["controllers.ingress.enabled=true"], "controllers.ingress.host is needed"),
    ("centre", ["image.digests.fdn-dns=sha256:12"], "image.digests.fdn-dns: Does not match pattern"),
]


def refusals(helm):
    def one(case):
        values, changes, expected = case
        sets = [word for change in changes for word in ("--set", change)]
        code, _, said = helm.run("template", "fdn", CHART, "--values", CHART / f"ci/{values}.yaml", *sets)
        return None if code and expected in said else f"{values} with {changes}: expected to be refused with `{expected}`: {code}, {said}"

    with ThreadPoolExecutor(4) as pool:
        yield from filter(None, pool.map(one, REFUSED))


# --- schemas

# Of the Prometheus operator's resources, what the chart uses.
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
RULE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["expr"],
    "oneOf": [{"required": ["alert"]}, {"required": ["record"]}],
    "properties": {
        "alert": {"type": "string"},
        "record": {"type": "string"},
        "expr": {"type": "string"},
        "for": {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"},
        "labels": TEXTS,
        "annotations": TEXTS,
    },
}
ENDPOINT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["port"],
    "properties": {
        "port": {"type": "string"},
        "path": {"type": "string", "pattern": "^/"},
        "interval": {"type": "string"},
        "scheme": {"enum": ["http", "https"]},
        "tlsConfig": {"type": "object"},
        "relabelings": {
            "type": "array",
            "items": {"type": "object", "additionalProperties": False, "properties": {"targetLabel": {"type": "string"}, "replacement": {"type": "string"}}},
        },
    },
}
OPERATOR = {
    "ServiceMonitor": {
        "type": "object",
        "additionalProperties": False,
        "required": ["selector", "endpoints"],
        "properties": {"selector": {"type": "object", "properties": {"matchLabels": TEXTS}}, "endpoints": {"type": "array", "items": ENDPOINT}},
    },
    "PrometheusRule": {
        "type": "object",
        "additionalProperties": False,
        "required": ["groups"],
        "properties": {
            "groups": {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["name", "rules"],
                    "properties": {"name": {"type": "string"}, "interval": {"type": "string"}, "rules": {"type": "array", "items": RULE}},
                },
            }
        },
    },
}


def versions():
    """The oldest Kubernetes that the chart takes, and the newest whose schemas are there."""
    import kubernetes_validate
    import yaml

    oldest = re.fullmatch(r">=(\d+\.\d+)\.0-0", yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"]).group(1)
    newest = ".".join(kubernetes_validate.latest_version().split(".")[:2])
    return oldest, newest


def schemas(objects, version):
    """Strictly: a field that is not known is an error."""
    import jsonschema
    import kubernetes_validate
    from manifests import named

    for one in objects:
        try:
            if one["apiVersion"] == "monitoring.coreos.com/v1":
                jsonschema.validate(one["spec"], OPERATOR[one["kind"]])
            else:
                kubernetes_validate.validate(one, version, strict=True)
        except (jsonschema.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
            yield f"{named(one)} is nothing for Kubernetes {version}: {getattr(error, 'json_path', '')} {error.message[:300]}"


# --- the programs

# What Secrets hold that nobody renders.
ADDRESSES = {"FDN_DATABASE__URL": "postgres://fdn@postgres.example.org/fdn", "FDN_BROKER__URL": "amqps://fdn@rabbitmq.example.org:5671/%2f"}
# What each pod must find of itself in its settings, by component.
FOUND = {
    "controller": {"edge.name": "{pod}", "database.url": ADDRESSES["FDN_DATABASE__URL"], "broker.url": ADDRESSES["FDN_BROKER__URL"]},
    "dns": {"server": "{pod}"},
    "edge-agent": {"node": "worker-1", "kubernetes.node": "worker-1", "gateway.advertise": "192.0.2.7:{gateway}", "admin.advertise": "192.0.2.7:8081"},
}


def programs(objects, folder):
    """Settings are accepted by the programs with the variables of their containers; every command is one that they know."""
    from manifests import environment, expanded, named, pods, settings_of

    with tempfile.TemporaryDirectory(prefix="fdn-chart-") as place:
        for pod in pods(objects):
            for container in pod.containers:
                title = f"{named(pod.owner)}, {container['name']}"
                values = environment(pod, container, ADDRESSES)
                program, *arguments = [expanded(word, values) for word in container["command"]]
                if program == "chown":
                    continue
                own = settings_of(objects, pod, container)
                if own:
                    (Path(place) / own[0]).write_text(own[1])
                    arguments = [word.replace(f"/etc/fdn/config/{own[0]}", f"{place}/{own[0]}") for word in arguments]

                # Whoever is asked for help has read the words before it.
                code, _, wrong = ran(folder / program, *arguments, "--help", **values)
                if code:
                    yield f"{title}: {program} does not know its command: {wrong}"
                elif own and container in pod.spec["containers"]:
                    code, said, wrong = ran(folder / program, *arguments, "--print-config", **values)
                    yield from [f"{title}: {program} refuses its settings: {wrong}"] if code else told(title, pod, own[1], tomllib.loads(said))


def ran(program, *arguments, **variables):
    """How a program ended, with these variables and no others, and what it said."""
    try:
        done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", **variables})
    except OSError as error:
        return 1, "", str(error)
    return done.returncode, done.stdout, done.stderr.strip()


def told(title, pod, text, printed):
    """Whether the settings that count are those of the file, but what the container says of itself."""
    ports = {name: number for (name, _), number in pod.ports().items()}
    expected = {key: value.format(pod=pod.name(), **ports) for key, value in FOUND[pod.component].items()}
    for key, value in expected.items():
        if at(printed, key) != value:
            yield f"{title}: {key} is {at(printed, key)}, not {value}"
    for key, value in leaves(tomllib.loads(text)):
        # Durations and sizes are printed in a form of their own.
        if key not in expected and not isinstance(value, (dict, list)) and not re.fullmatch(r"\d+\w+", str(value)) and at(printed, key) != value:
            yield f"{title}: {key} is {at(printed, key)}, the ConfigMap says {value}"


def leaves(table, before=""):
    for key, value in table.items():
        yield from leaves(value, f"{before}{key}.") if isinstance(value, dict) else [(f"{before}{key}", value)]


def at(table, path):
    for key in path.split("."):
        table = table.get(key, {}) if isinstance(table, dict) else None
    return table


# --- Secrets that are not the chart's


def external(values):
    """Keys of each Secret that whoever installs makes, by name; and the values that name them, which the documentation must tell of."""
    certificate = {"tls.crt", "tls.key"}
    keys, dns, agents = values["controllers"], values["dns"], values["agents"]
    s3 = keys["artifacts"]["s3"]
    known = {
        "controllers.database.secret": (keys["database"]["secret"], {keys["database"]["urlKey"], keys["database"]["passwordKey"]}),
        "controllers.broker.secret": (keys["broker"]["secret"], {keys["broker"]["urlKey"], keys["broker"]["passwordKey"]}),
        "controllers.keys.existingSecret": (keys["keys"]["existingSecret"], {"network.token", "network.key", "master.key", "admin.password"}),
        "controllers.artifacts.s3.secret": (s3["secret"], {s3["accessKey"], s3["secretKey"]}),
        "controllers.tls.secret": (keys["tls"]["secret"], certificate),
        "dns.join.secret": (dns["join"]["secret"], {dns["join"]["key"]}),
        "dns.encrypted.secret": (dns["encrypted"]["secret"], certificate),
        "dns.dnssec.secret": (dns["dnssec"]["secret"], {"dnssec.keys", "master.key"}),
        "agents.join.secret": (agents["join"]["secret"], {agents["join"]["key"]}),
        "agents.gateway.tlsSecret": (agents["gateway"]["tlsSecret"], certificate),
        **{"imagePullSecrets": (name, set()) for name in values["imagePullSecrets"]},
    }
    return {name: all_keys for name, all_keys in known.values() if name}, set(known)


def merged(base, over):
    both = {key: merged(value, over[key]) if isinstance(value, dict) and isinstance(over.get(key), dict) else over.get(key, value) for key, value in base.items()}
    return both | {key: value for key, value in over.items() if key not in base}


# --- who reaches whom in ci/everything.yaml

LABELS = {"app.kubernetes.io/name": "fdn", "app.kubernetes.io/instance": "fdn"}
ENDS = {
    **{part: ("fdn", {**LABELS, "app.kubernetes.io/component": part}, f"10.244.0.{at}") for at, part in enumerate(("controller", "dns", "edge-agent", "test"), 1)},
    **{f"a function with {word}": ("fdn-functions", {"net.fdn.outbound": word}, f"10.244.1.{number}") for number, word in enumerate(("denied", "open"), 1)},
    "prometheus": ("monitoring", {}, "10.244.2.1"),
    "postgres": ("postgres", {}, "10.244.2.2"),
    "rabbitmq": ("rabbitmq", {}, "10.244.2.3"),
    "the cluster's DNS": ("kube-system", {}, "10.244.2.4"),
    "a strange pod": ("default", {}, "10.244.2.5"),
    "a client": (None, {}, "203.0.113.9"),
    "a node elsewhere": (None, {}, "192.0.2.9"),
    "an operator": (None, {}, "10.20.0.9"),
    "a controller elsewhere": (None, {}, "10.30.0.9"),
    "a service of the web": (None, {}, "198.51.100.9"),
    "a secondary": (None, {}, "198.51.100.53"),
    "the cloud's credentials": (None, {}, "169.254.169.254"),
}
# From, to, ports; a port of UDP has its protocol.
OPEN = [
    ("an operator", "controller", [8600]),
    ("a node elsewhere", "controller", [8601]),
    ("dns", "controller", [8600, 8601]),
    ("edge-agent", "controller", [8600, 8601]),
    ("test", "controller", [8600]),
    ("prometheus", "controller", [8600]),
    ("prometheus", "dns", [8602]),
    ("prometheus", "edge-agent", [8081]),
    ("controller", "postgres", [5432]),
    ("controller", "rabbitmq", [5672]),
    ("controller", "a service of the web", [443]),
    ("controller", "edge-agent", [8444]),
    ("controller", "a node elsewhere", [8444]),
    ("a controller elsewhere", "edge-agent", [8444]),
    ("a client", "dns", ["53 UDP", 53, 8853, 8443]),
    ("a client", "edge-agent", [80, 443]),
    ("a node elsewhere", "edge-agent", [8444]),
    ("dns", "edge-agent", [80, 8081]),
    ("dns", "a node elsewhere", [80, 8081]),
    ("dns", "a secondary", ["53 UDP"]),
    ("edge-agent", "a node elsewhere", [8444]),
    ("edge-agent", "a client", [443]),
    ("edge-agent", "a function with denied", [8080]),
    ("edge-agent", "a function with open", [8080]),
    ("a function with open", "a client", [443]),
    *((part, "the cluster's DNS", ["53 UDP", 53]) for part in ("controller", "dns", "edge-agent", "test")),
]
SHUT = [
    ("a client", "controller", [8600, 8601]),
    ("a client", "dns", [8602]),
    ("a client", "edge-agent", [8081, 8444]),
    ("a node elsewhere", "controller", [8600]),
    ("an operator", "controller", [8601]),
    ("prometheus", "controller", [8601]),
    ("prometheus", "edge-agent", [8444]),
    ("controller", "edge-agent", [80, 8081]),
    ("dns", "edge-agent", [8444]),
    *(("a strange pod", part, [80, 443, 8081, 8600, 8601, 8602] if part != "edge-agent" else [8081, 8444]) for part in ("controller", "dns", "edge-agent", "test")),
    ("controller", "dns", [53, 8602]),
    ("controller", "a client", [443]),
    ("controller", "postgres", [5672]),
    ("controller", "the cloud's credentials", [80, 443]),
    ("dns", "postgres", [5432]),
    ("dns", "a client", [443]),
    ("edge-agent", "the cloud's credentials", [80]),
    ("test", "postgres", [5432]),
    ("test", "a client", [443]),
    *(("a function with denied", end, [53, 80, 443, 8600]) for end in ENDS if end != "a function with denied"),
    ("a function with open", "the cloud's credentials", [80]),
    ("a function with open", "controller", [8600, 8601]),
    *((end, f"a function with {word}", [8080]) for end in ENDS for word in ("denied", "open") if end not in ("edge-agent", f"a function with {word}")),
]


def ways(objects):
    from manifests import Ways

    found = Ways(objects)
    for cases, wanted in ((OPEN, True), (SHUT, False)):
        for source, target, ports in cases:
            for port in ports:
                number, _, protocol = str(port).partition(" ")
                if found.open(ENDS[source], ENDS[target], int(number), protocol or "TCP") != wanted:
                    yield f"from {source} to {target} at {port}: {'shut' if wanted else 'open'}"


# --- an install and an upgrade


# What is given besides, and what changes then.
UPGRADES = [
    ([], []),
    (["--set", "controllers.settings.workers=4"], ["configmaps/fdn-controller", "statefulsets/fdn-controller"]),
    # Machines read the authorities when they start; controllers do not need them.
    (
        ["--set", "centre.ca=-----BEGIN CERTIFICATE-----"],
        ["configmaps/fdn-controller", "configmaps/fdn-dns", "configmaps/fdn-edge-agent", "daemonsets/fdn-edge-agent", "statefulsets/fdn-dns"],
    ),
]


def upgrades(helm, objects):
    """Keys are made once: an upgrade with the same values changes nothing at the API server, and one with others changes no key."""
    from apiserver import ApiServer
    from manifests import CLUSTER_WIDE, named

    api = ApiServer({(one["apiVersion"], one["kind"], one["kind"] not in CLUSTER_WIDE) for one in objects})
    try:
        where = ["--kube-apiserver", api.url, "--kube-token", "nobody", "--disable-openapi-validation", "--values", CHART / "ci/everything.yaml"]
        code, _, said = helm.run("install", "fdn", CHART, *where)
        if code:
            yield f"helm install: {said}"
            return
        path = "/api/v1/namespaces/fdn/secrets/fdn-keys"
        made = api.objects[path]["data"]
        lengths = {name: len(base64.b64decode(value)) for name, value in made.items()}
        if lengths != {"network.token": 64, "network.key": 64, "master.key": 64, "admin.password": 24} or len(set(made.values())) != 4:
            yield f"keys are not as the programs want them: {lengths}"
        there = {(one["kind"], one["metadata"]["name"]) for one in api.objects.values()}
        missing = [named(one) for one in objects if one["kind"] != "Pod" and (one["kind"], one["metadata"]["name"]) not in there]
        if missing:
            yield f"not installed: {missing}"
        for more, changed in UPGRADES:
            api.changes.clear()
            code, _, said = helm.run("upgrade", "fdn", CHART, *where, *more)
            if code:
                yield f"helm upgrade {more}: {said}"
            # Helm's own record of the release is not the chart's.
            changes = [change for change in api.changes if "/sh.helm.release." not in change[1]]
            if sorted(path.split("/namespaces/fdn/")[1] for _, path in changes) != changed:
                yield f"an upgrade with {more or 'the same values'} changes {changes}"
    finally:
        api.stop()


# --- all of it


def check(helm, folder):
    wrong = [*chart(helm)]
    if not wrong:
        wrong = [*refusals(helm), *rendered(helm, folder)]
    for reason in wrong:
        print(f"error: {reason}")
    if not wrong:
        oldest, newest = versions()
        counts = f"{len(REFUSED)} wrong ones refused; {len(OPEN) + len(SHUT)} ways as they should be"
        print(f"{len(value_sets())} sets of values for Kubernetes {oldest} and {newest}; {counts}")
    return 1 if wrong else 0


def rendered(helm, folder):
    """What is wrong with what the chart renders."""
    import manifests
    import yaml

    wrong, made = [], plain(helm)
    wrong += [f"deploy/kubernetes/{name} is not what the chart renders: scripts/deploy/helm.py write" for name in made if (PLAIN / name).read_text() != made[name]]
    wrong += [f"deploy/kubernetes/{path.name} is not made from the chart" for path in PLAIN.iterdir() if path.name not in made]
    rules = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())
    jobs = {one["job_name"] for one in yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]}
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    known_rights = manifests.read((PLAIN / "rbac.yaml").read_text())
    everything = []
    for values in value_sets():
        given = merged(defaults, yaml.safe_load(values.read_text()))
        secrets, told_of = external(given)
        found = []
        for version in versions():
            objects = manifests.read(helm.render(values, "--kube-version", version))
            found += schemas(objects, version)
        for checks in (
            manifests.names(objects),
            manifests.identities(objects),
            manifests.services(objects),
            manifests.references(objects, secrets),
            manifests.rights(objects),
            manifests.probes(objects),
            manifests.roles(objects, known_rights),
            manifests.monitoring(objects, rules, jobs),
            manifests.policies(objects, given["agents"]["kubernetes"]["namespace"]),
            manifests.unheld(objects),
            programs(objects, folder),
        ):
            found += checks
        wrong += [f"{values.name}: {one}" for one in found]
        print(f"{values.name}: {len(objects)} objects, {len(manifests.pods(objects))} kinds of pods")
        if values.name == "everything.yaml":
            everything = objects
    documented = DOCS.read_text()
    wrong += [f"docs/operations/kubernetes.md does not tell of {name}" for name in sorted(told_of) if f"`{name}`" not in documented]
    wrong += ways(everything)
    wrong += upgrades(helm, everything)
    return wrong


def main():
    arguments = sys.argv[1:]
    if not arguments or arguments[0] not in ("check", "write") or len(arguments) not in ((2, 3) if arguments[0] == "check" else (1, 2)):
        print(__doc__)
        return 2
    helm = Helm(enter(arguments))
    if arguments[0] == "write":
        return write(helm)
    return check(helm, Path(arguments[1]).resolve())


if __name__ == "__main__":
    sys.exit(main())
