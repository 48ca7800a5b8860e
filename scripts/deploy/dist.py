#!/usr/bin/env python3
"""Makes a release of the programs of a folder, and looks at all that is in it.

    scripts/deploy/dist.py PROGRAMS            everything that needs no engine: seconds (`make test`)
    scripts/deploy/dist.py PROGRAMS machines   packages and images on machines, as people use them (`make soak GROUP=deploy`; machines.py)

The release is made twice, by two users' habits, and must be the same bytes. Packages are installed, upgraded, removed and purged in a Debian of
this machine's packages, as the bundle's own script does it; each image's program starts in a root of the image's layers alone, as its user.
"""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from engine import Failed, debian

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from release import build, common, image, package  # noqa: E402

SERVICES = {"fdn-controller": "fdn-controller", "fdn-dns": "fdn-dns", "fdn-edge-agent": "fdn"}


def say(line):
    print(line, flush=True)


def sh(*argv, **more):
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False, **more)
    if done.returncode:
        raise Failed(f"{' '.join(str(word) for word in argv)}: {(done.stdout + done.stderr).strip()[-2000:]}")
    return done.stdout


def must(holds, what):
    if not holds:
        raise Failed(what)


def stripped(programs, folder):
    """The programs as a release has them: a build for tests keeps more."""
    folder.mkdir()
    for name in common.PROGRAMS:
        sh("strip", "-o", folder / name, programs / name)
    return folder


def twice(programs, folder):
    """The release, if making it again with other habits gives the same bytes."""
    outs = [folder / "one", folder / "two"]
    habits = [{"umask": 0o022}, {"umask": 0o077, "cwd": "/", "env": {**os.environ, "TZ": "Asia/Tokyo", "LC_ALL": "C", "HOME": os.environ.get("HOME", "/root")}}]
    made = [
        subprocess.Popen([ROOT / "scripts/dist.py", "--programs", programs, "--out", out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **habit)
        for out, habit in zip(outs, habits)
    ]
    said = [child.communicate()[0] for child in made]
    must(not any(child.returncode for child in made), "\n".join(said))
    names = [sorted(path.name for path in out.iterdir()) for out in outs]
    must(names[0] == names[1], f"not the same files: {names}")
    differing = [name for name in names[0] if common.digest(outs[0] / name) != common.digest(outs[1] / name)]
    must(not differing, f"made twice, these differ: {differing}")
    sh("sha256sum", "--quiet", "--strict", "--check", "SHA256SUMS", cwd=outs[0])
    must(len((outs[0] / "SHA256SUMS").read_text().splitlines()) == len(names[0]) - 1, "SHA256SUMS does not name every file")
    shutil.rmtree(outs[1])
    return outs[0], said[0]


def one(out, beginning, ending):
    found = [path for path in out.iterdir() if re.match(re.escape(beginning) + r"[-_]\d", path.name) and path.name.endswith(ending)]
    must(len(found) == 1, f"{beginning}…{ending}: {len(found)} files")
    return found[0]


def packages(out, told):
    """What dpkg says of the packages."""
    for name in common.PROGRAMS:
        deb = one(out, name, ".deb")
        field = lambda what: sh("dpkg-deb", "--field", deb, what).strip()
        must(field("Package") == name and field("Version") == told.debian, f"{deb.name}: {field('Version')}")
        must("libc6 (>= " in field("Depends"), f"{name} does not depend on the C library: {field('Depends')}")
        # Times are printed in this machine's zone otherwise.
        listed = sh("dpkg-deb", "--contents", deb, env={**os.environ, "TZ": "UTC"}).splitlines()
        when = f" {told.created[:10]} {told.created[11:16]} "
        wrong = [line for line in listed if " root/root " not in line or when not in line or not re.match(r"[d-]rw[x-]r-[x-]r-[x-] ", line)]
        must(not wrong, f"{name}: {wrong}")
        paths = {line.split()[5].removeprefix(".") for line in listed}
        wanted = {f"/usr/bin/{name}", f"/usr/share/doc/{name}/copyright", f"/usr/share/doc/{name}/changelog.gz"}
        if name in SERVICES:
            wanted |= {f"/usr/lib/systemd/system/{name}.service", f"/usr/lib/sysusers.d/{name}.conf", f"/usr/share/doc/{name}/README.Debian"}
            conffiles = sh("dpkg-deb", "--info", deb, "conffiles").split()
            must(len(conffiles) == 1 and conffiles[0].endswith(".toml.sample"), f"{name}: conffiles {conffiles}")
            wanted |= set(conffiles)
        must(wanted <= paths, f"{name} lacks {wanted - paths}")
    say("packages: owners, times and paths are as they should be")


def bills(out, programs):
    """Every crate that a program's own text names is in its bill, and every bill has what the format requires."""
    locked = common.tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    sums = {(crate["name"], crate["version"]): crate.get("checksum") for crate in locked}
    for name in common.PROGRAMS:
        bill = json.loads(one(out, name, ".cdx.json").read_text())
        must((bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1), f"{name}: the bill's head")
        must(re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"]), f"{name}: {bill['serialNumber']}")
        refs = [component["bom-ref"] for component in bill["components"]] + [bill["metadata"]["component"]["bom-ref"]]
        must(len(refs) == len(set(refs)), f"{name}: a part is named twice")
        must(all(component["type"] and component["name"] for component in bill["components"]), f"{name}: a part without a name")
        ends = {edge["ref"] for edge in bill["dependencies"]} | {end for edge in bill["dependencies"] for end in edge["dependsOn"]}
        must(ends <= set(refs), f"{name}: dependencies on what is not there: {ends - set(refs)}")
        crates = {(part["name"], part["version"]): part for part in bill["components"] if part.get("purl", "").startswith("pkg:cargo/")}
        for key, crate in crates.items():
            must(key in sums, f"{name}: {key} is not in Cargo.lock")
            told = crate.get("hashes", [{}])[0].get("content")
            must(told == sums[key], f"{name}: {key} has another checksum than in Cargo.lock")
        # Where a program may panic stands in it, with the crate's folder.
        text = (programs / name).read_bytes()
        compiled = set(re.findall(rb"/registry/src/[^/\0]+/([A-Za-z0-9_-]+?)-(\d+\.\d+\.\d+[0-9A-Za-z.+-]*)/", text))
        within = {key for key, crate in crates.items() if crate["scope"] == "required"}
        missing = {(crate.decode(), version.decode()) for crate, version in compiled} - within
        must(not missing, f"{name}: its bill lacks {sorted(missing)}")
        say(f"bill of {name}: {len(crates)} crates, {len(compiled)} of which the program names; {len(bill['components']) - len(crates)} other parts")


def images(out, folder, told):
    """Digests of the layouts, and the programs on nothing but their layers."""
    for name in common.PROGRAMS:
        file = one(out, name, ".oci.tar")
        root = folder / f"root-{name}"
        root.mkdir()
        with tarfile.open(file) as archive:
            read = lambda path: archive.extractfile(path).read()
            blob = lambda descriptor: read(f"blobs/{descriptor['digest'].replace(':', '/')}")
            for path in archive.getnames():
                if path.startswith("blobs/sha256/"):
                    must(common.digest(read(path)) == path.rpartition("/")[2], f"{file.name}: {path} is another")
            (entry,) = json.loads(read("index.json"))["manifests"]
            manifest = json.loads(blob(entry))
            config = json.loads(blob(manifest["config"]))
            docker = json.loads(read("manifest.json"))[0]
        must(docker["RepoTags"] == [f"{name}:{told.version}"], f"{name}: {docker['RepoTags']}")
        must(config == image.unpack(file, root), f"{name}: the two manifests differ")
        runs = config["config"]
        must(runs["User"] == f"{common.USER}:{common.USER}" and runs["Labels"]["org.opencontainers.image.revision"] == told.revision, f"{name}: {runs}")
        must(("Healthcheck" in runs) == (name in SERVICES), f"{name}: its health check")
        loose = [str(path) for path in root.rglob("*") if path.is_file() and path.lstat().st_mode & 0o6022]
        must(not loose, f"{name}: others may write, or become others by: {loose}")
        owned = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.lstat().st_uid == common.USER}
        must(owned == {runs["WorkingDir"].lstrip("/")}, f"{name}: its user owns {owned}")
        must(not (root / "bin").exists() and {path.name for path in (root / "usr/bin").iterdir()} == {name}, f"{name}: there is more than the program")
        said = sh("/usr/sbin/chroot", f"--userspec={runs['User']}", root, *runs["Entrypoint"], "--version", env={})
        must(name in said, f"{name} --version: {said}")
        say(f"image of {name}: {file.stat().st_size / 1e6:.0f} MB, starts as {runs['User']}: {' '.join(said.split())}")
        shutil.rmtree(root)


def newer(told, programs, out, folder):
    """The packages of a release that came later."""
    later = dataclasses.replace(told, version=told.version.split("-")[0] + "-29991231235959.later", epoch=told.epoch + 60)
    must(subprocess.run(["dpkg", "--compare-versions", later.debian, "gt", told.debian], check=False).returncode == 0, "a later one is not newer")
    out.mkdir()
    package.packages(later, build.target_of(build.host()), programs, out, folder)
    return out


class Machine:
    """A Debian in a folder, without a systemd that runs."""

    def __init__(self, root):
        self.root = root
        debian(root, "systemd init-system-helpers diffutils perl-base")

    def sh(self, script):
        return sh("/usr/sbin/chroot", self.root, "sh", "-ec", script, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"})

    def installed(self, name):
        state = self.sh(f"dpkg-query -W -f '${{db:Status-Status}} ${{Version}}' {name} 2>/dev/null || true").split()
        return state[1] if state and state[0] == "installed" else None


def user(unit):
    """Home and shell of the user that the head of a unit makes."""
    return re.search(r"useradd --system --home-dir (\S+) --shell (\S+) (\S+)", (ROOT / "deploy/systemd" / unit).read_text()).groups()


def folders(unit):
    """Folders that a unit's head makes, as packages.toml has them."""
    lines = re.findall(r"^#   install -d -o (\S+) -g (\S+) -m (\S+) (.+)$", (ROOT / "deploy/systemd" / unit).read_text(), re.M)
    return [[path, owner, group, mode] for owner, group, mode, paths in lines for path in paths.split()]


def life(out, later, machine, told):
    """Packages come by the bundle's script, are upgraded, removed, installed again and purged."""
    with tarfile.open(one(out, "fdn-bundle", ".tar")) as archive:
        archive.extractall(machine.root / "tmp")
    (bundle,) = (machine.root / "tmp").glob("fdn-bundle-*")
    at = f"cd /tmp/{bundle.name}"
    must(not [path for path in bundle.rglob("*") if path.name == "secrets"], "the bundle has secrets in it")
    machine.sh(f"{at} && ./install.sh check")
    said = machine.sh(f"{at} && ENGINE=echo ./install.sh images")
    must(said.count(f"{told.version}-") == len(common.PROGRAMS), f"install.sh images: {said}")
    names = " ".join(common.PROGRAMS)
    machine.sh(f"{at} && ./install.sh packages {names}")
    for name, account in SERVICES.items():
        home, shell, _ = user(f"{name}.service")
        entry = machine.sh(f"getent passwd {account}").strip().split(":")
        must(entry[5:] == [home, shell], f"{name}: its user is {entry}")
        described = package.described()[name]
        others = [folder for folder in folders(f"{name}.service") if folder not in described["folders"]]
        must(not others, f"{name}: the head of its unit makes folders otherwise than its package: {others}")
        settings = described["settings"]
        machine.sh(f"{name} --config {settings['folder']}/{settings['file']}.sample --check-config")
        must(not machine.sh(f"ls /etc/systemd/system/*.wants/{name}.service 2>/dev/null || true"), f"{name} is enabled before it has settings")
    # An agent's user may join, and cannot touch what is another's.
    machine.sh("setpriv --reuid fdn --regid fdn --clear-groups sh -ec 'echo > /etc/fdn/edge-agent.toml; ! rm -f /etc/fdn/dns.toml.sample 2>/dev/null'")
    kept = {"/etc/fdn/dns.toml": "fdn-dns", "/var/lib/fdn-dns/state": "fdn-dns", "/var/lib/fdn/edge-agent/identity": "fdn-edge-agent"}
    kept |= {"/etc/fdn-controller/master.key": "fdn-controller", "/var/lib/fdn-controller/controller.db": "fdn-controller", "/etc/fdn/edge-agent.toml": "fdn-edge-agent"}
    machine.sh("\n".join(f"echo mine > {path}" for path in kept) + "\nchmod 0750 /etc/fdn && echo '# mine' >> /etc/fdn/dns.toml.sample")
    still = lambda: machine.sh("cat " + " ".join(kept)).split() == ["mine"] * len(kept)
    for deb in later.iterdir():
        shutil.copy(deb, machine.root / "tmp")
    machine.sh("dpkg -i /tmp/*.deb")
    must(all("later" in machine.installed(name) for name in common.PROGRAMS), "an upgrade brings other versions")
    must(still() and "# mine" in machine.sh("cat /etc/fdn/dns.toml.sample"), "an upgrade loses state or settings")
    must((machine.root / "etc/fdn").stat().st_mode & 0o777 == 0o750, "an upgrade undoes what was made of a folder")
    machine.sh(f"dpkg --remove {names}")
    must(still() and not any(machine.installed(name) for name in common.PROGRAMS), "remove loses state or settings")
    must(not machine.sh("ls /usr/bin/fdn* 2>/dev/null || true"), "remove leaves programs")
    machine.sh("dpkg -i /tmp/*.deb")
    must(still(), "state is lost when a package comes back")
    machine.sh("dpkg --purge fdn-dns")
    must(machine.sh("ls /etc/fdn").split() == ["edge-agent.toml", "edge-agent.toml.sample"], "purge takes what is another package's, or leaves its own")
    machine.sh(f"dpkg --purge {names}")
    left = machine.sh("ls -d /etc/fdn* /var/lib/fdn* /usr/share/fdn* /usr/lib/systemd/system/fdn* 2>/dev/null || true").split()
    must(not left, f"purge leaves {left}")
    say("packages: installed by the bundle's script, upgraded, removed, back again, purged")
    with open(bundle / "docs/operations.md", "a") as file:
        file.write("x")
    must(subprocess.run([bundle / "install.sh", "check"], capture_output=True, check=False).returncode != 0, "a changed file is not noticed")


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["machines"]):
        print(__doc__)
        return 2
    programs = Path(sys.argv[1]).resolve()
    try:
        with tempfile.TemporaryDirectory(prefix="fdn-dist-") as place:
            folder = Path(place)
            programs = stripped(programs, folder / "programs")
            out, said = twice(programs, folder)
            say(said.strip())
            told = common.release()
            if sys.argv[2:]:
                from machines import story

                story(out, newer(told, programs, folder / "later", folder), told)
                return 0
            packages(out, told)
            bills(out, programs)
            images(out, folder, told)
            life(out, newer(told, programs, folder / "later", folder), Machine(folder / "machine"), told)
    except (Failed, common.Failed) as reason:
        print(f"error: {reason}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
