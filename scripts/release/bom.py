"""Bills of materials in CycloneDX 1.5: what is in each program, by cargo, npm and dpkg."""

import base64
import json
import tomllib
import uuid
from collections import deque

from .common import PROGRAMS, ROOT, run
from .image import libraries, packages_of

# Programs with the controller in them, and by it the console and the ready functions.
WITH_CONTROLLER = ("fdn", "fdn-controller")
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def cargo(target):
    """Packages by name and version, and what each needs in a build of all programs: one build, so what one program switches on in a crate, all have.
    Metadata alone would name what only tests switch on."""
    fixed = ["--offline", "--locked"]
    told = json.loads(run("cargo", "metadata", "--format-version", "1", *fixed, "--filter-platform", target.triple, cwd=ROOT))
    packages = {(package["name"], package["version"]): package for package in told["packages"]}
    keys = {package["id"]: key for key, package in packages.items()}
    kinds = {}
    for node in told["resolve"]["nodes"]:
        for dependency in node["deps"]:
            kinds[keys[node["id"]], keys[dependency["pkg"]]] = {kind["kind"] for kind in dependency["dep_kinds"]}
    chosen = [word for package in PROGRAMS.values() for word in ("-p", package)]
    # A package that stands there already has its own below it the first time.
    drawn = run("cargo", "tree", *fixed, "-e", "normal,build", "--prefix", "depth", "--format", "\t{p}", "--target", target.triple, *chosen, cwd=ROOT)
    needs, above = {}, []
    for line in filter(None, drawn.splitlines()):
        depth, _, package = line.partition("\t")
        name, version = package.split()[:2]
        key = (name, version.removeprefix("v"))
        del above[int(depth) :]
        needs.setdefault(key, set())
        if above:
            needs[above[-1]].add(key)
        above.append(key)
    return packages, needs, kinds


def checksums():
    """SHA-256 of the crates, by name and version, from Cargo.lock."""
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(one["name"], one["version"]): one.get("checksum") for one in locked["package"]}


def crate(package, sums, scope):
    name, version = package["name"], package["version"]
    component = {
        "type": "library",
        "bom-ref": reference(package),
        "name": name,
        "version": version,
        "scope": scope,
        "purl": reference(package),
    }
    if package.get("description"):
        component["description"] = " ".join(package["description"].split())
    if package.get("license"):
        # crates.io once let a slash stand for OR.
        component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = sums.get((name, version))
    if checksum:
        component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package.get("repository"):
        component["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return component


def reference(package):
    # The workspace's own crates are in no registry.
    kind = "cargo" if package["source"] == REGISTRY else "generic"
    return f"pkg:{kind}/{package['name']}@{package['version']}"


def crates(name, packages, needs, kinds):
    """Components and their dependencies, from a program's package on."""
    root = next(key for key in needs if key[0] == PROGRAMS[name])
    sums = checksums()
    # What is in the program is met again if what only builds it was met first.
    met, waiting = {root: "required"}, deque([root])
    while waiting:
        at = waiting.popleft()
        for key in needs[at]:
            within = met[at] == "required" and None in kinds[at, key] and not is_macro(packages[key])
            scope = "required" if within else "excluded"
            if met.get(key) in (scope, "required"):
                continue
            met[key] = scope
            waiting.append(key)
    components = [crate(packages[key], sums, scope) for key, scope in met.items() if key != root]
    depends = {reference(packages[key]): sorted(reference(packages[one]) for one in needs[key]) for key in met}
    return reference(packages[root]), components, depends


def is_macro(package):
    """Whether it runs in the compiler only."""
    return any("proc-macro" in target["kind"] for target in package["targets"])


def console():
    """What the web console bundles, from the lock file of npm."""
    locked = json.loads((ROOT / "web/package-lock.json").read_text())["packages"]
    components = []
    for path, package in locked.items():
        if not path or package.get("dev") or package.get("link") or package.get("devOptional"):
            continue
        name = package.get("name") or path.rpartition("node_modules/")[2]
        purl = f"pkg:npm/{name.replace('@', '%40', 1) if name.startswith('@') else name}@{package['version']}"
        component = {"type": "library", "bom-ref": purl, "name": name, "version": package["version"], "scope": "required", "purl": purl}
        if isinstance(package.get("license"), str):
            component["licenses"] = [{"expression": package["license"]}]
        algorithm, _, sum = package.get("integrity", "").split()[0].partition("-") if package.get("integrity") else ("", "", "")
        if algorithm == "sha512":
            component["hashes"] = [{"alg": "SHA-512", "content": base64.b64decode(sum).hex()}]
        components.append(component)
    return components


def functions():
    """The ready functions that the controller has inside."""
    lines = [line.split("  ") for line in (ROOT / "functions/ARTIFACTS").read_text().splitlines() if line.endswith(".wasm")]
    form = lambda sum, path: {
        "type": "file",
        "bom-ref": f"functions/{path}",
        "name": f"functions/{path}",
        "scope": "required",
        "hashes": [{"alg": "SHA-256", "content": sum}],
    }
    return [form(*line) for line in lines]


def debian(program, target):
    """The packages of the shared libraries that an image of the program holds."""
    files = libraries([program], target).values()
    purl = lambda name, version, kind: f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace(':', '%3A').replace('~', '%7E')}?arch={kind}"
    form = lambda name, version, kind: {
        "type": "library",
        "bom-ref": purl(name, version, kind),
        "name": name,
        "version": version,
        "scope": "required",
        "purl": purl(name, version, kind),
    }
    return [form(*package) for package in packages_of(files)]


def bill(name, release, target, programs, resolved):
    """The bill of one program."""
    root, components, depends = crates(name, *resolved)
    around = debian(programs / name, target) + (console() + functions() if name in WITH_CONTROLLER else [])
    unique = {component["bom-ref"]: component for component in components + around}
    for component in around:
        depends[root].append(component["bom-ref"])
        depends.setdefault(component["bom-ref"], [])
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.created,
            "tools": {"components": [{"type": "application", "name": "scripts/release/bom.py", "version": release.version}]},
            "component": {"type": "application", "bom-ref": root, "name": name, "version": release.version, "purl": f"pkg:generic/{name}@{release.version}"},
            "properties": [{"name": "fdn:target", "value": target.triple}, {"name": "fdn:revision", "value": release.revision}],
        },
        "components": [unique[key] for key in sorted(unique)],
        "dependencies": [{"ref": key, "dependsOn": sorted(set(depends[key]))} for key in sorted(depends)],
    }
    # A number that follows from what it numbers.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    return {"$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json", "serialNumber": f"urn:uuid:{number}", **document}


def bills(release, target, programs, out):
    """Writes the bill of each program into the folder `out`; their paths."""
    resolved = cargo(target)
    made = []
    for name in PROGRAMS:
        path = out / f"{name}-{release.version}-{target.debian}.cdx.json"
        path.write_text(json.dumps(bill(name, release, target, programs, resolved), indent=1, ensure_ascii=False) + "\n")
        made.append(path)
    return made
