#!/usr/bin/env python3
"""Holds the units of deploy/systemd against systemd: every line is understood, the programs are there, and no more is open than was decided.

    scripts/deploy/units.py PROGRAMS
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
UNITS = ROOT / "deploy/systemd"
# The most that `systemd-analyze security` may find open of each, times ten. An agent runs functions, and with its drop-in containers.
OPEN = {"fdn-controller.service": 15, "fdn-dns.service": 17, "fdn-edge-agent.service": 52, "fdn-edge-agent.service with containers": 62, "fdn-edge-agent.service with low-ports": 54}


def run(*argv):
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", "SYSTEMD_COLORS": "0"})
    return done.returncode, (done.stdout + done.stderr).strip()


def check(folder, programs, name, dropped, title):
    """One unit in a folder of its own, with its programs where they are; what is wrong with it."""
    folder.mkdir()
    text = (UNITS / name).read_text()
    (folder / name).write_text(text.replace("/usr/local/bin/", f"{programs}/"))
    if dropped:
        (folder / f"{name}.d").mkdir()
        shutil.copy(UNITS / dropped, folder / f"{name}.d")
    code, said = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", folder / name)
    # Warnings too: a key that this systemd does not know would be left out in silence.
    wrong = [f"{title}: {said}"] if code or said else []
    # The program knows no drop-ins of a file that is not installed: appended, they count the same.
    if dropped:
        (folder / name).write_text((folder / name).read_text() + (UNITS / dropped).read_text())
    code, said = run("systemd-analyze", "security", "--offline=true", f"--threshold={OPEN[title]}", "--no-pager", folder / name)
    last = said.splitlines()[-1] if said else "systemd-analyze said nothing"
    print(f"{title}: {last.removeprefix('→ ')}")
    if code:
        wrong.append(f"{title}: more is open than {OPEN[title] / 10}\n{said}")
    return wrong


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    programs = Path(sys.argv[1]).resolve()
    cases = [(path.name, None, path.name) for path in sorted(UNITS.glob("*.service"))]
    for dropped in sorted(path.name for path in UNITS.glob("fdn-edge-agent-*.conf")):
        what = dropped.removeprefix("fdn-edge-agent-").removesuffix(".conf")
        cases.append(("fdn-edge-agent.service", dropped, f"fdn-edge-agent.service with {what}"))
    wrong = []
    with tempfile.TemporaryDirectory(prefix="fdn-units-") as folder:
        for number, (name, dropped, title) in enumerate(cases):
            wrong += check(Path(folder) / str(number), programs, name, dropped, title)
    for reason in wrong:
        print(f"error: {reason}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
