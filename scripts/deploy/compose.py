#!/usr/bin/env python3
"""Runs deploy/compose.yml as it stands, on the programs of a folder (`make soak GROUP=deploy`).

    scripts/deploy/compose.py PROGRAMS

On an engine of its own: images are made, secrets too, all services start, a function is deployed and called through each gateway and by the
answers of DNS. No container has another service's secret. Each service is killed in turn and comes back; all are upgraded while clients call, as
docs/operations/upgrade.md says; what was deployed outlives `down` and `up`. There is no registry here: the images
of PostgreSQL and RabbitMQ are Debian's packages of them with entry points that do what the official ones do, as far as the compose file relies on
it, and refuse what those refuse.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from engine import Engine, Failed, until

ROOT = Path(__file__).resolve().parent.parent.parent
GATEWAYS = {"eu-west-1": 8081, "us-east-1": 8082, "ap-south-1": 8083}
# Whose secrets are whose; the broker's settings hold its password.
SECRETS = {
    "postgres": {"database.password"},
    "rabbitmq": {"broker.conf", "broker.password"},
    "controller": {"network.token", "network.key", "broker.password", "database.password"},
    "dns": set(),
    **{gateway: set() for gateway in GATEWAYS},
}

# Where a container keeps what it was given or has made.
FOLDERS = ("run", "etc", "var/lib", "tokens", "controller", "tmp", "dev/shm")

POSTGRES = r"""#!/bin/bash
# First an empty volume becomes a cluster of databases, then the server runs.
set -eu
export PGDATA=/var/lib/postgresql/data
bin=/usr/lib/postgresql/15/bin
as() { setpriv --reuid postgres --regid postgres --clear-groups "$@"; }
mkdir -p "$PGDATA" /var/run/postgresql
chown postgres:postgres "$PGDATA" /var/run/postgresql
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  password=$(mktemp)
  cat "$POSTGRES_PASSWORD_FILE" > "$password"
  chown postgres "$password"
  as "$bin/initdb" --username "$POSTGRES_USER" --pwfile "$password" --auth-host scram-sha-256 --encoding UTF8 --locale C.UTF-8 >/dev/null
  rm "$password"
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  as "$bin/pg_ctl" -w start -o "-c listen_addresses=''" >/dev/null
  as "$bin/createdb" --username "$POSTGRES_USER" "$POSTGRES_DB" 2>/dev/null || true
  as "$bin/pg_ctl" -w stop >/dev/null
fi
exec setpriv --reuid postgres --regid postgres --clear-groups "$bin/postgres" -c listen_addresses='*'
"""

RABBITMQ = r"""#!/bin/bash
set -eu
for name in RABBITMQ_DEFAULT_USER_FILE RABBITMQ_DEFAULT_PASS_FILE RABBITMQ_VM_MEMORY_HIGH_WATERMARK; do
  if [ -n "${!name:-}" ]; then
    echo "error: $name is set but deprecated" >&2
    exit 1
  fi
done
chown -R rabbitmq:rabbitmq /var/lib/rabbitmq /var/log/rabbitmq
export HOME=/var/lib/rabbitmq RABBITMQ_LOGS=-
exec setpriv --reuid rabbitmq --regid rabbitmq --clear-groups /usr/lib/rabbitmq/bin/rabbitmq-server
"""


def images(engine, programs):
    engine.image("debian:bookworm-slim", "", "CMD bash")
    # Their own users, as their packages make them.
    make = lambda name, home: f"useradd --system --home-dir {home} --user-group {name} && install -d -o {name} -g {name}"
    entry = ("/usr/local/bin/docker-entrypoint.sh", 0o755)
    engine.image("packages-postgres", "postgresql-15", files=[(entry[0], POSTGRES, entry[1])])
    engine.image("packages-rabbitmq", "rabbitmq-server", files=[(entry[0], RABBITMQ, entry[1])])
    builds = {
        "postgres:15": f"FROM packages-postgres\nRUN {make('postgres', '/var/lib/postgresql')} /var/lib/postgresql/data\n",
        "rabbitmq:3": f"FROM packages-rabbitmq\nRUN {make('rabbitmq', '/var/lib/rabbitmq')} /var/lib/rabbitmq /var/log/rabbitmq /etc/rabbitmq/conf.d\n",
    }
    for tag, text in builds.items():
        text += f'ENV PATH=/usr/lib/postgresql/15/bin:/usr/local/bin:/usr/sbin:/usr/bin\nENTRYPOINT ["{entry[0]}"]\n'
        engine.docker("build", "--network", "none", "-t", tag, "-", input=text)
    # The file of deploy/, on programs that are there already.
    context = engine.folder / "programs"
    context.mkdir()
    for name in ("fdn", "fdn-controller", "fdn-dns", "fdn-edge-agent"):
        os.link(programs / name, context / name) if same_disk(programs, context) else shutil.copy(programs / name, context / name)
    file = ROOT / "deploy/Dockerfile"
    engine.docker("build", "--network", "none", "--target", "given", "--build-arg", "PACKAGES=", "-t", "fdn", "-f", file, context)
    shutil.rmtree(context)


def same_disk(one, other):
    return one.stat().st_dev == other.stat().st_dev


class Network:
    """The compose project, and what people do with it."""

    def __init__(self, engine, programs, folder):
        self.engine, self.programs = engine, programs
        # A copy, so that no secrets come into the work tree.
        self.deploy = folder / "deploy"
        shutil.copytree(ROOT / "deploy", self.deploy, ignore=shutil.ignore_patterns("secrets"))
        subprocess.run([self.deploy / "secrets.sh"], check=True, capture_output=True)
        keys = {path.name: path.read_text() for path in (self.deploy / "secrets").iterdir()}
        subprocess.run([self.deploy / "secrets.sh"], check=True, capture_output=True)
        if keys != {path.name: path.read_text() for path in (self.deploy / "secrets").iterdir()}:
            raise Failed("secrets.sh makes secrets anew that are there already")
        if (self.deploy / "secrets").stat().st_mode & 0o777 != 0o700:
            raise Failed("others can enter the folder of the secrets")
        # Debian's docker-compose is older than this key; the flag says the same.
        file = self.deploy / "compose.yml"
        file.write_text(file.read_text().replace("\nname: fdn\n", "\n"))
        self.home = folder / "home"
        self.home.mkdir()

    def compose(self, *words):
        return self.engine.run("docker-compose", "--ansi", "never", "-p", "fdn", "-f", self.deploy / "compose.yml", *words)

    def save(self, path, *words):
        self.pipe(words, stdout=open(path, "wb"))

    def load(self, path, *words):
        self.pipe(words, stdin=open(path, "rb"))

    def pipe(self, words, **ends):
        argv = ["docker-compose", "--ansi", "never", "-p", "fdn", "-f", self.deploy / "compose.yml", *words]
        ends = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **ends}
        done = subprocess.run([str(word) for word in argv], env=self.engine.environment, stderr=subprocess.PIPE, check=False, **ends)
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, argv, "", done.stderr.decode())

    def fdn(self, *words, **more):
        env = {"HOME": self.home, "XDG_CONFIG_HOME": self.home / "config", "XDG_DATA_HOME": self.home / "share"}
        assignments = [f"{name}={value}" for name, value in env.items()]
        return self.engine.inside("env", *assignments, self.programs / "fdn", *words, **more)

    def container(self, service):
        return self.compose("ps", "-q", service).strip()

    def inspect(self, service, what):
        return self.engine.docker("inspect", "--format", "{{" + what + "}}", self.container(service)).strip()

    def login(self):
        password = self.compose("exec", "-T", "controller", "cat", "/var/lib/fdn/admin.password")
        self.fdn("login", "http://127.0.0.1:8600", input=password)
        return True

    def call(self, app, port, address="127.0.0.1"):
        host = f"Host: {app}.fn.test"
        answer = self.engine.inside("curl", "-sS", "--fail", "--max-time", "10", "-H", host, "-d", "world", f"http://{address}:{port}/")
        if "world" not in answer:
            raise Failed(f"{app} answers: {answer}")
        return True

    def resolve(self, app):
        asked = self.engine.inside("dig", "@127.0.0.1", "-p", "5300", f"{app}.fn.test", "+short", "+time=2", "+tries=1")
        addresses = [line for line in asked.split() if line.startswith("10.86.0.2")]
        return addresses

    def works(self, app):
        """Through each gateway, and at the address that DNS names."""
        for service, port in GATEWAYS.items():
            until(f"{app} at {service}", lambda port=port: self.call(app, port))
        address = until(f"the address of {app}", lambda: self.resolve(app))[0]
        until(f"{app} at {address}", lambda: self.call(app, 8080, address))

    def kill(self, service):
        before = int(self.inspect(service, ".RestartCount"))
        os.kill(int(self.inspect(service, ".State.Pid")), signal.SIGKILL)
        until(f"{service} is started again", lambda: int(self.inspect(service, ".RestartCount")) > before)

    def settled(self):
        """All services run and have stopped dying: the first start of a controller may be before its database's."""
        for service in SECRETS:
            until(f"{service} runs", lambda service=service: self.inspect(service, ".State.Running") == "true")

    def logs(self):
        return self.compose("logs", "--no-color", "--tail", "15")


def say(line):
    print(line, flush=True)


class Clients:
    """Someone at each gateway who calls over and over again. Whose call is not answered may ask the next gateway, as its resolver would be told."""

    def __init__(self, network, app):
        self.network, self.app, self.stopped = network, app, threading.Event()
        self.answered, self.failed = dict.fromkeys(GATEWAYS, 0), []
        self.threads = [threading.Thread(target=self.go, args=(service, port)) for service, port in GATEWAYS.items()]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def go(self, service, port):
        while not self.stopped.is_set():
            began = time.monotonic()
            try:
                self.network.call(self.app, port)
                self.answered[service] += 1
            except (Failed, subprocess.CalledProcessError) as reason:
                self.failed.append((began, time.monotonic(), service, f"{reason} {getattr(reason, 'stderr', '')}"))
            self.stopped.wait(0.1)

    def failures(self, since, but=None):
        """Calls that were begun since then and not answered, at other gateways than `but`."""
        return [f"{service}: {reason}" for began, _, service, reason in list(self.failed) if began >= since and service != but]


def upgraded(network):
    """The commands of docs/operations/upgrade.md for Compose, with an image of the same programs that says that it is another release's."""
    text = (ROOT / "docs/operations/upgrade.md").read_text()
    found = re.search(r"\*\*Compose\.\*\*.*?```sh\n(.*?)```", text, re.S)
    said = [line.split("#")[0].strip() for line in found.group(1).splitlines()] if found else []
    words = [line.removeprefix("docker compose -f deploy/compose.yml ").split() for line in said if line]
    services = [line[-1] for line in words if line[:-1] == ["up", "-d", "--no-deps"]]
    if sorted(services) != sorted(["controller", "dns", *GATEWAYS]) or words[len(services) :] != [["up", "-d"]]:
        raise Failed(f"docs/operations/upgrade.md says how to upgrade with Compose in other words: {said}")
    before = {service: network.container(service) for service in SECRETS}
    volumes = network.engine.docker("volume", "ls", "-q").split()
    network.engine.docker("build", "--network", "none", "-t", "fdn", "-", input="FROM fdn\nLABEL org.opencontainers.image.revision=later\n")
    with Clients(network, "hello") as clients:
        for service in services:
            begin = time.monotonic()
            network.compose("up", "-d", "--no-build", "--no-deps", service)
            if service in GATEWAYS:
                until(f"{service} after its upgrade", lambda port=GATEWAYS[service]: network.call("hello", port))
            elif service == "controller":
                until("the API after its upgrade", lambda: network.fdn("list"))
            until("DNS", lambda: network.resolve("hello"))
            failed = clients.failures(begin, service)
            if failed:
                raise Failed(f"while {service} was replaced, calls at other gateways failed: {failed[:3]}")
            say(f"upgrade: {service} was replaced in {time.monotonic() - begin:.1f} s; every call at {'the other gateways' if service in GATEWAYS else 'each gateway'} was answered")
        begin = time.monotonic()
        network.compose("up", "-d", "--no-build")
        network.works("hello")
        failed = clients.failures(begin)
        if failed or not all(clients.answered.values()):
            raise Failed(f"calls after the upgrade: {clients.answered} {failed[:3]}")
    after = {service: network.container(service) for service in SECRETS}
    kept = {service for service in SECRETS if before[service] == after[service]}
    if kept != {"postgres", "rabbitmq"}:
        raise Failed(f"not replaced: {kept}")
    for service in services:
        if network.inspect(service, 'index .Config.Labels "org.opencontainers.image.revision"') != "later":
            raise Failed(f"{service} runs the image of before")
    if sorted(network.engine.docker("volume", "ls", "-q").split()) != sorted(volumes):
        raise Failed("an upgrade makes or loses volumes")
    until("the account after the upgrade", lambda: "again" in network.fdn("list", "-o", "name"))
    until("a deploy after the upgrade", lambda: network.fdn("deploy", "later", ROOT / "functions/hello/hello.wasm", "--timeout", "1m"))
    network.works("later")
    say(f"upgraded: {sum(clients.answered.values())} calls were answered, {len(clients.failed)} were not, each at the gateway that was just replaced")


def held(network, service, value):
    """Files of a service's container that have this text in them, whoever may read them there; its first process's environment too."""
    process = Path("/proc") / network.inspect(service, ".State.Pid")
    places = [path for path in (process / "root" / folder for folder in FOLDERS) if path.exists()]
    done = subprocess.run(["grep", "-rlsF", "-f", "-", *map(str, places)], input=value + "\n", capture_output=True, text=True, check=False)
    if value.encode() in (process / "environ").read_bytes():
        return [*done.stdout.split(), "its environment"]
    return done.stdout.split()


def apart(network):
    """What is one service's secret is nowhere in another one's container, not even for its root."""
    values = {path.name: path.read_text().strip() for path in (network.deploy / "secrets").iterdir()}
    admin = network.compose("exec", "-T", "controller", "cat", "/var/lib/fdn/admin.password").strip()
    for service, own in SECRETS.items():
        for name, value in values.items():
            found = held(network, service, value)
            if bool(found) != (name in own):
                raise Failed(f"{service} {'has' if found else 'lacks'} the secret {name}: {found}")
        if service != "controller" and held(network, service, admin):
            raise Failed(f"{service} has the administrator's password")
        # Each sees the token that was made for it alone.
        if service in GATEWAYS:
            for other in GATEWAYS:
                token = network.compose("exec", "-T", other, "cat", "/tokens/token").strip()
                if bool(held(network, service, token)) != (other == service):
                    raise Failed(f"{service} {'lacks its own' if other == service else 'has the'} token of {other}")
    say("no container has another service's secret, the administrator's password or another machine's token")


def story(network):
    hello = ROOT / "functions/hello/hello.wasm"
    network.compose("up", "-d", "--no-build")
    network.settled()
    until("the API", lambda: network.login())
    # All three gateways must be heard, or a deploy waits for fewer.
    until("three nodes", lambda: network.fdn("node", "list", "-o", "json").count('"alive"') >= 3)
    network.fdn("deploy", "hello", hello, "--timeout", "5m")
    network.works("hello")
    say("up: a function answers at each gateway, and where DNS says")
    apart(network)
    for service in ("eu-west-1", "dns", "controller", "rabbitmq", "postgres"):
        network.kill(service)
        network.works("hello")
        until("the API", lambda: network.fdn("list"))
        say(f"{service} was killed and came back")
    # Deploying needs database, broker and all nodes.
    until("a second deploy", lambda: network.fdn("deploy", "again", hello, "--timeout", "1m"))
    network.works("again")
    say("a second function is deployed")
    upgraded(network)
    network.compose("down")
    network.compose("up", "-d", "--no-build")
    network.works("hello")
    until("what was deployed is known", lambda: "again" in network.fdn("list", "-o", "name"))
    network.works("again")
    say("down and up: the functions, the account and its token are there")
    restored(network)
    network.compose("down", "-v")
    left = network.engine.docker("volume", "ls", "-q").split()
    if left:
        raise Failed(f"volumes are left: {left}")


def restored(network):
    """The backup of docs/operations/backup.md brings everything back onto empty volumes."""
    archive = network.deploy / "fdn.backup"
    program = ("fdn-controller", "--config", "/etc/fdn/controller.toml")
    network.save(archive, "exec", "-T", "controller", *program, "backup", "--with-keys", "-")
    network.compose("down", "-v")
    network.compose("up", "-d", "--no-build", "postgres")
    # Over TCP, where the server that makes the database does not listen.
    until("the database", lambda: network.compose("exec", "-T", "postgres", "pg_isready", "-h", "postgres"))
    network.load(archive, "run", "--rm", "-T", "--no-deps", "controller", *program, "restore", "-")
    network.compose("up", "-d", "--no-build")
    network.works("hello")
    network.works("again")
    until("the account's token", lambda: "again" in network.fdn("list", "-o", "name"))
    say("a backup was restored onto empty volumes")


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    programs = Path(sys.argv[1]).resolve()
    try:
        with Engine() as engine:
            images(engine, programs)
            say("images are made")
            # In the engine's folder, which its keeper removes however this ends.
            network = Network(engine, programs, engine.folder)
            try:
                story(network)
            except (Failed, subprocess.CalledProcessError) as reason:
                print(f"{reason} {getattr(reason, 'stderr', '')}\n{network.logs()}")
                raise
    except Failed as reason:
        print(f"error: {reason}")
        return 1
    except subprocess.CalledProcessError as failed:
        print(f"error: {failed}\n{failed.stderr}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
