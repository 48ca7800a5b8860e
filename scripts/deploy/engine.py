"""A throw-away Docker engine in a network namespace of its own, and images made of this machine's Debian packages: no registry is asked, and
nothing listens on the machine."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# Patience for what starts; a loaded machine takes its time.
PATIENCE_S = 300

# It waits for the end of its owner, however that comes, and ends what the engine runs before the engine.
KEEPER = r"""
folder=$1
unshare --net sh -c 'ip link set lo up && exec dockerd --data-root "$1/data" --exec-root "$1/exec" --pidfile "$1/pid" --host "unix://$1/docker.sock" \
  --bridge none --iptables=false --ip6tables=false --shutdown-timeout 1 --log-level warn' engine "$folder" >"$folder/log" 2>&1 </dev/null &
engine=$!
read -r _
ask() { curl --silent --unix-socket "$folder/docker.sock" "$@"; }
for id in $(ask "http://docker/containers/json?all=1" | grep -o '"Id":"[0-9a-f]*"' | cut -d '"' -f 4); do
  ask -X DELETE "http://docker/containers/$id?force=1&v=1"
done
ask -X POST http://docker/networks/prune
kill -TERM "$engine" 2>/dev/null
wait "$engine"
umount "$folder"/exec/netns/* 2>/dev/null
rm -rf "$folder"
"""

# What every image holds.
BASE = "base-files base-passwd bash coreutils curl ca-certificates dash debianutils dpkg findutils grep gzip hostname libc-bin login mawk passwd procps sed tar util-linux"


class Failed(Exception):
    """With a message for people."""


def until(what, look, patience=PATIENCE_S, guard=lambda: None):
    """Waits for a condition; `guard` says by an exception that it will never come."""
    end = time.monotonic() + patience
    reason = "nothing yet"
    while time.monotonic() < end:
        guard()
        try:
            found = look()
            if found:
                return found
        except (OSError, subprocess.CalledProcessError) as cause:
            reason = f"{cause} {getattr(cause, 'stderr', '') or ''}".strip()
        time.sleep(0.5)
    raise Failed(f"{what}: not within {patience} s ({reason})")


class Engine:
    """Use it in a `with`."""

    def __enter__(self):
        # The name is one that scripts/test.py sweeps if its keeper is gone. Short: the path of a Unix socket has 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="fdn-docker-"))
        self.keeper = subprocess.Popen(
            ["setsid", "-w", "sh", "-c", KEEPER, "keeper", self.folder], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.environment = {**os.environ, "DOCKER_HOST": f"unix://{self.folder}/docker.sock", "DOCKER_BUILDKIT": "0"}
        try:
            until("the engine", lambda: self.docker("version"), guard=self.guard)
        except BaseException:
            self.__exit__()
            raise
        return self

    def guard(self):
        if self.keeper.poll() is not None:
            raise Failed("the engine's keeper has ended")

    def __exit__(self, *_):
        self.keeper.stdin.close()
        self.keeper.wait()

    def docker(self, *words, **more):
        return self.run("docker", *words, **more)

    def run(self, *words, **more):
        """Runs a program that talks to the engine; its standard output."""
        done = subprocess.run(
            [str(word) for word in words], env=self.environment, capture_output=True, text=True, check=False, **more
        )
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stdout[-2000:] + done.stderr[-4000:])
        return done.stdout

    def inside(self, *words, **more):
        """Runs a program where the engine's networks and published ports are."""
        pid = (self.folder / "pid").read_text().strip()
        return self.run("nsenter", f"--net=/proc/{pid}/ns/net", *words, **more)

    def image(self, tag, packages, *changes, files=()):
        """An image of these packages and what they need, as this machine has them. `files`: (path in the image, text, mode)."""
        root = self.folder / "root"
        shutil.rmtree(root, ignore_errors=True)
        debian(root, packages, files)
        pack = subprocess.Popen(["tar", "-C", root, "-cf", "-", "."], stdout=subprocess.PIPE)
        flags = [word for change in changes for word in ("--change", change)]
        self.docker("import", *flags, "-", tag, stdin=pack.stdout)
        pack.wait()
        shutil.rmtree(root)


def probe_image(engine, folder):
    """An archive of an image that holds the tests' small HTTP server alone; `/exit` ends it, `/sleep/MS` takes that long."""
    context = folder / "probe"
    context.mkdir()
    flags = ["--edition", "2024", "-O", "-C", "strip=symbols", "-C", "target-feature=+crt-static"]
    done = subprocess.run(["rustc", *flags, "-o", context / "probe", ROOT / "testkit/probe/main.rs"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"the probe cannot be compiled: {done.stderr}")
    (context / "Dockerfile").write_text('FROM scratch\nCOPY probe /probe\nENTRYPOINT ["/probe"]\n')
    engine.docker("build", "--network", "none", "-t", "probe", context)
    engine.docker("save", "-o", folder / "probe.tar", "probe")
    # It comes to the engine as an upload alone.
    engine.docker("rmi", "probe")
    return folder / "probe.tar"


def debian(root, packages, files=()):
    """A Debian in the folder `root`: these packages and what they need, as this machine has them, and known to its dpkg. `files`: (path in it, text, mode)."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("etc", "tmp", "run", "proc", "sys", "dev", "var/lib", "root"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    names = closure(f"{BASE} {packages}".split())
    listed = subprocess.run(["dpkg", "-L", *names], capture_output=True, text=True, check=True).stdout
    # Not what only people read, and the links that packages' own scripts made.
    paths = {line for line in listed.splitlines() if line.startswith("/") and not re.match(r"/usr/share/(doc|man|locale|info)/|/\.$", line)}
    paths |= {"/etc/alternatives", "/etc/ssl/certs", "/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/nsswitch.conf"}
    paths |= {str(path) for folder in ("/etc/alternatives", "/etc/ssl/certs") for path in Path(folder).iterdir()}
    paths |= {str(path) for path in (Path("/bin") / "sh", Path("/usr/bin/awk")) if path.exists()}
    chosen = "\n".join(path.lstrip("/") for path in sorted(paths) if os.path.lexists(path) and path not in ("/bin", "/sbin", "/lib", "/lib64"))
    with tempfile.NamedTemporaryFile("w") as list_of_them:
        list_of_them.write(chosen)
        list_of_them.flush()
        pack = subprocess.Popen(["tar", "-C", "/", "--no-recursion", "-T", list_of_them.name, "-cf", "-"], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-C", root, "--keep-directory-symlink", "-xpf", "-"], stdin=pack.stdout, check=True)
        if pack.wait():
            raise Failed("tar cannot read this machine's packages")
    # The base files' own users and no others: those of this machine are nobody's affair.
    for name in ("passwd", "group"):
        shutil.copy(f"/usr/share/base-passwd/{name}.master", root / "etc" / name)
    (root / "etc/shadow").write_text("")
    known(root, names)
    for path, text, mode in files:
        (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / path.lstrip("/")).write_text(text)
        (root / path.lstrip("/")).chmod(mode)


def known(root, names):
    """Tells the dpkg of `root` what is installed there. Without the packages' triggers: nothing of theirs is to run."""
    place = root / "var/lib/dpkg"
    for name in ("info", "updates", "triggers"):
        (place / name).mkdir(parents=True, exist_ok=True)
    about = subprocess.run(["dpkg-query", "--status", *names], capture_output=True, text=True, check=True).stdout
    (place / "status").write_text(about)
    (place / "available").write_text("")
    for name in names:
        for found in [*Path("/var/lib/dpkg/info").glob(f"{name}.list"), *Path("/var/lib/dpkg/info").glob(f"{name}:*.list")]:
            shutil.copy(found, place / "info")
    (place / "info/format").write_text("1\n")


def closure(names):
    """Installed packages, with all that they depend on."""
    shown = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status}\t${Package}\t${Pre-Depends},${Depends}\t${Provides}\n"], capture_output=True, text=True, check=True
    ).stdout
    needs, provided = {}, {}
    bare = lambda text: re.sub(r"\(.*?\)|:\w+|\s", "", text)
    for line in shown.splitlines():
        status, package, depends, provides = line.split("\t")
        if status != "installed":
            continue
        needs[package] = [[bare(one) for one in group.split("|")] for group in depends.split(",") if bare(group)]
        provided.update({bare(one): package for one in provides.split(",") if bare(one)})
    found, waiting = set(), list(names)
    while waiting:
        name = waiting.pop()
        name = name if name in needs else provided.get(name)
        if name is None or name in found:
            continue
        found.add(name)
        for group in needs[name]:
            there = [one for one in group if one in needs or one in provided]
            if not there:
                raise Failed(f"{name} needs {' or '.join(group)}, which is not installed")
            waiting.append(there[0])
    missing = [name for name in names if name not in found and name not in provided]
    if missing:
        raise Failed(f"not installed: {' '.join(missing)}")
    return sorted(found)
