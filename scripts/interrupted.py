#!/usr/bin/env python3
"""Whether a run of tests that is interrupted leaves anything behind: scripts/test.py is run with programs that do what test programs do, and is sent
signals. `make test` does it first of all; it takes seconds and needs nothing that is built.

    scripts/interrupted.py
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
PATIENCE_S = 60

# Servers that end in order when they are told to.
SERVERS = """#!/bin/sh
echo $$ >"$PIDS/servers.$$"
trap 'touch "$PIDS/../stopped"; exit 0' INT TERM
echo "export FDN_TEST='here'"
echo ready
while :; do sleep 0.1; done
"""

# A test program that hangs, and what it has begun: a process in its session that does not hear signals, a keeper in a session of its own that ends once
# the other end of its input is closed, which is when the program is gone, and something in another session that does not end by itself.
PROGRAM = """#!/bin/bash
trap '' INT TERM
sleep 1000 &
echo $! >"$PIDS/beside.$!"
setsid sh -c 'echo $$ >"$PIDS/keeper.$$"; read -r _; sleep 0.5; echo kept >"$PIDS/../kept.$$"' < <(exec sleep 1000) &
setsid sh -c 'echo $$ >"$PIDS/stray.$$"; exec sleep 1000' &
[ "$1" = stubborn ] || trap - INT TERM
echo $$ >"$PIDS/program.$$"
while :; do sleep 0.1; done
"""

# The runner itself, with the real ways of a run around them: three programs, of which two run at a time.
RUNNER = """
import importlib.util, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("runner", sys.argv[1])
runner = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runner)
runner.ENDING_S = runner.LEFT_S = 2
# Folders of others are nobody's affair here.
runner.sweep = lambda: None
run = runner.Run("gate", "gate", 600)
place = Path(sys.argv[2])
programs = [(f"stub{n}", "it", place / "program", place) for n in range(3)]
def act():
    run.step("servers", run.start_servers)
    run.step("tests", lambda: run.tests(programs, sys.argv[3:], lanes=2))
    run.step("never", lambda: True)
sys.exit(runner.whole(run, act))
"""


def until(what, look):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {PATIENCE_S} s")


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def interrupted(signals, arguments):
    """Runs until two programs hang, sends the signals, and looks at what is left: what the run said."""
    with tempfile.TemporaryDirectory(prefix="fdn-interrupted-") as folder:
        place = Path(folder)
        pids = place / "pids"
        (place / "gate").mkdir()
        pids.mkdir()
        for path, text in ((place / "gate/fdn-test-servers", SERVERS), (place / "program", PROGRAM)):
            path.write_text(text)
            path.chmod(0o755)
        environment = {**os.environ, "CARGO_TARGET_DIR": folder, "PIDS": str(pids)}
        run = subprocess.Popen(
            [sys.executable, "-c", RUNNER, SCRIPTS / "test.py", folder, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        known = {}
        try:
            until("two programs", lambda: len(list(pids.iterdir())) == 9)
            for number in signals:
                run.send_signal(number)
                time.sleep(0.3)
            said, _ = run.communicate(timeout=PATIENCE_S)
            known = {int(path.suffix[1:]): path.stem for path in pids.iterdir()}
            left = [f"{name} {pid}" for pid, name in known.items() if lives(pid)]
            assert not left, f"left behind: {left}\n{said}"
            assert len(known) == 9, f"a program was begun afterwards: {sorted(known.values())}\n{said}"
            assert run.returncode == 128 + signals[0], f"{run.returncode}\n{said}"
            for words in (f"=== interrupted by {signals[0].name}", "nothing is left", f"FAILED run\n      interrupted by {signals[0].name}"):
                assert words in said, f"{words!r} is not in\n{said}"
            assert "never" not in said, said
            return said, (place / "stopped").exists()
        finally:
            # Whatever is wrong with the runner, this leaves nothing either.
            for path in pids.iterdir():
                if lives(path.suffix[1:]):
                    os.kill(int(path.suffix[1:]), signal.SIGKILL)
            run.kill()
            run.wait()


def main():
    # A run under `nohup` goes on at SIGHUP, and so would the runs that are started here: what is ignored is inherited.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        said, stopped = interrupted([number], [])
        assert stopped, f"the servers did not end in order\n{said}"
        assert "killing" in said, f"what left the session has to be killed\n{said}"
        print(f"ok    {number.name}")
    said, stopped = interrupted([signal.SIGINT], ["stubborn"])
    assert stopped, said
    print("ok    programs that do not end when they are told")
    said, _ = interrupted([signal.SIGINT, signal.SIGTERM, signal.SIGINT], ["stubborn"])
    assert said.count("still ending") == 2, said
    print("ok    again and again")


if __name__ == "__main__":
    main()
