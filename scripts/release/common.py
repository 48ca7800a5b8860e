"""What all parts of a release share: where things are, what it is called, files that come out the same each time."""

import gzip
import hashlib
import io
import os
import re
import subprocess
import tarfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# The programs, each of which becomes a package and an image; fdn is the package fdn-cli of the workspace.
PROGRAMS = {"fdn": "fdn-cli", "fdn-controller": "fdn-controller", "fdn-dns": "fdn-dns", "fdn-edge-agent": "fdn-edge-agent"}
# The user of an image, which needs no name anywhere else.
USER = 65532


class Failed(Exception):
    """With a message for people."""


def say(line=""):
    print(line, flush=True)


def run(*argv, **more):
    """The standard output of a command; its standard error if it fails."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False, **more)
    if done.returncode:
        raise Failed(f"{argv[0]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def described():
    """deploy/packages/packages.toml."""
    return tomllib.loads((ROOT / "deploy/packages/packages.toml").read_text())


@dataclass(frozen=True)
class Target:
    """What is built for: Rust's name, Debian's name of the architecture (which is the images' too), GNU's name, and what readelf calls it."""

    triple: str
    debian: str
    gnu: str
    machine: str


TARGETS = {
    target.triple: target
    for target in (
        Target("x86_64-unknown-linux-gnu", "amd64", "x86_64-linux-gnu", "Advanced Micro Devices X86-64"),
        Target("x86_64-unknown-linux-musl", "amd64", "x86_64-linux-musl", "Advanced Micro Devices X86-64"),
        Target("aarch64-unknown-linux-gnu", "arm64", "aarch64-linux-gnu", "AArch64"),
        Target("aarch64-unknown-linux-musl", "arm64", "aarch64-linux-musl", "AArch64"),
    )
}


@dataclass(frozen=True)
class Release:
    """What everything of a release is called, and the one time that everything in it bears."""

    version: str
    revision: str
    epoch: int

    @property
    def debian(self):
        """The version by Debian's rules: what comes before a release sorts before it."""
        return self.version.replace("-", "~", 1)

    @property
    def created(self):
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.epoch))


def release():
    """The release of this tree. `FDN_REVISION` and `SOURCE_DATE_EPOCH` say it where there is no git."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    number = manifest["workspace"]["package"]["version"]
    revision, epoch, tagged = os.environ.get("FDN_REVISION"), os.environ.get("SOURCE_DATE_EPOCH"), False
    if not revision or not epoch:
        try:
            git = lambda *words: run("git", "-C", ROOT, *words).strip()
            head = git("rev-parse", "--short=12", "HEAD")
            clean = not git("status", "--porcelain")
            tagged = clean and not revision and f"v{number}" in git("tag", "--points-at", "HEAD").split()
            revision = revision or (head if clean else f"{head}-dirty")
            epoch = epoch or git("log", "-1", "--format=%ct")
        except (Failed, OSError) as cause:
            raise Failed(f"without git, FDN_REVISION and SOURCE_DATE_EPOCH must say what this is ({cause})") from cause
    if not re.fullmatch(r"[0-9A-Za-z.-]{1,64}", revision) or not epoch.isdigit():
        raise Failed("FDN_REVISION is of letters, digits, dots and hyphens, SOURCE_DATE_EPOCH of digits")
    stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(int(epoch)))
    version = number if tagged else f"{number}-{stamp}.{revision.replace('-', '.')}"
    return Release(version, revision, int(epoch))


class Tree:
    """Files by path: as an archive or a folder, they come out the same each time."""

    def __init__(self):
        # path: (mode, owner, content), where the content is bytes, a file of this machine, or None for a folder.
        self.entries = {}

    def folder(self, path, mode=0o755, owner=0):
        self.entries[path] = (mode, owner, None)

    def file(self, path, content, mode=0o644):
        """`content` is text, bytes, or the path of a file."""
        content = content.encode() if isinstance(content, str) else content
        self.entries[path] = (mode, 0, content)

    def copy(self, path, folder, files):
        """Files of a folder, under `path`; whether they can be executed stays."""
        for name in files:
            source = folder / name
            self.file(f"{path}/{name}", source, 0o755 if source.stat().st_mode & 0o100 else 0o644)

    def sorted(self):
        """All entries in order, folders that nobody named among them."""
        all_of_them = dict(self.entries)
        for path in self.entries:
            parts = path.split("/")[:-1]
            for depth in range(1, len(parts) + 1):
                all_of_them.setdefault("/".join(parts[:depth]), (0o755, 0, None))
        return sorted(all_of_them.items())

    def pack(self, output, epoch):
        """Writes it as tar."""
        with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path, (mode, owner, content) in self.sorted():
                info = tarfile.TarInfo(path)
                info.mode, info.uid, info.gid, info.mtime = mode, owner, owner, epoch
                if content is None:
                    info.type = tarfile.DIRTYPE
                    archive.addfile(info)
                elif isinstance(content, Path):
                    info.size = content.stat().st_size
                    with open(content, "rb") as source:
                        archive.addfile(info, source)
                else:
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))

    def spread(self, folder):
        """Writes it as files and folders. Their owner is whoever calls."""
        folder.mkdir(parents=True)
        folder.chmod(0o755)
        for path, (mode, _, content) in self.sorted():
            place = folder / path
            if content is None:
                place.mkdir()
            else:
                place.write_bytes(content.read_bytes() if isinstance(content, Path) else content)
            place.chmod(mode)


class Digesting:
    """Writes on to a file, and knows the SHA-256 and the size of what went through."""

    def __init__(self, output):
        self.output, self.sum, self.size = output, hashlib.sha256(), 0

    def write(self, data):
        self.sum.update(data)
        self.size += len(data)
        return self.output.write(data)

    def tell(self):
        return self.size

    def flush(self):
        self.output.flush()

    @property
    def digest(self):
        return self.sum.hexdigest()


def zipped(output):
    """A gzip stream without time and name. At the best level it takes twice as long, for three in a hundred."""
    return gzip.GzipFile(filename="", mode="wb", compresslevel=4, fileobj=output, mtime=0)


def digest(content):
    """The SHA-256 of a file, or of bytes."""
    if not isinstance(content, Path):
        return hashlib.sha256(content).hexdigest()
    with open(content, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sources(folder):
    """Files of a folder of the repository, by their paths in it: those that git knows or would take, so that no secret and no build output is among them."""
    listed = run("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", folder) if (ROOT / ".git").exists() else None
    if listed is None:
        found = [str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.is_file() and "secrets" not in path.parts]
    else:
        found = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    return sorted(name.removeprefix(f"{folder}/") for name in found)
