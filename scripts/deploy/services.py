#!/usr/bin/env python3
"""Starts the units of deploy/systemd under a systemd, each on a machine of its own made of a container (`make soak GROUP=deploy`).

    scripts/deploy/services.py PROGRAMS

Users and folders are made by the commands in the heads of the units. A function is uploaded, which the controller compiles
in its sandbox, and called through the agent's; DNS answers for it at port 53. There is no broker: the controller reads what is deployed from its database. Agent and DNS server join with tokens.
The agent's drop-ins are installed as their heads say: then it listens at port 443 too, and runs a container on a Docker engine of its machine, as the
same ordinary user.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine import Engine, Failed, probe_image, until

ROOT = Path(__file__).resolve().parent.parent.parent
UNITS = ROOT / "deploy/systemd"

CONTROLLER = """
listen = "127.0.0.1:8600"
zone = "fn.test"
[database]
url = "sqlite:///var/lib/fdn-controller/controller.db"
[network]
token_file = "/etc/fdn-controller/network.token"
key_file = "/etc/fdn-controller/network.key"
[secrets]
master_key_file = "/etc/fdn-controller/master.key"
[artifacts]
local = "/var/lib/fdn-controller/artifacts"
[uploads]
folder = "/var/lib/fdn-controller/uploads"
[accounts]
initial_password_file = "/var/lib/fdn-controller/admin.password"
[broker]
url = "amqp://fdn@127.0.0.1:5672/%2f"
password_file = "/etc/fdn-controller/broker.password"
"""

DNS = """
server = "dns-1"
listen = ["127.0.0.1:53"]
data_dir = "/var/lib/fdn-dns"
admin = "127.0.0.1:8602"
[zone]
name = "fn.test"
servers = [{ name = "ns1.fn.test", addresses = ["127.0.0.1"] }]
"""


def say(line):
    print(line, flush=True)


# The engine of a machine. Its containers' control groups are below the machine's own, and go with them.
DOCKER = """
[Service]
Type=notify
ExecStart=/usr/sbin/dockerd --bridge none --iptables=false --ip6tables=false --group docker --cgroup-parent {parent} --log-level warn
Delegate=yes
KillMode=process
"""

# What an agent that runs containers has in its settings. Idle ones are paused, which the control groups' owner alone may do.
CONTAINERS = """
[docker]
enabled = true
outlive_agent = false
[instances]
pause_after = "1s"
"""

TLS = """
[gateway.tls]
listen = "127.0.0.1:443"
[[gateway.tls.certificates]]
certificate_file = "/etc/fdn/zone.crt"
key_file = "/etc/fdn/zone.key"
"""


GROUPS = Path("/sys/fs/cgroup")


def hierarchies():
    """The controllers of control groups (version 1) that are mounted somewhere on this machine, by hierarchy."""
    lines = (line.split(":")[1] for line in Path("/proc/self/cgroup").read_text().splitlines())
    return {line for line in lines if line and not line.startswith("name=")}


class Groups:
    """Control groups as they are. A systemd that may manage them mounts what nobody had mounted, and leaves groups in it when its machine is killed: who looks for
    the groups of a process later finds hierarchies without a mount, and containerd hears of no container that had too little memory."""

    def __enter__(self):
        self.before, self.names = hierarchies(), set(os.listdir(GROUPS))

    def __exit__(self, *_):
        if new := set(os.listdir(GROUPS)) - self.names:
            # It has made folders for them, and the rest of the file system read-only.
            subprocess.run(["mount", "-o", "remount,rw", GROUPS], check=True)
            for path in (GROUPS / name for name in new):
                path.unlink() if path.is_symlink() else path.rmdir()
        end = time.monotonic() + 30
        while (more := hierarchies() - self.before) and time.monotonic() < end:
            for controllers in more:
                with tempfile.TemporaryDirectory() as place:
                    if subprocess.run(["mount", "-t", "cgroup", "-o", controllers, "none", place], stderr=subprocess.DEVNULL).returncode:
                        continue
                    for folder, _, _ in os.walk(place, topdown=False):
                        if folder != place:
                            try:
                                os.rmdir(folder)
                            except OSError:
                                pass
                    subprocess.run(["umount", place], check=True)
            time.sleep(0.2)
        if more:
            raise Failed(f"control groups of {', '.join(sorted(more))} stay mounted")


class Machine:
    """A container with systemd as its first process, in the network of the first machine. `runs`: containers, too."""

    def __init__(self, engine, name, network, runs=False):
        self.engine, self.name = engine, name
        # Neither privileged nor with the kernel's settings writable: enough for systemd to make its services' sandboxes.
        flags = ["--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined", "--cgroupns", "host"]
        groups = GROUPS if runs else GROUPS / "systemd"
        flags += ["--tmpfs", "/run", "--tmpfs", "/tmp", "-e", "container=docker", "-v", f"{groups}:{groups}:rw"]
        if runs:
            flags += ["--cap-add", "SYS_PTRACE", "--cap-add", "NET_ADMIN", "-v", "/var/lib/docker", "--security-opt", "systempaths=unconfined"]
        engine.docker("run", "-d", "--name", name, "--network", network, *flags, "machine", "/usr/lib/systemd/systemd")
        until(f"systemd of {name}", lambda: self.sh("systemctl list-units --no-pager") or True)

    def sh(self, script, **more):
        flags = ["-i"] if "input" in more else []
        return self.engine.docker("exec", *flags, self.name, "sh", "-ec", script, **more)

    def write(self, path, text):
        self.sh(f"mkdir -p $(dirname {path}) && cat > {path}", input=text)

    def start(self, unit):
        self.sh(f"systemctl start {unit}")
        state = self.sh(f"systemctl show -p ActiveState,NRestarts {unit}").split()
        if "ActiveState=active" not in state:
            raise Failed(f"{unit}: {state}")

    def settled(self, unit):
        """It runs, and never had to be started again."""
        state = self.sh(f"systemctl show -p ActiveState,NRestarts {unit}").split()
        if set(state) != {"ActiveState=active", "NRestarts=0"}:
            raise Failed(f"{unit}: {state}\n{self.log()}")

    def log(self):
        return self.sh("journalctl --no-pager --no-hostname -n 25")


def head(unit, only):
    """Commands in the head of a unit that begin with one of the words."""
    lines = re.findall(r"^#   (.+)$", (UNITS / unit).read_text(), re.M)
    found = [line for line in lines if line.split()[0] in only]
    if not found:
        raise Failed(f"{unit} does not say how its user is made")
    return "\n".join(found)


def image(engine, packages, fill, copies):
    """The image of all machines: Debian with systemd and these packages, and what `fill` puts into a folder, copied as the lines `copies` say."""
    engine.image("debian-systemd", f"systemd {packages}")
    context = engine.folder / "machine"
    context.mkdir()
    fill(context)
    shutil.copy(ROOT / "functions/hello/hello.wasm", context)
    # Of systemd's own services none: they would set up a machine that is none.
    (context / "Dockerfile").write_text(
        "FROM debian-systemd\n"
        # A journal, to say why something failed.
        "RUN rm -rf /usr/lib/systemd/system/*.wants /etc/systemd/system/*.wants && ln -sf /usr/lib/systemd/system/basic.target /etc/systemd/system/default.target \\\n"
        " && mkdir -p /etc/systemd/system/sysinit.target.wants && ln -s /usr/lib/systemd/system/systemd-journald.service /etc/systemd/system/sysinit.target.wants\n"
        f"{copies}COPY hello.wasm /root/\nENV HOME=/root\n"
    )
    engine.docker("build", "--network", "none", "-t", "machine", context)
    shutil.rmtree(context)


def by_hand(programs, image):
    """Programs and units where their heads say, an engine, and the image that it is to run."""

    def fill(context):
        (context / "bin").mkdir()
        for name in ("fdn", "fdn-controller", "fdn-dns", "fdn-edge-agent"):
            shutil.copy(programs / name, context / "bin" / name)
        shutil.copytree(UNITS, context / "units")
        shutil.copy(image, context / "probe.tar")

    return "docker.io", fill, "COPY bin /usr/local/bin\nCOPY units /etc/systemd/system\nCOPY probe.tar /root/\n"


def installed(two, what):
    """A drop-in of the agent's unit, by the commands in its head; the agent's process then."""
    two.sh("cd /etc/systemd/system\n" + head(f"fdn-edge-agent-{what}.conf", ("install", "systemctl")))
    two.settled("fdn-edge-agent")
    pid = two.sh("systemctl show -p MainPID --value fdn-edge-agent").strip()
    status = dict(line.split(":", 1) for line in two.sh(f"cat /proc/{pid}/status").splitlines())
    # Those by their numbers in linux/capability.h: DAC_OVERRIDE 1, NET_BIND_SERVICE 10, SYS_PTRACE 19, SYS_ADMIN 21.
    wanted = {"low-ports": {10}, "containers": {1, 10, 19, 21}}[what]
    held = int(status["CapEff"], 16)
    if status["Uid"].split()[0] == "0" or {number for number in range(64) if held >> number & 1} != wanted:
        raise Failed(f"with {what} the agent runs as {status['Uid'].split()[0]} with the capabilities {held:x}")


def low_ports(two):
    """A gateway with TLS at port 443."""
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=fn.test -addext subjectAltName=DNS:*.fn.test"
    subprocess.run(f"{make} -keyout zone.key -out zone.crt".split(), cwd=two.engine.folder, check=True, capture_output=True)
    for name in ("zone.crt", "zone.key"):
        two.write(f"/root/{name}", (two.engine.folder / name).read_text())
    two.sh("cd /root && install -o fdn -g fdn -m 0644 zone.crt /etc/fdn/zone.crt\n" + re.search(r"install -o fdn .*", (UNITS / "fdn-edge-agent-low-ports.conf").read_text()).group())
    two.sh("cat >> /etc/fdn/edge-agent.toml", input=TLS)
    installed(two, "low-ports")
    call = "curl -sS --fail --max-time 10 --cacert /root/zone.crt --resolve hello.fn.test:443:127.0.0.1 -d world https://hello.fn.test/"
    until("the function at port 443", lambda: "world" in two.sh(call))
    say("with low-ports.conf the agent answers at port 443, as an ordinary user")


def containers(one, two):
    """An image that is deployed and called, on an engine of the machine."""
    parent = next(line.split(":")[2] for line in two.sh("cat /proc/1/cgroup").splitlines() if ":memory:" in line)
    two.write("/etc/systemd/system/docker.service", DOCKER.format(parent=parent.removesuffix("/init.scope")))
    two.sh("groupadd --system --force docker && systemctl daemon-reload && systemctl start docker")
    # The socket is not the agent's before its drop-in is there.
    two.sh("! setpriv --reuid fdn --regid fdn --clear-groups curl -sS --fail --unix-socket /var/run/docker.sock http://docker/_ping 2>/dev/null")
    two.sh("cat >> /etc/fdn/edge-agent.toml", input=CONTAINERS)
    installed(two, "containers")
    one.write("/root/box.toml", 'runtime = "docker"\nmemory = "32MiB"\n')
    one.sh("fdn deploy box /root/probe.tar --manifest /root/box.toml --no-wait")
    call = "curl -sS --fail --max-time 10 -H 'Host: box.fn.test' http://127.0.0.1:8080/"
    until("the container", lambda: two.sh(call) == "hello")
    networks = two.sh("docker ps -q | xargs docker inspect --format '{{.HostConfig.NetworkMode}} {{.State.Running}}'").split("\n")
    if "none true" not in networks:
        raise Failed(f"containers run otherwise than alone: {networks}")
    paused = "curl -sS http://127.0.0.1:8081/metrics | grep 'fdn_agent_instances.*paused.* [1-9]'"
    until("a paused container", lambda: two.sh(paused))
    frozen = two.sh("docker ps --format '{{.Status}}'")
    if "Paused" in frozen:
        raise Failed(f"the engine paused it, not the agent by its control group: {frozen}")
    until("the container is woken", lambda: two.sh(call) == "hello")
    say("with containers.conf the agent runs an image on its machine's engine, pauses and wakes it by its control group, as an ordinary user")


def story(engine, machines):
    def machine(name, network, **more):
        machines.append(Machine(engine, name, network, **more))
        return machines[-1]

    one = machine("one", "none")
    one.write("/root/settings/controller.toml", CONTROLLER)
    for name in ("network.token", "network.key", "master.key", "database.password", "broker.password"):
        one.sh(f"head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' > /root/settings/{name}")
    one.sh("cd /root/settings\n" + head("fdn-controller.service", ("useradd", "install")))
    one.start("fdn-controller")
    until("the controller", lambda: one.sh("curl -sS --fail http://127.0.0.1:8600/healthz"))
    one.sh("fdn login http://127.0.0.1:8600 --password-file /var/lib/fdn-controller/admin.password")
    one.sh("fdn deploy hello /root/hello.wasm --no-wait")
    say("fdn-controller runs, and has compiled an upload")

    two = machine("two", "container:one", runs=True)
    two.sh(head("fdn-edge-agent.service", ("useradd", "install")))
    one.sh("fdn cluster create eu-west --region eu --location 53.35,-6.26")
    two.write("/tmp/token", one.sh("fdn node token --cluster eu-west"))
    two.sh("chown fdn /tmp/token && setpriv --reuid fdn --regid fdn --clear-groups fdn-edge-agent join http://127.0.0.1:8600 --token-file /tmp/token --node n-1")
    two.start("fdn-edge-agent")
    call = "curl -sS --fail --max-time 10 -H 'Host: hello.fn.test' -d world http://127.0.0.1:8080/"
    until("the function", lambda: "world" in two.sh(call))
    say("fdn-edge-agent has joined, and answers a call")

    three = machine("three", "container:one")
    three.write("/root/dns.toml", DNS)
    three.sh("cd /root\n" + head("fdn-dns.service", ("useradd", "install")))
    three.write("/tmp/token", one.sh("fdn dns token --cluster eu-west"))
    three.sh("chown fdn-dns /tmp/token && setpriv --reuid fdn-dns --regid fdn-dns --clear-groups fdn-dns join http://127.0.0.1:8600 --token-file /tmp/token --config /etc/fdn/dns.toml")
    three.start("fdn-dns")
    until("DNS is told of the function", lambda: "fdn_dns_apps 1" in three.sh("curl -sS http://127.0.0.1:8602/metrics"))
    pid = engine.docker("inspect", "--format", "{{.State.Pid}}", "one").strip()
    ask = ["nsenter", f"--net=/proc/{pid}/ns/net", "dig", "@127.0.0.1", "ns1.fn.test", "+short"]
    until("an answer at port 53", lambda: "127.0.0.1" in engine.run(*ask))
    say("fdn-dns answers at port 53 as an ordinary user")

    low_ports(two)
    containers(one, two)

    for one_of, unit in zip(machines, ("fdn-controller", "fdn-edge-agent", "fdn-dns")):
        one_of.settled(unit)
    for one_of, unit in zip(machines, ("fdn-controller", "fdn-edge-agent", "fdn-dns")):
        one_of.sh(f"systemctl stop {unit}")
        result = one_of.sh(f"systemctl show -p Result {unit}").strip()
        if result != "Result=success":
            raise Failed(f"{unit} stops with {result}")
    say("none was started twice, and all stop in order")


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    machines = []
    try:
        with Groups(), Engine() as engine:
            image(engine, *by_hand(Path(sys.argv[1]).resolve(), probe_image(engine, engine.folder)))
            say("the image is made")
            try:
                story(engine, machines)
            except (Failed, subprocess.CalledProcessError) as reason:
                print(f"{reason} {getattr(reason, 'stderr', '')}")
                print("\n".join(machine.log() for machine in machines))
                # What stands still in a control group outlives its machine: the agent ends its containers first.
                for machine in machines[1:2]:
                    machine.sh("systemctl stop fdn-edge-agent || true")
                raise
    except (Failed, subprocess.CalledProcessError) as reason:
        print(f"error: {str(reason)[:300]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
