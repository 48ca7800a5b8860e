"""Everything in one file, for networks that reach no other: programs, packages, images, what deploy/ holds, ready functions, documentation."""

from .common import PROGRAMS, ROOT, Tree, digest, sources, zipped
from .package import functions

PACKAGES = ROOT / "deploy/packages"


def programs_archive(release, target, programs, out):
    """The programs with what is needed to run them by hand."""
    tree = Tree()
    top = f"fdn-programs-{release.version}-{target.debian}"
    for name in PROGRAMS:
        tree.file(f"{top}/bin/{name}", programs / name, 0o755)
    for folder in ("systemd", "config"):
        tree.copy(f"{top}/{folder}", ROOT / "deploy" / folder, sources(f"deploy/{folder}"))
    for name in ("LICENSE", "README.md", "CHANGELOG.md"):
        tree.file(f"{top}/{name}", ROOT / name)
    path = out / f"{top}.tar.gz"
    with open(path, "wb") as file, zipped(file) as stream:
        tree.pack(stream, release.epoch)
    return path


def bundle(release, target, made, out):
    """The bundle of what was made. Not compressed: nearly all of it is."""
    tree = Tree()
    top = f"fdn-bundle-{release.version}-{target.debian}"
    folders = {".deb": "packages", ".oci.tar": "images", ".cdx.json": "bom", ".tar.gz": "programs"}
    sums = []
    for file in sorted(made):
        folder = next(folder for ending, folder in folders.items() if file.name.endswith(ending))
        tree.file(f"{folder}/{file.name}", file)
    for folder in ("deploy", "docs"):
        tree.copy(folder, ROOT / folder, sources(folder))
    for path, (mode, _, content) in functions(tracked=False).entries.items():
        tree.file(f"functions/{path}", content, mode)
    tree.file("README.md", (PACKAGES / "README.md").read_text().replace("@VERSION@", release.version))
    tree.file("install.sh", PACKAGES / "install.sh", 0o755)
    for name in ("LICENSE", "CHANGELOG.md"):
        tree.file(name, ROOT / name)
    for path, (_, _, content) in tree.sorted():
        if content is not None:
            sums.append(f"{digest(content)}  {path}\n")
    tree.file("SHA256SUMS", "".join(sums))
    # All below one folder, so that it can be unpacked anywhere.
    below = Tree()
    below.entries = {f"{top}/{path}": entry for path, entry in tree.entries.items()}
    path = out / f"{top}.tar"
    with open(path, "wb") as file:
        below.pack(file, release.epoch)
    return path
