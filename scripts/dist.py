#!/usr/bin/env python3
"""Makes a release of this tree: `make dist`. docs/operations/release.md says what is in it and how to check it.

    scripts/dist.py [--target TRIPLE]… [--programs DIR] [--out DIR] [--again]

For each target (this machine's, unless others are named) the programs are built and become an archive, Debian packages, images and bills of
materials, and all of them together a bundle for networks without a way out. The same sources, compiler and Debian packages give the same bytes.
`--programs` takes the programs of a folder instead of building them; `--again` builds a second time, elsewhere and from nothing, and compares.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from release import bom, build, bundle, image, package
from release.common import PROGRAMS, ROOT, Failed, digest, release, say


def make(told, target, asked, out):
    """Everything for one target."""
    if asked.programs:
        programs = build.given(asked.programs.resolve(), target)
    else:
        programs = build.build(told, target)
    with tempfile.TemporaryDirectory(prefix="fdn-dist-") as folder:
        place = Path(folder)
        if asked.again:
            other = build.again(told, target, programs)
            if other:
                raise Failed(f"not reproducible: {', '.join(other)}")
            say(f"built again at another path: the same bytes in {', '.join(PROGRAMS)}")
        made = [bundle.programs_archive(told, target, programs, out)]
        made += package.packages(told, target, programs, out, place)
        made += image.images(told, target, programs, out, place)
        made += bom.bills(told, target, programs, out)
        bundle.bundle(told, target, made, out)


def clear(out):
    """An empty folder: what an earlier release left goes, and nothing else."""
    sums = out / "SHA256SUMS"
    if out.exists() and any(out.iterdir()) and not sums.exists():
        raise Failed(f"{out} holds something that is no release")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    sums.touch()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", metavar="TRIPLE", help="what to build for; again and again for several; $TARGETS if none is named")
    parser.add_argument("--programs", type=Path, metavar="DIR", help="take the programs of this folder")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR", help="where everything goes; what it holds is removed (dist/)")
    parser.add_argument("--again", action="store_true", help="build twice and compare")
    asked = parser.parse_args()
    triples = asked.target or os.environ.get("TARGETS", "").split() or [build.host()]
    if asked.programs and (len(triples) > 1 or asked.again):
        parser.error("--programs are those of one target, and nothing is built")
    out = asked.out.resolve()
    try:
        targets = [build.target_of(triple) for triple in triples]
        if len({target.debian for target in targets}) < len(targets):
            raise Failed("two targets of one architecture would have the same names")
        told = release()
        say(f"release {told.version}, revision {told.revision}, {told.created}")
        clear(out)
        for target in targets:
            make(told, target, asked, out)
    except Failed as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    files = sorted(path for path in out.iterdir() if path.name != "SHA256SUMS")
    (out / "SHA256SUMS").write_text("".join(f"{digest(path)}  {path.name}\n" for path in files))
    for path in files:
        say(f"{path.stat().st_size / 1e6:8.1f} MB  {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
