"""A release on machines: its packages under a systemd, by the words of their README.Debian, and its images on a Docker engine. scripts/deploy/dist.py
makes the release."""

import shutil
import subprocess

import services
from engine import Engine, Failed, until
from services import CONTROLLER, DNS, ROOT, Machine

PACKAGES = {"fdn-controller": "fdn-controller", "fdn-edge-agent": "fdn", "fdn-dns": "fdn-dns"}


def say(line):
    print(line, flush=True)


def steps(machine, name):
    """The commands of a package's README.Debian, in order."""
    text = machine.sh(f"cat /usr/share/doc/{name}/README.Debian")
    found = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    if not found:
        raise Failed(f"README.Debian of {name} says nothing")
    return [line.replace("https://controller.example.org", "http://127.0.0.1:8600") for line in found]


def install(machine, folder, *names):
    machine.sh("dpkg -i " + " ".join(f"/root/{folder}/{name}_[0-9]*.deb" for name in names))


def pid(machine, unit):
    machine.sh(f"systemctl is-active {unit}")
    return machine.sh(f"systemctl show -p MainPID --value {unit}").strip()


def machine_image(engine, out, later):
    def fill(context):
        for name, folder in (("now", out), ("later", later)):
            (context / name).mkdir()
            for deb in folder.glob("*.deb"):
                shutil.copy(deb, context / name)

    services.image(engine, "init-system-helpers diffutils perl-base", fill, "COPY now /root/now\nCOPY later /root/later\n")


def controller(one):
    install(one, "now", "fdn-controller", "fdn")
    # Nothing is started that has no settings, whoever asks for it.
    one.sh("systemctl start fdn-controller; ! systemctl is-active --quiet fdn-controller")
    says = steps(one, "fdn-controller")
    ready = next(at for at, line in enumerate(says) if line.startswith("chgrp"))
    one.sh("\n".join(says[:ready]))
    # The sample's database and broker are not on this machine; its own folders are.
    one.write("/etc/fdn-controller/controller.toml", CONTROLLER)
    for name in ("database.password", "broker.password"):
        one.write(f"/etc/fdn-controller/{name}", "of nobody")
    one.sh("cd /etc/fdn-controller\n" + "\n".join(says[ready:]))
    until("the controller", lambda: one.sh("curl -sS --fail http://127.0.0.1:8600/healthz"))
    one.sh("fdn login http://127.0.0.1:8600 --password-file /var/lib/fdn-controller/admin.password")
    one.sh("fdn deploy hello /root/hello.wasm --no-wait")
    say("fdn-controller is installed by its package, and runs")


def joins(machine, one, name, token):
    """A package whose service joins the network first."""
    install(machine, "now", name)
    says = steps(machine, name)
    machine.write("/run/token", one.sh(token))
    machine.sh(f"chown {PACKAGES[name]} /run/token")
    machine.sh("\n".join(line for line in says if line.startswith("install")) or "true")
    if name == "fdn-dns":
        machine.write("/etc/fdn/dns.toml", DNS)
    machine.sh("\n".join(line for line in says if not line.startswith("install")))


def packages(engine, machines):
    def machine(name, network):
        machines.append(Machine(engine, name, network))
        return machines[-1]

    one = machine("one", "none")
    controller(one)
    two = machine("two", "container:one")
    one.sh("fdn cluster create eu-west --region eu --location 53.35,-6.26")
    joins(two, one, "fdn-edge-agent", "fdn node token --cluster eu-west")
    call = "curl -sS --fail --max-time 10 -H 'Host: hello.fn.test' -d world http://127.0.0.1:8080/"
    answers = lambda: "world" in two.sh(call)
    until("the function", answers)
    three = machine("three", "container:one")
    joins(three, one, "fdn-dns", "fdn dns token --cluster eu-west")
    told = lambda: "fdn_dns_apps 1" in three.sh("curl -sS http://127.0.0.1:8602/metrics")
    until("DNS is told of the function", told)
    say("fdn-edge-agent and fdn-dns have joined as their README.Debian says, and answer")

    of = dict(zip(PACKAGES, machines))
    before = {name: pid(one_of, name) for name, one_of in of.items()}
    install(one, "later", "fdn-controller", "fdn")
    install(two, "later", "fdn-edge-agent")
    install(three, "later", "fdn-dns")
    for name, one_of in of.items():
        if pid(one_of, name) == before[name]:
            raise Failed(f"{name} goes on with the old program after an upgrade")
    until("the function after the upgrade", answers)
    until("DNS after the upgrade", told)
    until("the account after the upgrade", lambda: "hello" in one.sh("fdn list -o name"))
    say("upgraded: each service runs the new program, and knows what it knew")

    two.sh("dpkg --remove fdn-edge-agent; ! systemctl is-active --quiet fdn-edge-agent")
    two.sh("test -s /var/lib/fdn/edge-agent/identity/node.pem")
    install(two, "now", "fdn-edge-agent")
    two.sh("systemctl start fdn-edge-agent")
    until("the function after the package came back", answers)
    two.sh("dpkg --purge fdn-edge-agent; ! ls /var/lib/fdn /etc/fdn 2>/dev/null")
    three.sh("dpkg --purge fdn-dns; ! systemctl is-active --quiet fdn-dns")
    say("removed and installed again, a node is the node it was; purged, nothing is left of it")


class Images:
    """The images on an engine. Nothing in them can be written to but their volumes, and they have no capabilities."""

    def __init__(self, engine, out, told):
        self.engine, self.version = engine, told.version
        for file in sorted(out.glob("*.oci.tar")):
            engine.docker("load", "-i", file)

    def run(self, name, *words, flags=(), mounts=()):
        hard = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true"]
        volumes = [word for mount in mounts for word in ("-v", mount)]
        return self.engine.docker("run", *hard, *flags, *volumes, f"{name}:{self.version}", *words)

    def start(self, name, network, mounts):
        """Starts a service as its image says, and waits for what its own check finds."""
        self.run(name, flags=["-d", "--name", name, "--network", network], mounts=mounts)
        look = lambda: self.engine.docker("inspect", "--format", "{{.State.Health.Status}}", name).strip() == "healthy"
        try:
            until(f"{name} is healthy", look)
        except Failed as reason:
            checks = self.engine.docker("inspect", "--format", "{{json .State.Health}}", name)
            log = subprocess.run(["docker", "logs", "--tail", "25", name], env=self.engine.environment, capture_output=True, text=True, check=False)
            raise Failed(f"{reason}\n{checks}\n{log.stdout}{log.stderr}") from reason

    def folder(self, name, **texts):
        """A folder of this machine with these files."""
        path = self.engine.folder / name
        path.mkdir()
        for file, text in texts.items():
            (path / file.replace("_", ".")).write_text(text)
        return path


def images(engine, out, told):
    """The same network of images alone."""
    there = Images(engine, out, told)
    beside = ["--network", "container:fdn-controller"]
    text = CONTROLLER.replace("/etc/fdn-controller/broker.password", "/etc/fdn/broker.password").replace("/etc/fdn-controller", "/var/lib/fdn")
    centre = there.folder("centre", controller_toml=text.replace("/var/lib/fdn-controller", "/var/lib/fdn"), broker_password="of nobody")
    there.start("fdn-controller", "none", [f"{centre}:/etc/fdn:ro", "controller:/var/lib/fdn"])

    hello = ROOT / "functions/hello/hello.wasm"
    mine = ["home:/var/lib/fdn", "controller:/controller:ro", f"{hello}:/hello.wasm:ro"]
    fdn = lambda *words: there.run("fdn", *words, flags=["--rm", *beside], mounts=mine)
    fdn("login", "http://127.0.0.1:8600", "--password-file", "/controller/admin.password")
    fdn("deploy", "hello", "/hello.wasm", "--no-wait")
    fdn("cluster", "create", "eu-west", "--region", "eu", "--location", "53.35,-6.26")
    say("the controller's image is healthy, and has compiled an upload")

    node = there.folder("node", token=fdn("node", "token", "--cluster", "eu-west"))
    words = ["join", "http://127.0.0.1:8600", "--token-file", "/etc/fdn/token", "--node", "n-1", "--no-peers", "--config", "/var/lib/fdn/edge-agent.toml"]
    there.run("fdn-edge-agent", *words, flags=["--name", "join", *beside], mounts=[f"{node}:/etc/fdn:ro", "node:/var/lib/fdn"])
    engine.docker("cp", "join:/var/lib/fdn/edge-agent.toml", node)
    there.start("fdn-edge-agent", beside[1], [f"{node}:/etc/fdn:ro", "node:/var/lib/fdn"])
    dns = there.folder("dns", token=fdn("dns", "token", "--cluster", "eu-west"), dns_toml=DNS)
    words = ["--config", "/etc/fdn/dns.toml", "join", "http://127.0.0.1:8600", "--token-file", "/etc/fdn/token"]
    there.run("fdn-dns", *words, flags=["--rm", *beside], mounts=[f"{dns}:/etc/fdn:ro", "dns:/var/lib/fdn-dns"])
    there.start("fdn-dns", beside[1], [f"{dns}:/etc/fdn:ro", "dns:/var/lib/fdn-dns"])

    process = engine.docker("inspect", "--format", "{{.State.Pid}}", "fdn-controller").strip()
    inside = lambda *words: engine.run("nsenter", f"--net=/proc/{process}/ns/net", *words)
    call = ["curl", "-sS", "--fail", "--max-time", "10", "-H", "Host: hello.fn.test", "-d", "world", "http://127.0.0.1:8080/"]
    until("the function", lambda: "world" in inside(*call))
    until("an answer at port 53", lambda: "127.0.0.1" in inside("dig", "@127.0.0.1", "ns1.fn.test", "+short"))
    for name in ("fdn-dns", "fdn-edge-agent", "fdn-controller"):
        engine.docker("stop", "--time", "60", name)
        if engine.docker("inspect", "--format", "{{.State.ExitCode}}", name).strip() != "0":
            raise Failed(f"the image of {name} does not stop in order")
    say("all images are healthy by their own checks; a call is answered, and a question at port 53; all stop in order")


def story(out, later, told):
    machines = []
    with Engine() as engine:
        machine_image(engine, out, later)
        try:
            packages(engine, machines)
        except (Failed, subprocess.CalledProcessError) as reason:
            logs = "\n".join(machine.log() for machine in machines)
            raise Failed(f"{reason} {getattr(reason, 'stderr', '')}\n{logs}") from reason
        for machine in machines:
            engine.docker("rm", "-f", "-v", machine.name)
        try:
            images(engine, out, told)
        except subprocess.CalledProcessError as reason:
            raise Failed(f"{reason} {reason.stderr}") from reason
