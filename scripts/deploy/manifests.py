"""What must hold of the objects that the chart renders, beyond the API's schemas. Every function yields what is wrong, in words."""

import re

import yaml

# Kinds with pods, and where the pod stands in each.
WORKLOADS = {"StatefulSet", "DaemonSet", "Deployment"}
# Kinds without a namespace.
CLUSTER_WIDE = {"Namespace"}
# The one container that is root, and all that it may do.
ROOT = ("own-the-data", ["CHOWN"])
# What fields of a pod are on the node that is made up here.
FIELDS = {"spec.nodeName": "worker-1", "status.hostIP": "192.0.2.7", "status.podIP": "10.0.0.7"}


class Pod:
    """A pod, or the template of some."""

    def __init__(self, owner, namespace, metadata, spec):
        self.owner, self.namespace, self.spec = owner, namespace, spec
        self.labels = metadata.get("labels", {})
        self.component = self.labels.get("app.kubernetes.io/component")
        self.containers = spec.get("initContainers", []) + spec["containers"]
        self.on_host = spec.get("hostNetwork", False)

    def ports(self):
        """Number by (name, protocol) of what the pod listens on."""
        all_ports = [port for one in self.containers for port in one.get("ports", [])]
        return {(port["name"], port.get("protocol", "TCP")): port["containerPort"] for port in all_ports}

    def name(self):
        """Of the first pod of a set."""
        return self.owner["metadata"]["name"] + ("-0" if self.owner["kind"] == "StatefulSet" else "")


def named(one):
    return f"{one['kind']} {one['metadata']['name']}"


def of(objects, *kinds):
    return [one for one in objects if one["kind"] in kinds]


def pods(objects):
    templates = [
        Pod(one, one["metadata"]["namespace"], one["spec"]["template"]["metadata"], one["spec"]["template"]["spec"]) for one in of(objects, *WORKLOADS)
    ]
    return templates + [Pod(one, one["metadata"]["namespace"], one["metadata"], one["spec"]) for one in of(objects, "Pod")]


def has(labels, wanted):
    return all(labels.get(key) == value for key, value in wanted.items())


def selected(all_pods, namespace, labels):
    return [pod for pod in all_pods if pod.namespace == namespace and has(pod.labels, labels)]


# --- names


def names(objects):
    seen = set()
    for one in objects:
        metadata = one["metadata"]
        if (one["kind"] in CLUSTER_WIDE) == ("namespace" in metadata):
            yield f"{named(one)}: its namespace is missing, or it has none to name"
        key = (one["kind"], metadata.get("namespace"), metadata["name"])
        if key in seen:
            yield f"{named(one)} is there twice"
        seen.add(key)
    for one in of(objects, *WORKLOADS):
        wanted = one["spec"]["selector"]["matchLabels"]
        found = selected(pods(objects), one["metadata"]["namespace"], wanted)
        if [pod.owner["metadata"]["name"] for pod in found] != [one["metadata"]["name"]]:
            yield f"{named(one)} selects {len(found)} kinds of pods, not its own alone"
        if one["kind"] == "StatefulSet" and not any(has(service["metadata"], {"name": one["spec"]["serviceName"]}) for service in of(objects, "Service")):
            yield f"{named(one)}: there is no Service {one['spec']['serviceName']}"


def identities(objects):
    """What joins under a name runs under it."""
    for pod in pods(objects):
        said = [tuple(sorted(word for word in one["command"] if re.match("--(node|server)=", word))) for one in pod.containers if one["name"] != ROOT[0]]
        if len(set(said)) != 1:
            yield f"{named(pod.owner)} joins under another name than it runs under: {said}"


def services(objects):
    for one in of(objects, "Service"):
        found = selected(pods(objects), one["metadata"]["namespace"], one["spec"]["selector"])
        if len(found) != 1:
            yield f"{named(one)} selects {len(found)} kinds of pods"
            continue
        for port in one["spec"]["ports"]:
            if (port["targetPort"], port.get("protocol", "TCP")) not in found[0].ports():
                yield f"{named(one)}: nothing listens on {port['targetPort']} in {named(found[0].owner)}"
    for one in of(objects, "Ingress"):
        for path in [path for rule in one["spec"]["rules"] for path in rule["http"]["paths"]]:
            backend = path["backend"]["service"]
            ports = [port["name"] for service in of(objects, "Service") if service["metadata"]["name"] == backend["name"] for port in service["spec"]["ports"]]
            if backend["port"]["name"] not in ports:
                yield f"{named(one)} leads to no port of a Service: {backend}"
    for one in of(objects, "PodDisruptionBudget"):
        found = selected(pods(objects), one["metadata"]["namespace"], one["spec"]["selector"]["matchLabels"])
        if len(found) != 1 or found[0].owner["spec"]["replicas"] < 2:
            yield f"{named(one)} selects no set of several pods"


# --- what pods refer to


def sources(objects, pod, external):
    """Files of each volume of a pod by name, None where anything may be written; complaints."""
    wrong, found = [], {}
    secrets = {one["metadata"]["name"]: set(one["data"]) for one in of(objects, "Secret")}
    maps = {one["metadata"]["name"]: set(one["data"]) for one in of(objects, "ConfigMap")}
    claims = {one["metadata"]["name"] for one in of(objects, "PersistentVolumeClaim")}
    for volume in pod.spec.get("volumes", []):
        files = None
        if "secret" in volume:
            name = volume["secret"]["secretName"]
            keys = secrets.get(name, external.get(name))
            items = volume["secret"].get("items", [])
            if keys is None or not {item["key"] for item in items} <= keys:
                wrong.append(f"{named(pod.owner)}: Secret {name} with {[item['key'] for item in items]} is neither rendered nor documented")
            files = {item["path"] for item in items}
        elif "configMap" in volume:
            files = maps.get(volume["configMap"]["name"])
            if files is None:
                wrong.append(f"{named(pod.owner)}: there is no ConfigMap {volume['configMap']['name']}")
        elif "persistentVolumeClaim" in volume and volume["persistentVolumeClaim"]["claimName"] not in claims:
            wrong.append(f"{named(pod.owner)}: there is no claim {volume['persistentVolumeClaim']['claimName']}")
        found[volume["name"]] = files
    for claim in pod.owner["spec"].get("volumeClaimTemplates", []):
        found[claim["metadata"]["name"]] = None
    return found, wrong


def references(objects, external):
    accounts = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in of(objects, "ServiceAccount")}
    for pod in pods(objects):
        owner = named(pod.owner)
        account = pod.spec.get("serviceAccountName")
        if account and (pod.namespace, account) not in accounts:
            yield f"{owner}: there is no ServiceAccount {account}"
        volumes, wrong = sources(objects, pod, external)
        yield from wrong
        mounted = {mount["name"] for one in pod.containers for mount in one.get("volumeMounts", [])}
        if mounted != set(volumes):
            yield f"{owner}: volumes and mounts are not the same: {mounted ^ set(volumes)}"
        for variable in [variable for one in pod.containers for variable in one.get("env", [])]:
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            if reference and reference["key"] not in external.get(reference["name"], ()):
                yield f"{owner}: {variable['name']} comes from what is not documented: {reference}"
        for secret in pod.spec.get("imagePullSecrets", []):
            if secret["name"] not in external:
                yield f"{owner}: nobody documents the Secret {secret['name']}"
        for container in pod.containers:
            yield from files(objects, pod, container, volumes)


def files(objects, pod, container, volumes):
    """Every file that the command or the settings name is mounted; every folder of state can be written."""
    mounts = {mount["mountPath"]: mount for mount in container.get("volumeMounts", [])}
    texts = list(container["command"])
    own = settings_of(objects, pod, container)
    # What joins reads of its settings who it is, and opens nothing that they name.
    if own and container in pod.spec["containers"]:
        texts.append(own[1])
    for path in set(re.findall(r"/(?:etc|var/lib)/fdn[A-Za-z0-9_./-]*", "\n".join(texts))):
        at = max((place for place in mounts if path == place or path.startswith(f"{place}/")), key=len, default=None)
        if at is None:
            yield f"{named(pod.owner)}, {container['name']}: nothing is mounted where {path} lies"
            continue
        known = volumes.get(mounts[at]["name"])
        if known is not None and path[len(at) + 1 :] not in known:
            yield f"{named(pod.owner)}, {container['name']}: {path} is not among {sorted(known)}"
        if path.startswith("/var/") and mounts[at].get("readOnly"):
            yield f"{named(pod.owner)}, {container['name']}: {path} cannot be written"


# --- rights


def rights(objects):
    for pod in pods(objects):
        owner, spec = named(pod.owner), pod.spec
        whole = spec["securityContext"]
        if not (whole.get("runAsNonRoot") and whole.get("runAsUser", 0) > 0 and whole.get("runAsGroup", 0) > 0):
            yield f"{owner} may be root"
        if whole.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{owner} has not the engine's filter of system calls"
        if {one["name"] for one in whole.get("sysctls", [])} - {"net.ipv4.ip_unprivileged_port_start"} or (pod.on_host and whole.get("sysctls")):
            yield f"{owner} sets what Kubernetes does not let it"
        if any(spec.get(key) for key in ("hostPID", "hostIPC", "shareProcessNamespace")) or spec.get("enableServiceLinks") is not False:
            yield f"{owner} sees more of its node or namespace than it needs"
        if spec.get("automountServiceAccountToken") is not (pod.component == "edge-agent"):
            yield f"{owner}: agents alone speak with the API server"
        for one in pod.containers:
            yield from (f"{owner}, {one['name']}: {what}" for what in container_rights(one))


def container_rights(one):
    own = one.get("securityContext", {})
    if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
        yield "may get more rights than it has"
    if own.get("readOnlyRootFilesystem") is not True:
        yield "may write to its image"
    capabilities = own.get("capabilities", {})
    root = own.get("runAsNonRoot") is False or own.get("runAsUser") == 0
    allowed = (root, capabilities.get("add", [])) in [(False, []), (one["name"] == ROOT[0], ROOT[1])]
    if capabilities.get("drop") != ["ALL"] or not allowed:
        yield f"has capabilities or is root: {own}"
    resources = one.get("resources", {})
    if not {"cpu", "memory"} <= set(resources.get("requests", {})) or "memory" not in resources.get("limits", {}):
        yield "says not what it needs"
    if not re.fullmatch(r"[^:@]+(:[^:@/]+|@sha256:[0-9a-f]{64})", one["image"]):
        yield f"has an image that no version names: {one['image']}"


def probes(objects):
    for pod in pods(objects):
        for one in pod.spec["containers"] if pod.owner["kind"] != "Pod" else []:
            for kind in ("livenessProbe", "readinessProbe"):
                if one.get(kind, {}).get("httpGet", {}).get("port") not in {name for name, _ in pod.ports()}:
                    yield f"{named(pod.owner)}, {one['name']}: its {kind} asks at no port of it"


def roles(objects, known):
    """Rights in Kubernetes are those that the agents' code is tested with, and nobody else has any."""
    found = of(objects, "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    agents = bool(of(objects, "DaemonSet"))
    kinds = sorted(one["kind"] for one in found)
    if kinds != (["Role", "RoleBinding"] if agents else []):
        yield f"rights in Kubernetes: {kinds}"
    for one in of(found, "Role"):
        if [one["rules"]] != [other["rules"] for other in of(known, "Role")]:
            yield f"{named(one)} has not the rights of deploy/kubernetes/rbac.yaml"
    for one in of(found, "RoleBinding"):
        role, (subject,) = of(found, "Role")[0], one["subjects"]
        if one["roleRef"]["name"] != role["metadata"]["name"] or one["metadata"]["namespace"] != role["metadata"]["namespace"]:
            yield f"{named(one)} binds another role"
        if not any(has(account["metadata"], {"name": subject["name"], "namespace": subject["namespace"]}) for account in of(objects, "ServiceAccount")):
            yield f"{named(one)} binds an account that is not there"


# --- what is seen


def monitoring(objects, rules, jobs):
    for one in of(objects, "ServiceMonitor"):
        (endpoint,) = one["spec"]["endpoints"]
        labels = one["spec"]["selector"]["matchLabels"]
        found = [service for service in of(objects, "Service") if has(service["metadata"]["labels"], labels)]
        if len(found) != 1 or endpoint["port"] not in [port["name"] for port in found[0]["spec"]["ports"]]:
            yield f"{named(one)} finds {len(found)} Services, or no port {endpoint['port']}"
        job = {rule["targetLabel"]: rule["replacement"] for rule in endpoint["relabelings"]}
        if job["job"] not in jobs or ("cluster" in job) != (job["job"] == "fdn-agent"):
            yield f"{named(one)}: rules and dashboards know no such job: {job}"
    for one in of(objects, "PrometheusRule"):
        if one["spec"] != rules:
            yield f"{named(one)} has other rules than deploy/prometheus/rules.yml"


# --- who reaches whom


class Ways:
    """What the policies of a set let through. Pods in the network of their node are not held by any."""

    def __init__(self, objects):
        self.policies = of(objects, "NetworkPolicy")

    @staticmethod
    def matches(peer, namespace, end):
        """Whether a peer of a policy of the namespace is this end: (namespace, labels, address)."""
        at, labels, address = end
        if "ipBlock" in peer:
            block = peer["ipBlock"]
            return within(address, block["cidr"]) and not any(within(address, one) for one in block.get("except", []))
        if at is None or not has(labels, peer.get("podSelector", {}).get("matchLabels", {})):
            return False
        if "namespaceSelector" in peer:
            return has({"kubernetes.io/metadata.name": at}, peer["namespaceSelector"].get("matchLabels", {}))
        return at == namespace

    def lets(self, way, held, other, protocol, port):
        namespace, labels, _ = held
        if namespace is None:
            return True
        near = [one for one in self.policies if one["metadata"]["namespace"] == namespace and way.capitalize() in one["spec"]["policyTypes"]]
        mine = [one for one in near if has(labels, one["spec"]["podSelector"].get("matchLabels", {}))]
        end = {"ingress": "from", "egress": "to"}[way]
        rules = [rule for one in mine for rule in one["spec"].get(way, [])]
        return not mine or any(
            (end not in rule or any(self.matches(peer, namespace, other) for peer in rule[end]))
            and ("ports" not in rule or {"protocol": protocol, "port": port} in rule["ports"])
            for rule in rules
        )

    def open(self, source, target, port, protocol="TCP"):
        return self.lets("egress", source, target, protocol, port) and self.lets("ingress", target, source, protocol, port)


def within(address, prefix):
    import ipaddress

    network = ipaddress.ip_network(prefix)
    found = ipaddress.ip_address(address)
    return found.version == network.version and found in network


def policies(objects, functions):
    """Policies select pods that are there, and name ports that these listen on."""
    all_pods = pods(objects)
    for one in of(objects, "NetworkPolicy"):
        namespace, labels = one["metadata"]["namespace"], one["spec"]["podSelector"].get("matchLabels", {})
        found = selected(all_pods, namespace, labels)
        if namespace == functions:
            if labels not in [{"net.fdn.outbound": "denied"}, {"net.fdn.outbound": "open"}]:
                yield f"{named(one)} selects no pods of functions: {labels}"
            continue
        if not found:
            yield f"{named(one)} selects no pods"
        listening = {(protocol, number) for pod in found for (_, protocol), number in pod.ports().items()}
        for rule in one["spec"].get("ingress", []):
            for port in rule["ports"]:
                if (port["protocol"], port["port"]) not in listening:
                    yield f"{named(one)} opens {port}, where nothing listens"
        for rule in one["spec"].get("ingress", []) + one["spec"].get("egress", []):
            for peer in rule.get("from", []) + rule.get("to", []):
                wanted = peer.get("podSelector", {}).get("matchLabels", {})
                if "namespaceSelector" not in peer and wanted and not selected(all_pods, namespace, wanted):
                    yield f"{named(one)} names pods that are not there: {wanted}"


def unheld(objects):
    """Every pod is held by a policy that lets nothing through, and by one that lets something through, but in the network of its node."""
    for pod in pods(objects):
        mine = [
            one["spec"]
            for one in of(objects, "NetworkPolicy")
            if one["metadata"]["namespace"] == pod.namespace and has(pod.labels, one["spec"]["podSelector"]["matchLabels"])
        ]
        shut = [one for one in mine if set(one["policyTypes"]) == {"Ingress", "Egress"} and not {"ingress", "egress"} & set(one)]
        if not shut or (len(mine) == len(shut) and not pod.on_host):
            yield f"{named(pod.owner)} is held by {len(mine)} policies, of which {len(shut)} let nothing through"


# --- commands


def environment(pod, container, secrets):
    """The variables of a container with what is made up for its node and for Secrets."""
    values = {}
    for variable in container.get("env", []):
        source = variable.get("valueFrom", {})
        if "fieldRef" in source:
            value = pod.name() if source["fieldRef"]["fieldPath"] == "metadata.name" else FIELDS[source["fieldRef"]["fieldPath"]]
        elif "secretKeyRef" in source:
            value = secrets[variable["name"]]
        else:
            value = expanded(variable["value"], values)
        values[variable["name"]] = value
    return values


def expanded(text, values):
    return re.sub(r"\$\((\w+)\)", lambda found: values[found.group(1)], text)


def settings_of(objects, pod, container):
    """Name and text of the settings file that a container's command names, if it names one."""
    names_of = {volume["configMap"]["name"] for volume in pod.spec.get("volumes", []) if "configMap" in volume}
    texts = [pair for one in of(objects, "ConfigMap") if one["metadata"]["name"] in names_of for pair in one["data"].items()]
    called = [(name, text) for name, text in texts if any(word.endswith(f"/etc/fdn/config/{name}") for word in container["command"])]
    return next((pair for pair in called if pair[0].endswith(".toml")), None)


def read(text):
    return [one for one in yaml.safe_load_all(text) if one]
