#!/usr/bin/env python3
"""Runs what deploy/prometheus and deploy/grafana hold.

    scripts/deploy/monitoring.py rules               each alert against the faults of deploy/prometheus/faults.yml, with promtool
    scripts/deploy/monitoring.py network PROGRAMS    a real network in the folder's programs, scraped by a real Prometheus with these rules: every
                                                     metric that a rule or dashboard names is there, every expression is evaluated, no alert fires

All listens on loopback addresses, and goes with this process.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
RULES = ROOT / "deploy/prometheus/rules.yml"
FAULTS = ROOT / "deploy/prometheus/faults.yml"
SAMPLE = ROOT / "deploy/prometheus/prometheus.yml"
DASHBOARDS = ROOT / "deploy/grafana"
DOCS = ROOT / "docs/operations/monitoring.md"
# Minutes after the first sample, when a fault has lasted long enough for every alert.
AT = 45
# Patience for what starts; a loaded machine takes its time.
PATIENCE_S = 120


def fail(message):
    print(f"error: {message}")
    sys.exit(1)


# --- the rules and what they name


def rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts():
    return [rule["alert"] for rule in rules() if "alert" in rule]


def panels(board):
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", [])


def dashboard_expressions():
    """Each expression of each dashboard, with the dashboards' variables put in, as (place, expression)."""
    boards = sorted(DASHBOARDS.glob("*.json"))
    if not boards:
        fail(f"no dashboards in {DASHBOARDS}")
    for path in boards:
        board = json.loads(path.read_text())
        variables = [one["name"] for one in board["templating"]["list"]]
        for panel in panels(board):
            for target in panel.get("targets", []):
                yield f"{path.name}: {panel['title']}", filled(target["expr"], variables)
        for one in board["templating"]["list"]:
            found = re.fullmatch(r"label_values\((.*), *\w+\)", one.get("definition", ""))
            if found:
                yield f"{path.name}: the variable {one['name']}", filled(found.group(1), variables)


def filled(expression, variables):
    """What Grafana asks when all is chosen."""
    for name in variables:
        expression = expression.replace(f"${name}", ".*")
    expression = expression.replace("$__rate_interval", "1m")
    if "$" in expression:
        fail(f"an unknown variable in: {expression}")
    return expression


def expressions():
    for rule in rules():
        yield f"rules.yml: {rule.get('alert', rule.get('record'))}", rule["expr"]
    yield from dashboard_expressions()


SELECTOR = re.compile(r"(fdn_[a-z0-9_]+)(\{[^}]*\})?")


# --- promtool


def check_rules():
    run(["promtool", "check", "config", SAMPLE])
    described = yaml.safe_load(FAULTS.read_text())
    healthy, faults = described["healthy"], described["faults"]
    tests = [case("the healthy network", healthy, {}, AT, [])]
    for fault in faults:
        tests.append(case(fault["fault"], healthy, fault["series"], fault.get("at", AT), fault["fires"]))
    with tempfile.TemporaryDirectory(prefix="fdn-rules-") as folder:
        test = Path(folder) / "test.yml"
        test.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "3m", "tests": tests}))
        run(["promtool", "test", "rules", test])
    missing = set(alerts()) - {name for fault in faults for name in fault["fires"]}
    if missing:
        fail(f"no fault of faults.yml fires {', '.join(sorted(missing))}")
    text = DOCS.read_text()
    missing = [name for name in alerts() if f"`{name}`" not in text]
    if missing:
        fail(f"{DOCS.relative_to(ROOT)} does not tell what to do about {', '.join(missing)}")
    print(f"{len(alerts())} alerts fire in their {len(faults)} faults and no others do; none fires in the healthy network")


def case(name, healthy, changed, at, fires):
    """A test of promtool that exactly these alerts fire."""
    series = [{"series": one, "values": str(values)} for one, values in {**healthy, **changed}.items()]
    return {
        "name": name,
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{at}m",
                "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(fires)],
            }
        ],
    }


def run(argv):
    done = subprocess.run([str(arg) for arg in argv], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout + done.stderr)
        fail(f"{argv[0]} {argv[1]} {argv[2]}")


# --- a real network


class Children:
    """Processes that end with this one."""

    def __init__(self, folder):
        self.folder, self.children = folder, []

    def start(self, name, argv, env=None):
        log = open(self.folder / f"{name}.log", "wb")
        child = subprocess.Popen(
            [str(arg) for arg in argv], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
        )
        self.children.append((name, child))
        return child

    def check(self):
        for name, child in self.children:
            if child.poll() is not None:
                fail(f"{name} ended with {child.returncode}:\n{self.log(name)}")

    def log(self, name):
        return "\n".join((self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-20:])

    def end(self):
        for _, child in reversed(self.children):
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for _, child in self.children:
            try:
                child.wait(timeout=60)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def ports(count):
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    numbers = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return numbers


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def until(what, children, look):
    end = time.monotonic() + PATIENCE_S
    reason = "nothing yet"
    while time.monotonic() < end:
        children.check()
        try:
            found = look()
            if found:
                return found
        except (OSError, urllib.error.URLError) as cause:
            reason = str(cause)
        time.sleep(0.25)
    return fail(f"{what}: not within {PATIENCE_S} s ({reason})")


# What a node that takes part in a cluster of its own has beside what joining wrote.
PEER = """
[peers.cluster.timing]
found_after = "200ms"
"""


def join_peer(programs, folder, env, api, listens):
    """Lets a node into the network of `fdn up`, in a cluster that it is alone in; its configuration."""
    fdn = lambda *words: subprocess.run([programs / "fdn", *words], env=env, check=True, capture_output=True, text=True).stdout
    fdn("cluster", "create", "peers", "--region", "eu-west", "--location", "53.35,-6.26")
    token, config = folder / "peer.token", folder / "peer.toml"
    token.write_text(fdn("node", "token", "--cluster", "peers"))
    join = [programs / "fdn-edge-agent", "join", f"http://127.0.0.1:{api}", "--token-file", token, "--node", "peer-1", "--address", "127.0.0.1"]
    join += ["--data", folder / "peer", "--config", config]
    for name, port in listens.items():
        join += [f"--{name}-port", str(port)]
    subprocess.run(join, env=env, check=True, capture_output=True)
    config.write_text(config.read_text() + PEER)
    return config


def start_network(programs, folder, children):
    """`fdn up`, a node with a cluster, and Prometheus; gives the address of that and an environment for `fdn`."""
    api, dns, dns_admin, gateway, admin, peer_gateway, peer_admin, peers, prometheus = ports(9)
    env = {name: value for name, value in os.environ.items() if not name.startswith("FDN_")}
    env |= {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config"), "XDG_DATA_HOME": str(folder / "share")}
    up = [programs / "fdn", "up", "--color", "never", "--data-dir", folder / "data", "--listen", f"127.0.0.1:{api}"]
    up += ["--dns", f"127.0.0.1:{dns}", "--dns-admin", f"127.0.0.1:{dns_admin}", "--gateway-port", gateway, "--admin-port", admin]
    up += ["--region", "eu-west=53.35,-6.26", "--nodes", "1", "--no-docker"]
    children.start("network", up, env)

    until("fdn up", children, lambda: "\nready in " in "\n" + (folder / "network.log").read_text())
    config = join_peer(programs, folder, env, api, {"gateway": peer_gateway, "admin": peer_admin, "peer": peers})
    children.start("peer", [programs / "fdn-edge-agent", "run", "--config", config], env)

    # The sample, with the addresses of this network in the place of its own.
    sample = yaml.safe_load(SAMPLE.read_text())
    sample["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    sample["rule_files"] = [str(RULES)]
    own = {
        "fdn-controller": [{"targets": [f"127.0.0.1:{api}"]}],
        "fdn-dns": [{"targets": [f"127.0.0.1:{dns_admin}"]}],
        "fdn-agent": [
            {"targets": [f"127.0.1.1:{admin}"], "labels": {"cluster": "eu-west"}},
            {"targets": [f"127.0.0.1:{peer_admin}"], "labels": {"cluster": "peers"}},
        ],
    }
    for job in sample["scrape_configs"]:
        job["static_configs"] = own.pop(job["job_name"])
    if own:
        fail(f"prometheus.yml lacks the jobs {', '.join(own)}")
    (folder / "prometheus.yml").write_text(json.dumps(sample))
    argv = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    children.start("prometheus", [*argv, f"--web.listen-address=127.0.0.1:{prometheus}", "--log.level=warn"])

    return f"http://127.0.0.1:{prometheus}", f"127.0.0.1:{dns}", env


def use(programs, children, env, dns):
    """One of what people do, so that it is counted."""
    fdn = lambda *words: subprocess.run([programs / "fdn", *words], env=env, check=True, capture_output=True, text=True).stdout
    fdn("deploy", "hello", str(ROOT / "functions/hello/hello.wasm"))
    if "world" not in fdn("invoke", "hello", "-d", "world"):
        fail("the function does not answer")
    host, port = dns.split(":")
    dig = ["dig", f"@{host}", "-p", port, "hello.fn.test", "+short"]
    asked = lambda: subprocess.run(dig, capture_output=True, text=True, check=False).stdout
    until("DNS answers", children, lambda: "127.0.1.1" in asked())
    # More of them, since DNS looks at one query in 16 more closely.
    for _ in range(32):
        asked()
    job = re.search(r"job_[0-9a-f]{32}", fdn("job", "submit", "hello", "--data", "work", "--output", "json")).group()
    fdn("job", "status", job, "--wait", "--timeout", "60s")


def sources():
    """Names that the sources register: whole ones, and those made of a prefix and a text of the same file or folder."""
    names = set()
    for path in [path for crate in ("bus", "controller", "dns", "edge-agent", "service") for path in (ROOT / crate).rglob("src/**/*.rs")]:
        text = path.read_text()
        literals = re.findall(r'"([a-z0-9_]+)"', text)
        names.update(literal for literal in literals if literal.startswith("fdn_"))
        prefixes = re.findall(r'format!\("(fdn_[a-z_]+)\{name\}"\)', text)
        if path.parent.name == "metrics" and path.parent.parent.parent.name == "edge-agent":
            prefixes.append("fdn_agent_")
        names.update(prefix + literal for prefix in prefixes for literal in literals)
    for path in (ROOT / "link/src").rglob("*.rs"):
        literals = re.findall(r'"([a-z0-9_]+)"', path.read_text())
        names.update(f"{program}_centre_{literal}" for program in ("fdn_agent", "fdn_dns") for literal in literals)
    return names


def check_network(programs):
    with tempfile.TemporaryDirectory(prefix="fdn-monitoring-") as folder:
        children = Children(Path(folder))
        try:
            look_at_network(programs, Path(folder), children)
        finally:
            children.end()


def look_at_network(programs, folder, children):
    prometheus, dns, env = start_network(programs, folder, children)
    use(programs, children, env, dns)

    def ask(expression):
        try:
            answer = get(f"{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        except urllib.error.HTTPError as refused:
            fail(f"Prometheus refuses {expression}: {refused.read().decode()}")
        return json.loads(answer)["data"]["result"]

    def scraped():
        targets = json.loads(get(f"{prometheus}/api/v1/targets"))["data"]["activeTargets"]
        return len(targets) == 4 and all(one["health"] == "up" for one in targets)

    until("all processes are scraped", children, scraped)
    until("the call is counted", children, lambda: ask('fdn_agent_requests_total{app="hello",outcome="ok"} > 0'))
    until("the job is counted", children, lambda: ask('fdn_controller_jobs_ended_total > 0'))
    until("usage is handed over", children, lambda: ask('fdn_agent_usage_batches_total{result="taken"}'))
    until("the cluster has its head", children, lambda: ask("fdn_cluster_head == 1"))
    # What is counted by rates needs two samples of everything.
    until("records are made", children, lambda: ask("fdn:calls:rate5m") and ask("fdn:outbox_age:seconds") and ask("fdn:spool:ratio"))

    named, registered, unseen, lost = set(), sources(), set(), []
    for place, expression in expressions():
        ask(expression)
        for name, labels in SELECTOR.findall(expression):
            named.add(name)
            if ask(f"count({name}{labels})"):
                continue
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            # A counter with labels is there from its first event on; anything else that is not there has no such name.
            if ask(f"count({name})"):
                if not name.endswith("_total"):
                    lost.append(f"{place}: {name} has no series {labels}")
            elif base not in registered:
                lost.append(f"{place}: no process has {name}")
            else:
                unseen.add(name)
    for name in sorted(unseen):
        # The devices of a machine are the only gauges that may be missing: it may have none.
        if not name.endswith(("_total", "_bucket", "_sum", "_count")) and not name.startswith("fdn_agent_device_"):
            lost.append(f"{name} is registered, and no process shows it")
    if lost:
        fail("names that are not there:\n" + "\n".join(lost))
    print(f"{len(named)} metrics are named; {len(named) - len(unseen)} of them were scraped")
    print(f"not seen, as nothing of the kind happened, but registered: {', '.join(sorted(unseen))}")

    firing = ask('ALERTS{alertstate="firing"}')
    if firing:
        fail(f"alerts fire in a healthy network: {firing}")
    pending = {one["metric"]["alertname"] for one in ask('ALERTS{alertstate="pending"}')}
    print(f"no alert fires; pending: {', '.join(sorted(pending))}")


def main():
    if sys.argv[1:] == ["rules"]:
        check_rules()
    elif len(sys.argv) == 3 and sys.argv[1] == "network":
        check_network(Path(sys.argv[2]).resolve())
    else:
        print(__doc__)
        sys.exit(2)


if __name__ == "__main__":
    main()
