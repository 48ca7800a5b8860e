"""Builds the programs so that the same sources are the same bytes, wherever they lie."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from .common import PROGRAMS, ROOT, TARGETS, Failed, run, say

# What of the environment would change what comes out.
LEFT_OUT = re.compile(r"(RUSTFLAGS|RUSTC.*|CARGO_(ENCODED|BUILD|PROFILE|TARGET|INCREMENTAL|UNSTABLE).*|(HOST_|TARGET_)?(CC|CXX|AR|CFLAGS|CXXFLAGS|LDFLAGS)(_.*)?|LC_.*|LANG|FDN_.*)$")


def host():
    """The target of this machine's compiler."""
    return next(line.split()[1] for line in run("rustc", "-vV").splitlines() if line.startswith("host:"))


def target_of(triple):
    if triple not in TARGETS:
        raise Failed(f"there is no target {triple}; there are {', '.join(TARGETS)}")
    return TARGETS[triple]


def check(target):
    """Says in words what this machine lacks to build for a target."""
    if not (Path(run("rustc", "--print", "sysroot").strip()) / "lib/rustlib" / target.triple / "lib").is_dir():
        raise Failed(f"Rust's standard library for {target.triple} is not installed: rustup target add {target.triple}")
    if target.triple != host() and not shutil.which(f"{target.gnu}-gcc"):
        raise Failed(f"{target.triple} needs {target.gnu}-gcc, which links it and compiles what is written in C")


def environment(release, target, root, cargo_target):
    """What the compilers are told. Paths of this machine are written as others, times are the commit's, nothing is left over from a build before."""
    sysroot = run("rustc", "--print", "sysroot").strip()
    cargo = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    # The last that fits counts: what lies inside the tree comes after it.
    paths = {str(root): "/fdn", str(cargo_target): "/target", cargo: "/cargo", sysroot: "/rust"}
    flags = [f"--remap-path-prefix={path}={name}" for path, name in paths.items()]
    # A number that follows from the contents: by it a crash report finds its program.
    flags += ["-Clink-arg=-Wl,--build-id=sha1"]
    # The C compiler looks at the last one first.
    mapped = " ".join(f"-ffile-prefix-map={path}={name}" for path, name in paths.items())
    told = {name: value for name, value in os.environ.items() if not LEFT_OUT.match(name)}
    told |= {
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SOURCE_DATE_EPOCH": str(release.epoch),
        "FDN_REVISION": release.revision,
        "CARGO_TARGET_DIR": str(cargo_target),
        "CARGO_INCREMENTAL": "0",
        "CARGO_PROFILE_RELEASE_STRIP": "symbols",
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags),
        "CFLAGS": mapped,
        "CXXFLAGS": mapped,
    }
    if target.triple != host():
        name = target.triple.replace("-", "_")
        told |= {f"CARGO_TARGET_{name.upper()}_LINKER": f"{target.gnu}-gcc", f"CC_{name}": f"{target.gnu}-gcc", f"AR_{name}": f"{target.gnu}-ar"}
    return told


def place():
    """Where releases are built. Not the build folder of everything else: other flags would have all of it compiled anew in turns."""
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "dist"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def build(release, target, root=ROOT):
    """The folder with the programs of a target, built from the work tree at `root`."""
    check(target)
    folder = place() if root == ROOT else root / "target"
    say(f"building for {target.triple} (the first time takes some minutes)")
    packages = [word for package in PROGRAMS.values() for word in ("-p", package)]
    argv = ["cargo", "build", "--release", "--locked", "--quiet", "--target", target.triple, *packages, "--bins"]
    done = subprocess.run(argv, cwd=root, env=environment(release, target, root, folder), check=False)
    if done.returncode:
        raise Failed(f"cargo ended with {done.returncode}")
    return folder / target.triple / "release"


def given(folder, target):
    """The programs of a folder, if they are all there and for the target."""
    for name in PROGRAMS:
        path = folder / name
        if not path.is_file():
            raise Failed(f"{path} is missing")
        machine = next((line for line in run("readelf", "-h", path, env={**os.environ, "LC_ALL": "C"}).splitlines() if "Machine:" in line), "")
        if target.machine not in machine:
            raise Failed(f"{path} is not for {target.triple}:{machine.split(':', 1)[-1]}")
    return folder


def again(release, target, programs):
    """Builds once more, from a copy of the sources at another path and from nothing, and gives the names of the programs that came out otherwise."""
    with tempfile.TemporaryDirectory(prefix="again-", dir=place()) as root:
        built = build(release, target, copy(Path(root)))
        return [name for name in PROGRAMS if (built / name).read_bytes() != (programs / name).read_bytes()]


def copy(root):
    """The sources, without their times."""
    listed = run("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in listed:
        source = ROOT / name
        if name and source.is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, root / name)
    # The console is built by other tools; what they made is a source here.
    if (ROOT / "web/dist").is_dir():
        shutil.copytree(ROOT / "web/dist", root / "web/dist", copy_function=shutil.copy)
    return root
