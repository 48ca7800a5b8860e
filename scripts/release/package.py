"""Debian packages, made with dpkg-deb."""

import hashlib
import io
import os
import shutil
import tomllib

from .common import PROGRAMS, ROOT, Tree, described, digest, run, zipped

PACKAGES = ROOT / "deploy/packages"
DROP_INS = {"fdn-edge-agent": ["fdn-edge-agent-containers.conf", "fdn-edge-agent-low-ports.conf"]}


def functions(tracked):
    """The ready functions, as a folder for `repository.catalogue`: those in the repository, or all that are built."""
    tree, sums = Tree(), []
    there = (ROOT / "functions/ARTIFACTS").read_text() if tracked else None
    for name in tomllib.loads((ROOT / "functions/catalogue.toml").read_text()):
        path = f"{name}/{name}.wasm"
        file = ROOT / "functions" / path
        if not file.is_file() or (tracked and f"  {path}\n" not in there):
            continue
        sums.append(f"{digest(file)}  {path}\n")
        for beside in (path, f"{name}/fdn.toml", f"{name}/README.md", f"{name}/cases.json"):
            tree.file(beside, ROOT / "functions" / beside)
    tree.file("catalogue.toml", ROOT / "functions/catalogue.toml")
    tree.file("CHECKSUMS", "".join(sums))
    return tree


def unit(name):
    """A unit of deploy/systemd, for programs where packages put them. Its head tells how to do by hand what the package does."""
    text = (ROOT / "deploy/systemd" / name).read_text().replace("/usr/local/bin/", "/usr/bin/")
    return text[text.index("[Unit]") :] if name.endswith(".service") else text


def sample(settings):
    """A sample of deploy/config, with the folders that the package has."""
    text = (ROOT / "deploy/config" / settings["file"]).read_text()
    for path, place in settings.get("moved", {}).items():
        text = text.replace(f'"{path}/', f'"{place}/')
    return text


def script(what, name, package):
    """A maintainer script: that of a service with what this one is called."""
    text = (PACKAGES / f"{what}.sh").read_text()
    folders = "\n".join(f"  install -d -o {owner} -g {group} -m {mode} {path}" for path, owner, group, mode in package["folders"])
    values = {
        "PACKAGE": name,
        "UNIT": package["unit"],
        "FOLDERS": folders.strip(),
        "PURGED": " ".join(package["purged"]),
        "SHARED": " ".join(package["shared"]),
    }
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def contents(name, package, programs, release):
    """What a package holds beside its control files."""
    tree = Tree()
    tree.file(f"usr/bin/{name}", programs / name, 0o755)
    about = f"usr/share/doc/{name}"
    tree.file(f"{about}/copyright", (PACKAGES / "copyright").read_text())
    tree.file(f"{about}/changelog.gz", squeezed((ROOT / "CHANGELOG.md").read_bytes()))
    if "steps" in package:
        tree.file(f"{about}/README.Debian", package["steps"].strip() + "\n")
    if "unit" in package:
        tree.file(f"usr/lib/systemd/system/{package['unit']}", unit(package["unit"]))
        tree.file(f"usr/lib/sysusers.d/{name}.conf", f'u {package["user"]} - "{package["summary"]}" {package["home"]} /usr/sbin/nologin\n')
    for drop_in in DROP_INS.get(name, []):
        tree.file(f"usr/share/{name}/{drop_in}", unit(drop_in))
    if "settings" in package:
        tree.file(conffile(package), sample(package["settings"]))
    if package.get("functions"):
        for path, (mode, _, content) in functions(tracked=True).entries.items():
            tree.file(f"usr/share/fdn/functions/{path}", content, mode)
    return tree


def conffile(package):
    settings = package["settings"]
    return f"{settings['folder'].lstrip('/')}/{settings['file']}.sample"


def squeezed(data):
    output = io.BytesIO()
    with zipped(output) as stream:
        stream.write(data)
    return output.getvalue()


def depends(name, target, programs, place):
    """What the shared libraries of a program are in, by dpkg-shlibdeps."""
    folder = place / "shlibs"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "debian").mkdir(parents=True)
    (folder / "debian/control").write_text(f"Source: fdn\n\nPackage: {name}\nArchitecture: any\n")
    # Where Debian's cross compilers have the libraries of other machines; they name those as packages of another architecture, which they are there alone.
    argv = ["dpkg-shlibdeps", "-O", f"-l/usr/{target.gnu}/lib", f"-e{programs / name}"]
    said = run(*argv, cwd=folder, env={**os.environ, "DEB_HOST_ARCH": target.debian})
    shutil.rmtree(folder)
    # A program without shared libraries has none.
    return said.strip().partition("=")[2].replace(f":{target.debian}", "")


def control(name, package, release, target, needs, installed):
    lines = {
        "Package": name,
        "Version": release.debian,
        "Architecture": target.debian,
        "Maintainer": "FDN maintainers <maintainers@fdn.invalid>",
        "Installed-Size": str((installed + 1023) // 1024),
        "Depends": ", ".join(word for word in (needs, package.get("depends")) if word),
        "Recommends": package.get("recommends"),
        "Suggests": package.get("suggests"),
        "Section": "net",
        "Priority": "optional",
        "Description": package["summary"],
    }
    text = "".join(f"{key}: {value}\n" for key, value in lines.items() if value)
    return text + "".join(f" {line}\n" for line in package["description"].strip().splitlines())


def packages(release, target, programs, out, place):
    """Makes a package of each program in the folder `out`; their paths."""
    made, all_of_them = [], described()
    for name in PROGRAMS:
        package = all_of_them[name]
        tree = contents(name, package, programs, release)
        size = lambda content: content.stat().st_size if hasattr(content, "stat") else len(content or b"")
        installed = sum(size(content) for _, _, content in tree.entries.values())
        needs = depends(name, target, programs, place)
        sums = "".join(f"{md5(content)}  {path}\n" for path, (_, _, content) in tree.sorted() if content is not None)
        tree.file("DEBIAN/control", control(name, package, release, target, needs, installed))
        tree.file("DEBIAN/md5sums", sums)
        if "settings" in package:
            tree.file("DEBIAN/conffiles", f"/{conffile(package)}\n")
        if "unit" in package:
            for what in ("postinst", "prerm", "postrm"):
                tree.file(f"DEBIAN/{what}", script(what, name, package), 0o755)
        folder = place / name
        tree.spread(folder)
        for path in [folder, *folder.rglob("*")]:
            os.utime(path, (release.epoch, release.epoch))
        path = out / f"{name}_{release.debian}_{target.debian}.deb"
        # By one thread, so that it is the same bytes on each machine. Whatever dpkg runs with this C library reads it.
        argv = ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z6", "--threads-max=1", "--build", folder, path]
        run(*argv, env={**os.environ, "SOURCE_DATE_EPOCH": str(release.epoch), "LC_ALL": "C"})
        shutil.rmtree(folder)
        made.append(path)
    return made


def md5(content):
    data = content.read_bytes() if hasattr(content, "read_bytes") else content
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
