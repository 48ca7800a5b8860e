"""Images from nothing: a program, the shared libraries that it needs, what those read, and no shell. Written as an OCI image layout in a tar, which
`docker load` reads too; no engine is asked."""

import functools
import hashlib
import json
import os
import re
import tarfile
from pathlib import Path

from .common import PROGRAMS, USER, Digesting, Failed, Tree, described, run, zipped

AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
# What glibc before 2.34 opens by name when it looks up hosts; later ones have it inside.
OPENED = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")
SECOND = 1_000_000_000


def libraries(programs, target):
    """The shared libraries of programs and of one another, by the paths at which they are looked for. Nothing is run for it: the target may be another machine's."""
    folders = [Path("/lib") / target.gnu, Path("/usr/lib") / target.gnu, Path("/usr") / target.gnu / "lib"]
    found, waiting = {}, list(programs)
    while waiting:
        said = run("readelf", "-W", "-l", "-d", waiting.pop(), env={**os.environ, "LC_ALL": "C"})
        loader = re.findall(r"Requesting program interpreter: (\S+?)\]", said)
        names = re.findall(r"\(NEEDED\).*\[(.+?)\]", said)
        if loader:
            names += [name for name in OPENED if any((folder / name).exists() for folder in folders)]
        for name in [*loader, *names]:
            # The loader is named by its path; a library may name it too.
            base = Path(name).name
            place = name if name.startswith("/") else found.get(base, (f"/lib/{target.gnu}/{base}", None))[0]
            if base in found and found[base][0] == place:
                continue
            file = next((folder / base for folder in folders if (folder / base).exists()), None)
            if file is None:
                raise Failed(f"{base} is not in {' or '.join(str(folder) for folder in folders)}")
            found[base] = (place, file.resolve())
            waiting.append(file)
    return {place: file for place, file in sorted(found.values())}


@functools.cache
def owner(file):
    """The Debian package of a file: its name, version and architecture."""
    # Packages of before the merge of /usr name some by other paths.
    path = str(file)
    for name in dict.fromkeys((path.removeprefix("/usr"), path, f"/usr{path}")):
        try:
            package = run("dpkg-query", "-S", name).split(": ")[0]
        except Failed:
            continue
        return tuple(run("dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Architecture}", package).split("\t"))
    raise Failed(f"no package holds {file}")


def packages_of(files):
    return sorted({owner(file) for file in files})


def base(programs, target):
    """The layer that all images share."""
    tree = Tree()
    files = libraries([programs / name for name in PROGRAMS], target)
    for place, file in files.items():
        tree.file(place.lstrip("/"), file, 0o755)
    for name, _, _ in packages_of(files.values()):
        tree.file(f"usr/share/doc/{name}/copyright", Path(f"/usr/share/doc/{name}/copyright").resolve())
    tree.file("etc/ssl/certs/ca-certificates.crt", AUTHORITIES)
    tree.file("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    tree.file("etc/passwd", f"root:x:0:0:root:/:/sbin/nologin\nfdn:x:{USER}:{USER}:fdn:/var/lib/fdn:/sbin/nologin\n")
    tree.file("etc/group", f"root:x:0:\nfdn:x:{USER}:\n")
    tree.folder("etc/fdn")
    tree.folder("tmp", 0o1777)
    return tree


def own(name, image, programs):
    """The layer of one program."""
    tree = Tree()
    tree.file(f"usr/bin/{name}", programs / name, 0o755)
    tree.folder(image["state"].lstrip("/"), 0o700, USER)
    return tree


class Blobs:
    """Contents by their digests, on disk until they are packed."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def layer(self, tree, epoch):
        """A layer's descriptor, and the digest of what is in it."""
        place = self.folder / "new"
        with open(place, "wb") as file:
            packed = Digesting(file)
            with zipped(packed) as stream:
                inside = Digesting(stream)
                tree.pack(inside, epoch)
        place.rename(self.folder / packed.digest)
        kind = "application/vnd.oci.image.layer.v1.tar+gzip"
        return {"mediaType": kind, "digest": f"sha256:{packed.digest}", "size": packed.size}, f"sha256:{inside.digest}"

    def text(self, kind, value):
        data = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        name = hashlib.sha256(data).hexdigest()
        (self.folder / name).write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{name}", "size": len(data)}


def settings(name, package, release, target, diffs):
    """The image's configuration. `Healthcheck` is Docker's; others leave it out."""
    image = package["image"]
    labels = {
        "title": name,
        "description": package["summary"],
        "version": release.version,
        "revision": release.revision,
        "created": release.created,
        "licenses": "Apache-2.0",
    }
    config = {
        "User": f"{USER}:{USER}",
        "Env": ["PATH=/usr/bin", "HOME=/var/lib/fdn", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "FDN_LOG__FORMAT=json"],
        "Entrypoint": image["entrypoint"],
        "Cmd": image["command"],
        "WorkingDir": image["state"],
        "ExposedPorts": {port: {} for port in image["ports"]},
        "Volumes": {image["state"]: {}},
        "StopSignal": "SIGTERM",
        "Labels": {f"org.opencontainers.image.{key}": value for key, value in labels.items()},
    }
    if "health" in image:
        test = ["CMD", *image["health"]]
        config["Healthcheck"] = {"Test": test, "Interval": 10 * SECOND, "Timeout": 10 * SECOND, "StartPeriod": 30 * SECOND, "Retries": 3}
    return {
        "architecture": target.debian,
        "os": "linux",
        "created": release.created,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": diffs},
        "history": [{"created": release.created, "created_by": what} for what in ("make dist: libraries", f"make dist: {name}")],
    }


def images(release, target, programs, out, place):
    """Makes an image of each program in the folder `out`; their paths."""
    made, all_of_them = [], described()
    blobs = Blobs(place / "blobs")
    shared, shared_diff = blobs.layer(base(programs, target), release.epoch)
    for name in PROGRAMS:
        package = all_of_them[name]
        layer, diff = blobs.layer(own(name, package["image"], programs), release.epoch)
        config = blobs.text("application/vnd.oci.image.config.v1+json", settings(name, package, release, target, [shared_diff, diff]))
        layers = [shared, layer]
        kind = "application/vnd.oci.image.manifest.v1+json"
        manifest = blobs.text(kind, {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers})
        tag = f"{name}:{release.version}"
        manifest |= {
            "platform": {"architecture": target.debian, "os": "linux"},
            "annotations": {"org.opencontainers.image.ref.name": release.version, "io.containerd.image.name": f"docker.io/library/{tag}"},
        }
        path_of = lambda descriptor: f"blobs/sha256/{descriptor['digest'].removeprefix('sha256:')}"
        tree = Tree()
        for blob in (shared, layer, config, manifest):
            tree.file(path_of(blob), blobs.folder / blob["digest"].removeprefix("sha256:"))
        tree.file("oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}))
        tree.file("index.json", json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]}, sort_keys=True))
        # By this one an engine that reads no layouts finds the same.
        docker = [{"Config": path_of(config), "RepoTags": [tag], "Layers": [path_of(blob) for blob in layers]}]
        tree.file("manifest.json", json.dumps(docker))
        path = out / f"{name}-{release.version}-{target.debian}.oci.tar"
        with open(path, "wb") as file:
            tree.pack(file, release.epoch)
        made.append(path)
    return made


def unpack(path, folder):
    """Spreads the layers of an image in a folder, with their owners if the caller may."""
    with tarfile.open(path) as archive:
        manifest = json.load(archive.extractfile("manifest.json"))[0]
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(layer), mode="r:gz") as inside:
                inside.extractall(folder, numeric_owner=True)
        return json.load(archive.extractfile(manifest["Config"]))
