"""A network of real processes under load, and a real Prometheus that scrapes it: what monitoring.py looks at. All listens on loopback addresses,
and goes with this process."""

import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import yaml
from engine import Failed

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE = ROOT / "deploy/prometheus/prometheus.yml"
RULES = ROOT / "deploy/prometheus/rules.yml"
# Patience for what starts; a loaded machine takes its time.
PATIENCE_S = 120


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
                raise Failed(f"{name} ended with {child.returncode}:\n{self.log(name)}")

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
    raise Failed(f"{what}: not within {PATIENCE_S} s ({reason})")


# What the nodes of the second cluster have beside what joining wrote. One is a gateway without an engine, too small for the app `large`; the other one
# runs the instances of both, and has devices that are made up.
PEER = """
[peers.cluster.timing]
found_after = "200ms"
"""
GATEWAY = """
[capacity]
memory = "256MiB"
"""
RUNS = """
[docker]
enabled = true
socket = "{socket}"
outlive_agent = false
[devices.simulated]
count = 2
memory = "80GiB"
"""


class Network:
    """`fdn up`, a cluster of two nodes that joined it, and Prometheus. Use it in a `with`."""

    def __init__(self, programs, folder, engine):
        self.programs, self.folder, self.engine = programs, folder, engine
        self.children = Children(folder)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("FDN_")}
        self.env |= {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config"), "XDG_DATA_HOME": str(folder / "share")}

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.children.end()
            raise
        return self

    def __exit__(self, *_):
        self.children.end()

    def fdn(self, *words):
        done = subprocess.run([str(word) for word in (self.programs / "fdn", *words)], env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"fdn {' '.join(map(str, words))}: {done.stdout} {done.stderr}")
        return done.stdout

    def until(self, what, look):
        return until(what, self.children, look)

    def start(self):
        api, dns, dns_admin, gateway, admin, prometheus = ports(6)
        up = [self.programs / "fdn", "up", "--color", "never", "--data-dir", self.folder / "data", "--listen", f"127.0.0.1:{api}"]
        up += ["--dns", f"127.0.0.1:{dns}", "--dns-admin", f"127.0.0.1:{dns_admin}", "--gateway-port", gateway, "--admin-port", admin]
        up += ["--region", "eu-west=53.35,-6.26", "--nodes", "1", "--no-docker"]
        self.children.start("network", up, self.env)
        self.until("fdn up", lambda: "\nready in " in "\n" + (self.folder / "network.log").read_text())
        self.gateways, admins = [("127.0.1.1", gateway)], [(f"127.0.1.1:{admin}", "eu-west")]
        self.fdn("cluster", "create", "peers", "--region", "eu-west", "--location", "53.35,-6.26")
        for name, more in (("peer-1", GATEWAY), ("peer-2", RUNS.format(socket=self.engine.folder / "docker.sock"))):
            port, its_admin = self.join(name, api, PEER + more)
            self.gateways.append(("127.0.0.1", port))
            admins.append((f"127.0.0.1:{its_admin}", "peers"))
        self.scrape(prometheus, [f"127.0.0.1:{api}"], [f"127.0.0.1:{dns_admin}"], admins)
        self.dns, self.prometheus = ("127.0.0.1", dns), f"http://127.0.0.1:{prometheus}"

    def join(self, name, api, more):
        token, config = self.folder / f"{name}.token", self.folder / f"{name}.toml"
        token.write_text(self.fdn("node", "token", "--cluster", "peers"))
        join = [self.programs / "fdn-edge-agent", "join", f"http://127.0.0.1:{api}", "--token-file", token, "--node", name, "--address", "127.0.0.1"]
        join += ["--data", self.folder / name, "--config", config]
        listens = dict(zip(("gateway", "admin", "peer", "controller"), ports(4)))
        for which, port in listens.items():
            join += [f"--{which}-port", str(port)]
        subprocess.run(join, env=self.env, check=True, capture_output=True)
        config.write_text(config.read_text() + more)
        self.children.start(name, [self.programs / "fdn-edge-agent", "run", "--config", config], self.env)
        self.until(f"{name} listens", lambda: get(f"http://127.0.0.1:{listens['admin']}/healthz"))
        return listens["gateway"], listens["admin"]

    def scrape(self, port, controllers, servers, agents):
        """Prometheus with the sample, and the addresses of this network in the place of its own."""
        sample = yaml.safe_load(SAMPLE.read_text())
        sample["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        sample["rule_files"] = [str(RULES)]
        own = {
            "fdn-controller": [{"targets": controllers}],
            "fdn-dns": [{"targets": servers}],
            "fdn-agent": [{"targets": [address], "labels": {"cluster": cluster}} for address, cluster in agents],
        }
        self.targets = len(controllers) + len(servers) + len(agents)
        for job in sample["scrape_configs"]:
            job["static_configs"] = own.pop(job["job_name"])
        if own:
            raise Failed(f"prometheus.yml lacks the jobs {', '.join(own)}")
        (self.folder / "prometheus.yml").write_text(json.dumps(sample))
        argv = ["prometheus", f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/tsdb"]
        self.children.start("prometheus", [*argv, f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"])

    def ask(self, expression):
        """What Prometheus answers: (labels, number) of each series."""
        try:
            answer = get(f"{self.prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        except urllib.error.HTTPError as refused:
            raise Failed(f"Prometheus refuses {expression}: {refused.read().decode()}") from refused
        found = json.loads(answer)["data"]
        # A scalar is one number without labels.
        series = [{"metric": {}, "value": found["result"]}] if found["resultType"] == "scalar" else found["result"]
        return [(one["metric"], float(one["value"][1])) for one in series]

    def scraped(self):
        targets = json.loads(get(f"{self.prometheus}/api/v1/targets"))["data"]["activeTargets"]
        return len(targets) == self.targets and all(one["health"] == "up" for one in targets)

    def firing(self):
        return sorted({labels["alertname"] for labels, _ in self.ask('ALERTS{alertstate="firing"}')})


class Load:
    """What people and their clients do, over and over again until it is stopped: use it in a `with`. Each kind has a thread of its own."""

    def __init__(self, network, image):
        self.network, self.stopped, self.counts, self.failures, self.asked = network, threading.Event(), {}, [], 0
        self.deploy(image)
        self.threads = []
        for number, gateway in enumerate(network.gateways):
            self.each(f"calls at gateway {number + 1}", 0.05, self.calls("hello", "/", gateway, {200}))
        second = network.gateways[1]
        self.each("calls of instances", 0.1, self.calls("box", "/", second, {200, 502, 503}))
        self.each("calls that end their instance", 1, self.calls("box", "/exit/1", second, {502, 503}))
        self.each("calls that the policy refuses", 0.1, self.calls("closed", "/", second, {403}))
        self.each("calls without room", 0.1, self.calls("large", "/", second, {503}))
        self.each("runs of the workflow", 0.2, self.calls("flow", "/", network.gateways[0], {200}))
        self.each("questions", 0.01, self.question)
        self.each("jobs", 0.5, lambda: network.fdn("job", "submit", "hello", "--data", "work"))
        levels = iter(range(1_000_000))
        self.each("deploys", 2, lambda: network.fdn("env", "set", "changed", f"LEVEL={next(levels)}"))

    def deploy(self, image):
        network, folder = self.network, self.network.folder
        file = lambda name, text: (folder / name).write_text(text) and folder / name
        hello = ROOT / "functions/hello/hello.wasm"
        for app in ("hello", "changed", "closed"):
            network.fdn("deploy", app, hello)
        large = (ROOT / "functions/hello/fdn.toml").read_text().replace('memory = "16MiB"', 'memory = "512MiB"')
        network.fdn("deploy", "large", hello, "--manifest", file("large.toml", large.replace('name = "hello"', 'name = "large"')))
        network.fdn("policy", "set", "closed", file("closed.toml", '[addresses]\ndeny = ["127.0.0.0/8"]\n'))
        box = 'runtime = "docker"\nmemory = "32MiB"\n[gpu]\nmemory = "10GiB"\n'
        # The cluster of one node without an engine is never ready for it.
        network.fdn("deploy", "box", image, "--manifest", file("box.toml", box), "--no-wait")
        network.until("a call of a container", lambda: self.answers(self.calls("box", "/", network.gateways[1], {200})))
        flow = "stages:\n  - name: first\n    function: hello\n  - name: second\n    function: hello\n    needs: [first]\n"
        network.fdn("workflow", "deploy", "flow", file("flow.yaml", flow))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def each(self, what, pause, act):
        def go():
            while not self.stopped.is_set():
                try:
                    act()
                    self.counts[what] = self.counts.get(what, 0) + 1
                except (Failed, OSError, http.client.HTTPException) as reason:
                    self.failures.append(f"{what}: {reason}")
                    return
                self.stopped.wait(pause)

        self.threads.append(threading.Thread(target=go))

    @staticmethod
    def answers(call):
        try:
            call()
        except Failed:
            return False
        return True

    @staticmethod
    def calls(app, path, gateway, statuses):
        def act():
            connection = http.client.HTTPConnection(*gateway, timeout=60)
            try:
                connection.request("POST", path, b"world", {"Host": f"{app}.fn.test"})
                answer = connection.getresponse()
                text = answer.read().decode(errors="replace")
            finally:
                connection.close()
            if answer.status not in statuses:
                raise Failed(f"{answer.status} {text}")

        return act

    def question(self):
        """One question for the address of an app (RFC 1035)."""
        name = b"".join(struct.pack("B", len(label)) + label for label in (b"hello", b"fn", b"test")) + b"\0"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
            asks.settimeout(30)
            # The server looks at those more closely whose number is a multiple of 16.
            self.asked = (self.asked + 1) % 65536
            asks.sendto(struct.pack(">6H", self.asked, 0x0100, 1, 0, 0, 0) + name + struct.pack(">2H", 1, 1), self.network.dns)
            answer = asks.recv(4096)
        (count,) = struct.unpack(">H", answer[6:8])
        if answer[3] & 15 or not count:
            raise Failed(f"DNS answers with code {answer[3] & 15} and {count} records")

    def check(self):
        if self.failures:
            raise Failed("\n".join(self.failures))

    def told(self):
        return ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))

