#!/usr/bin/env python3
"""Starts the units of deploy/systemd under a systemd, each on a machine of its own made of a container (`make soak GROUP=deploy`).

    scripts/deploy/services.py PROGRAMS

Users and folders are made by the commands in the heads of the units. A function is uploaded, which the controller compiles
in its sandbox, and called through the agent's; DNS answers for it at port 53. There is no broker: the controller reads what is deployed from its database. Agent and DNS server join with tokens.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from engine import Engine, Failed, until

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


class Machine:
    """A container with systemd as its first process, in the network of the first machine."""

    def __init__(self, engine, name, network):
        self.engine, self.name = engine, name
        # Neither privileged nor with the kernel's settings writable: enough for systemd to make its services' sandboxes.
        flags = ["--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined", "--cgroupns", "host"]
        flags += ["--tmpfs", "/run", "--tmpfs", "/tmp", "-e", "container=docker", "-v", "/sys/fs/cgroup/systemd:/sys/fs/cgroup/systemd:rw"]
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


def by_hand(programs):
    """Programs and units where their heads say."""

    def fill(context):
        (context / "bin").mkdir()
        for name in ("fdn", "fdn-controller", "fdn-dns", "fdn-edge-agent"):
            shutil.copy(programs / name, context / "bin" / name)
        shutil.copytree(UNITS, context / "units")

    return "", fill, "COPY bin /usr/local/bin\nCOPY units /etc/systemd/system\n"


def story(engine, machines):
    def machine(name, network):
        machines.append(Machine(engine, name, network))
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

    two = machine("two", "container:one")
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
        with Engine() as engine:
            image(engine, *by_hand(Path(sys.argv[1]).resolve()))
            say("the image is made")
            try:
                story(engine, machines)
            except (Failed, subprocess.CalledProcessError) as reason:
                print(f"{reason} {getattr(reason, 'stderr', '')}")
                print("\n".join(machine.log() for machine in machines))
                raise
    except (Failed, subprocess.CalledProcessError) as reason:
        print(f"error: {str(reason)[:300]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
