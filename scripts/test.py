#!/usr/bin/env python3
"""Runs the tests and says why what failed failed: `make test` (the gate) and `make soak`; docs/testing.md tells what is in which.

    scripts/test.py gate            everything deterministic
    scripts/test.py soak [GROUP…]   chaos, time and size; all groups but those of an hour and more, or those named

Each step begins with the state of the machine and ends with its seconds. The output of each program goes to a file of its own, so that a
process which outlives its parent cannot hold this one up. The last lines are the failed steps and tests, and the last line counts. A run that is
interrupted ends what it has started, and says so.
"""

import argparse
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
# Gigabytes that have to be free before a run begins: a build from nothing takes about eight.
FREE_GB = float(os.environ.get("FDN_TEST_FREE_GB", "15"))
# The properties of the gate are the same in every run; soak draws new ones and prints the seed.
SEED = "20261"
# A test program of the gate that runs longer than this hangs.
GATE_LIMIT_S = 1_200
SOAK_LIMIT_S = 3_600
# More failed tests than these in one program are no matter of chance.
RETRIED = 8
# Lines of a failed test's own output that are shown.
SHOWN = 40
# Seconds that commands have to end by themselves once the run is interrupted, and then all else that was begun: a test engine's keeper removes
# containers first.
ENDING_S = 10
LEFT_S = 60


def say(line=""):
    try:
        print(line, flush=True)
    except OSError:
        # Nobody reads it any more: no reason to leave things behind.
        pass


def read(path):
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def free_gb(path):
    return shutil.disk_usage(path).free / 1e9


class Machine:
    """What of the machine explains a slow or failed step."""

    def __init__(self):
        self.steal, self.total = self.ticks()

    @staticmethod
    def ticks():
        words = read("/proc/stat").split("\n", 1)[0].split()[1:9]
        ticks = [int(word) for word in words] or [0] * 8
        return ticks[7], sum(ticks)

    def state(self):
        steal, total = self.ticks()
        stolen = 100 * (steal - self.steal) / max(1, total - self.total)
        self.steal, self.total = steal, total
        memory = re.search(r"MemAvailable:\s+(\d+)", read("/proc/meminfo"))
        parts = [
            f"{free_gb(TARGET if TARGET.exists() else ROOT):.0f} GB disk",
            f"{int(memory.group(1)) / 1e6:.1f} GB memory" if memory else "",
            "load " + " ".join(read("/proc/loadavg").split()[:2]),
        ]
        for kind in ("cpu", "io", "memory"):
            some = re.search(r"some avg10=([\d.]+)", read(f"/proc/pressure/{kind}"))
            parts.append(f"{kind} pressure {some.group(1)} %" if some else "")
        parts.append(f"steal {stolen:.1f} %")
        return ", ".join(part for part in parts if part)


class Interrupted(Exception):
    """A signal has come: nothing more is begun."""


class Processes:
    """What a run has begun, so that nothing of it outlives the run, however that ends. Each command is a session of its own; what leaves it is found by
    its parents."""

    def __init__(self):
        self.begun = set()
        # The signal that came first, when, and what there was then of this run, by process id with the time of its start.
        self.signal, self.at, self.left = None, None, {}

    def listen(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # `nohup` says that the run goes on.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self.interrupt)

    def interrupt(self, number, _):
        """The handler: in the midst of anything, so it takes no lock, prints nothing by itself and raises nothing."""
        again = self.signal is not None
        if not again:
            # In this order: other threads look at the time once there is a signal.
            self.at = time.monotonic()
            self.signal = signal.Signals(number)
        self.left.update(self.descendants())
        text = "still ending what this run has begun" if again else f"interrupted by {self.signal.name}: ending what this run has begun"
        try:
            os.write(1, f"=== {text}\n".encode())
        except OSError:
            pass
        # As from a terminal, so that what cleans up can; who asks again gets it at once. Keepers of engines are sessions of their own, and go on until
        # their engine is gone.
        for child in list(self.begun):
            signal_group(child, signal.SIGKILL if again else signal.SIGINT)

    def check(self):
        if self.signal:
            raise Interrupted

    def begin(self, argv, **more):
        self.check()
        child = subprocess.Popen([str(arg) for arg in argv], start_new_session=True, **more)
        self.begun.add(child)
        if self.signal:
            # It came in between, and did not see this one.
            self.end(child)
            raise Interrupted
        return child

    def wait(self, child, limit_s):
        """The exit code of a command; None when it ran out of time, which is short after a signal."""
        end = time.monotonic() + limit_s
        while True:
            try:
                return child.wait(timeout=max(0, min(1, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if now >= end or self.signal and now >= self.at + ENDING_S:
                    return None

    def end(self, child):
        """Ends a command with all that it has begun in its session."""
        signal_group(child, signal.SIGKILL)
        child.wait()
        self.begun.discard(child)

    def pause(self, seconds):
        for _ in range(seconds):
            self.check()
            time.sleep(1)

    def descendants(self):
        """All processes that this one or a session of its commands is above of."""
        found, sessions = {os.getpid()}, {child.pid for child in list(self.begun)}
        table = processes()
        before = 0
        while len(found) > before:
            before = len(found)
            found |= {pid for pid, (parent, session, _) in table.items() if parent in found or session in sessions}
        return {pid: table[pid][2] for pid in found - {os.getpid()} if pid in table}

    def close(self):
        """Ends all that is left; after a signal it waits for what ends by itself, and says what came of it."""
        for child in list(self.begun):
            self.wait(child, ENDING_S if self.signal else 0)
            self.end(child)
        if not self.signal:
            return
        end = time.monotonic() + LEFT_S
        while self.alive() and time.monotonic() < end:
            time.sleep(0.1)
        for pid in self.alive():
            say(f"    killing {pid}, which did not end by itself: {read(f'/proc/{pid}/cmdline').replace(chr(0), ' ')[:100]}")
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        end = time.monotonic() + ENDING_S
        while self.alive() and time.monotonic() < end:
            time.sleep(0.1)
        # What has no owner any more: folders of servers that were killed.
        sweep()
        still = self.alive()
        what = f"still there: {' '.join(map(str, still))}" if still else "nothing is left"
        say(f"    of {len(self.left)} processes that this run had begun {what}")

    def alive(self):
        table = processes()
        return [pid for pid, start in sorted(self.left.items()) if pid in table and table[pid][2] == start]


def processes():
    """Every process that runs, with its parent, its session, and the time of its start, which tells it from a later one of the same id."""
    table = {}
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            # The name stands in brackets and may hold anything.
            words = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
            if words and words[0] not in "ZX":
                table[int(pid)] = (int(words[1]), int(words[3]), int(words[19]))
    return table


def signal_group(child, number):
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        pass


class Run:
    def __init__(self, kind, profile, limit_s):
        self.kind, self.profile, self.limit_s = kind, profile, limit_s
        self.processes = Processes()
        self.logs = TARGET / "test-logs" / kind
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        self.machine = Machine()
        self.passed = 0
        self.ignored = 0
        self.failures = []  # (what, first line of the reason)
        self.flaky = []
        self.steps = []
        self.environment = dict(os.environ)
        self.servers = None
        self.program = self.binary("fdn")

    def binary(self, name):
        return TARGET / ("release" if self.profile == "release" else self.profile) / name

    # --- steps

    def step(self, name, act):
        """Runs `act`, which gives whether it went well; says the machine's state before and the seconds after."""
        self.processes.check()
        say(f"=== {name}")
        say(f"    {self.machine.state()}")
        begin = time.monotonic()
        before = len(self.failures)
        try:
            good = act()
        except OSError as cause:
            self.failures.append((name, str(cause)))
            good = False
        seconds = time.monotonic() - begin
        say(f"    took {seconds:.0f} s")
        self.steps.append((name, seconds, good))
        if not good:
            free = free_gb(TARGET)
            if free < 0.5:
                self.failures.append((name, f"the disk is full: {free * 1000:.0f} MB are free at {TARGET}"))
            elif len(self.failures) == before:
                self.failures.append((name, "failed; its output stands above"))
        return good

    def command(self, name, argv, env=None, cwd=ROOT, limit_s=None, quiet=True):
        """Runs a command into a log file; its last lines are shown when it fails, or all when not `quiet`."""
        log = self.logs / f"{name.replace(' ', '-')}.log"
        code = self.execute(argv, log, env, cwd, limit_s or self.limit_s)
        text = read(log)
        if code == 0:
            if not quiet:
                say(text.rstrip())
            return True
        say("\n".join(text.rstrip().splitlines()[-SHOWN:]))
        self.failures.append((name, f"{ended(code)}: {first_reason(text)}"))
        return False

    def execute(self, argv, log, env=None, cwd=ROOT, limit_s=GATE_LIMIT_S, stdout=None):
        """The exit code of a command, negative for a signal, None when it ran out of time. Output goes to the file `log`."""
        with open(log, "wb") as output:
            child = self.processes.begin(
                argv,
                cwd=cwd,
                env={**self.environment, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=stdout or output,
                stderr=output,
            )
        try:
            code = self.processes.wait(child, limit_s)
        finally:
            # Whatever the command left behind in its own session goes with it.
            self.processes.end(child)
        # Nothing can be said of a command that was told to end.
        self.processes.check()
        return code

    # --- building

    def build(self):
        """Builds every program and test program; the test programs as (package, target, executable, folder)."""
        profile = ["--release"] if self.profile == "release" else ["--profile", self.profile]
        if not self.retry("fetch", ["cargo", "fetch", "--locked", "--quiet"]):
            return None
        artifacts = self.logs / "build.json"
        with open(artifacts, "wb") as output:
            argv = ["cargo", "build", "--locked", *profile, "--workspace", "--bins", "--tests"]
            code = self.execute(
                [*argv, "--message-format=json-render-diagnostics"], self.logs / "build.log", limit_s=5_400, stdout=output
            )
        if code != 0:
            text = read(self.logs / "build.log")
            lines = text.splitlines()
            # Not the line that names the crate: what is wrong in it stands before.
            errors = [i for i, line in enumerate(lines) if re.match(r"error(\[|:)", line) and "could not compile" not in line]
            for at in errors[:10]:
                say("\n".join(lines[at : at + 12]))
            if not errors:
                say("\n".join(lines[-SHOWN:]))
            for at in errors[:10] or [len(lines) - 1]:
                place = next((line.strip() for line in lines[at : at + 4] if line.strip().startswith("-->")), "")
                self.failures.append(("build", f"{lines[at] if lines else ended(code)} {place}"))
            return None
        programs = []
        for line in read(artifacts).splitlines():
            message = json.loads(line)
            if message.get("reason") != "compiler-artifact" or not message["profile"]["test"] or not message.get("executable"):
                continue
            folder = Path(message["manifest_path"]).parent
            # A library's unit tests bear the library's name, which is the package's; only other targets need their own.
            package = Path(folder).relative_to(ROOT).as_posix()
            kind = message["target"]["kind"][0]
            target = message["target"]["name"] if kind in ("test", "bin") else "unit"
            programs.append((package, target, message["executable"], folder))
        # The longest first: it waits for processes most of the time, while the others run beside it.
        return sorted(programs, key=lambda program: (program[0] != "e2e", program))

    def retry(self, name, argv, tries=3, **more):
        """For what asks a registry: three tries with pauses."""
        for left in reversed(range(tries)):
            before = len(self.failures)
            if self.command(name, argv, **more):
                return True
            if left:
                del self.failures[before:]
                say(f"    {name}: again in 10 s")
                self.processes.pause(10)
        return False

    # --- servers of the run

    def start_servers(self):
        """One PostgreSQL and one RabbitMQ for all test programs; those that kill theirs start their own."""
        errors = open(self.logs / "servers.log", "wb")
        self.servers = self.processes.begin(
            [self.binary("fdn-test-servers")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        for line in self.servers.stdout:
            if line.strip() == "ready":
                return True
            found = re.match(r"export (\w+)='([^']*)'", line)
            if found:
                self.environment[found.group(1)] = found.group(2)
        self.processes.check()
        self.failures.append(("servers", first_reason(read(self.logs / "servers.log"))))
        say(read(self.logs / "servers.log"))
        return False

    def servers_live(self):
        if self.servers is None:
            return False
        if self.servers.poll() is None:
            return True
        self.failures.append(("servers", first_reason(read(self.logs / "servers.log"))))
        self.servers = None
        return False

    def stop_servers(self):
        if self.servers_live():
            self.servers.stdin.close()
            self.processes.wait(self.servers, 60)
            self.processes.end(self.servers)

    # --- test programs

    def tests(self, programs, arguments, lanes=1, again=True):
        """Runs every test program with the arguments, `lanes` at a time: most of them wait. A test that fails is run once more, alone, if `again`."""
        waiting = list(reversed(programs))
        failed = []
        lock = threading.Lock()

        def lane():
            while True:
                with lock:
                    if not waiting or self.processes.signal or not self.servers_live():
                        return
                    package, target, executable, folder = waiting.pop()
                begin = time.monotonic()
                log = self.logs / f"{package.replace('/', '-')}-{target}.log"
                try:
                    result = Result(*self.test(executable, arguments, folder, log))
                except Interrupted:
                    return
                with lock:
                    self.report(f"{package} {target}", result, time.monotonic() - begin)
                    if not result.good:
                        failed.append((f"{package} {target}", result, executable, folder))

        threads = [threading.Thread(target=lane) for _ in range(lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.processes.check()
        # Without their servers all tests fail, which says nothing about them.
        if not self.servers_live():
            return False
        # Whole lists, not generators: each is to be judged.
        return all([self.judge(name, result, executable, arguments, folder, again) for name, result, executable, folder in failed])

    def test(self, executable, arguments, folder, log):
        env = {"CARGO_MANIFEST_DIR": str(folder), "RUST_BACKTRACE": "0"}
        code = self.execute([executable, *arguments], log, env, folder, self.limit_s)
        return read(log), code

    def report(self, name, result, seconds):
        self.passed += result.passed
        self.ignored += result.ignored
        if not result.good:
            say(f"FAIL  {name}: {result.word} ({seconds:.1f} s)")
        elif result.passed:
            say(f"ok    {name}: {result.passed} passed ({seconds:.1f} s)")
        # A test that could not do what it is for says so; CI does not accept it, elsewhere somebody has to read it.
        for line in re.findall(r"^left out: .*", result.text, re.M):
            say(f"      {line}")

    def judge(self, name, result, executable, arguments, folder, again):
        """Tells what failed; tries each test again alone. Gives whether all passed then."""
        good = True
        # A program that ended without its closing line is tried again as a whole.
        tests = result.failed or [None]
        for number, test in enumerate(tests):
            reason, text = result.reason(test)
            say(f"---- {name}: {test or 'the whole program'}")
            say("\n".join(text[:SHOWN]))
            if again and number < RETRIED:
                chosen = ["--exact", test] if test else arguments
                second = Result(*self.test(executable, chosen, folder, self.logs / "again.log"))
                if second.good and second.passed:
                    say(f"FLAKY {name}: {test or 'the whole program'}")
                    self.flaky.append((f"{name}: {test or 'the whole program'}", reason))
                    self.passed += 1 if test else second.passed
                    continue
            good = False
            self.failures.append((f"{name}: {test or 'the whole program'}", reason))
        return good

    # --- the end

    def finish(self):
        if self.ignored:
            self.failures.append(("tests", f"{self.ignored} tests are ignored; a test either runs or goes"))
        say("=== summary")
        for name, seconds, good in self.steps:
            say(f"{'ok  ' if good else 'FAIL'}  {name} ({seconds:.0f} s)")
        for what, reason in self.flaky:
            say(f"FLAKY {what}\n      {reason}")
        for what, reason in self.failures:
            say(f"FAILED {what}\n      {reason}")
        say(f"{self.passed} passed, {len(self.failures)} failed")
        if self.processes.signal:
            return 128 + self.processes.signal
        return 0 if not self.failures and self.passed else 1


class Result:
    """What a test program printed, in the format of Rust's test harness."""

    def __init__(self, text, code):
        self.text, self.code = text, code
        closing = re.findall(r"^test result: (\w+)\. (\d+) passed; (\d+) failed; (\d+) ignored", text, re.M)
        self.closed = bool(closing)
        self.passed = sum(int(found[1]) for found in closing)
        self.ignored = sum(int(found[3]) for found in closing)
        self.failed = sorted(set(re.findall(r"^test (\S+)(?: - should panic)? \.\.\. FAILED", text, re.M)))
        self.good = code == 0 and self.closed

    @property
    def word(self):
        if self.failed:
            return f"{len(self.failed)} failed"
        slow = re.findall(r"^test (\S+) has been running for over", self.text, re.M)
        return ended(self.code) + (f"; it was at {', '.join(slow)}" if slow else "")

    def reason(self, test):
        """The first line of the panic, and the output of the test."""
        if test is None:
            return f"{self.word}: {first_reason(self.text)}", self.text.rstrip().splitlines()[-SHOWN:]
        section = re.search(rf"^---- {re.escape(test)} stdout ----\n(.*?)(?=^---- \S+ stdout ----$|^failures:$)", self.text, re.M | re.S)
        lines = section.group(1).strip().splitlines() if section else []
        return first_reason("\n".join(lines)), lines


def ended(code):
    if code is None:
        return "it did not end in time"
    if code < 0:
        return f"ended by signal {signal.Signals(-code).name}"
    return f"ended with {code}"


def first_reason(text):
    """The first line that says what went wrong: a panic with its place, or an error."""
    lines = text.strip().splitlines()
    for at, line in enumerate(lines):
        place = re.search(r"panicked at (\S+?):?$", line)
        if place:
            return f"{place.group(1)}: {' '.join(lines[at + 1 : at + 2]).strip()}"[:300]
    for line in lines:
        if re.search(r"^(FAIL\b|error\b|Error\b|\s+✗|.*\berror(\[|:|\s+TS\d))|No space left|No such file|cannot|failed to run|refused", line):
            return line.strip()[:300]
    return lines[-1].strip()[:300] if lines else "it printed nothing"


# --- before the run


def preflight(run):
    """Clears what earlier runs left, and refuses a machine that cannot carry one, in words."""
    good = True
    sweep()
    free = free_gb(TARGET)
    if free < FREE_GB:
        where = [f"{Path(p) / 'target'}" for p in (ROOT,) if (Path(p) / "target").exists()]
        run.failures.append(
            ("preflight", f"{free:.1f} GB are free at {TARGET}, a run needs {FREE_GB:.0f}: delete build folders ({', '.join(where) or 'of other work trees'})")
        )
        good = False
    audit = subprocess.run(["dpkg", "--audit"], capture_output=True, text=True, check=False) if shutil.which("dpkg") else None
    if audit and audit.stdout.strip():
        say("    packages are half configured; trying: dpkg --configure -a")
        done = subprocess.run(["dpkg", "--configure", "-a"], capture_output=True, text=True, check=False)
        if done.returncode:
            run.failures.append(("preflight", "dpkg has half-configured packages; run: dpkg --configure -a"))
            good = False
    return good


def sweep():
    """Folders, engines and bridges of test servers whose owner is gone."""
    parent = Path(tempfile.gettempdir())
    # The owner holds a lock on this file as long as it lives (testkit/src/folder.rs).
    for held in [*parent.glob("fdn-*/owner.lock"), *Path("/dev/shm").glob("fdn-*/owner.lock")]:
        try:
            with open(held) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(held.parent, ignore_errors=True)
                say(f"    removed {held.parent}: its owner is gone")
        except OSError:
            continue
    for folder in parent.glob("fdn-docker-*"):
        keeper = f"keeper {folder}"
        if any(keeper in read(f"/proc/{pid}/cmdline").replace("\0", " ") for pid in os.listdir("/proc") if pid.isdigit()):
            continue
        engine = read(folder / "pid").strip()
        if engine.isdigit() and str(folder) in read(f"/proc/{engine}/cmdline"):
            say(f"    ending the test engine {engine}: its owner is gone")
            os.kill(int(engine), signal.SIGTERM)
            for _ in range(100):
                if not Path(f"/proc/{engine}").exists():
                    break
                time.sleep(0.1)
        for mount in [line.split()[1] for line in read("/proc/mounts").splitlines()]:
            if mount.startswith(f"{folder}/"):
                subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
        say(f"    removed {folder}: its engine is gone")


# --- what is run


class Lints:
    """Lints: on what the tests leave of the processor, and like anybody else once those are over."""

    def __init__(self, run):
        self.run = run
        self.log = run.logs / "lints.log"
        self.beside = None

    def begin(self):
        # A command is a session of its own, and where the kernel shares the processor between sessions (sched_autogroup) niceness counts within one only.
        lowest = 'echo 19 2>/dev/null >/proc/self/autogroup; exec nice -n 19 scripts/check.sh "$0" lints'
        with open(self.log, "wb") as output:
            self.beside = self.run.processes.begin(
                ["sh", "-c", lowest, self.run.profile],
                cwd=ROOT,
                env=self.run.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def end(self):
        code = self.beside.poll()
        if code is None:
            # On a busy machine the lowest priority may be none at all. Nobody can raise it without being root, so what is left is begun again;
            # crates that are done are not looked at twice.
            self.run.processes.end(self.beside)
            say("    not over yet; the rest at normal priority")
            code = self.run.execute(["scripts/check.sh", self.run.profile, "lints"], self.log)
        if code != 0:
            text = read(self.log)
            say("\n".join(text.rstrip().splitlines()[-SHOWN:]))
            self.run.failures.append(("lints", f"{ended(code)}: {first_reason(text)}"))
        return code == 0


def gate(run):
    if not run.step("preflight", lambda: preflight(run)):
        return
    # Seconds, before what takes minutes.
    if not run.step("form", lambda: run.command("form", ["scripts/check.sh", run.profile, "form"])):
        return
    if not run.step("an interrupted run", lambda: run.command("interrupted", ["scripts/interrupted.py"])):
        return
    if not run.step("console", lambda: run.command("console", ["scripts/console.sh", "check"])):
        return
    programs = []

    def build():
        programs.extend(run.build() or [])
        return bool(programs)

    # Nothing can be said of tests that cannot be compiled.
    if not run.step("build", build):
        return
    run.step("functions", lambda: functions(run, "all", "test", "verify-quick"))
    beside = Lints(run)
    if run.step("servers", run.start_servers):
        beside.begin()
        run.step("tests", lambda: run.tests(programs, ["--skip", "soak::"], lanes=2))
    run.step("the API against its document", lambda: api(run))
    run.step("the console in a browser", lambda: browser(run, "story"))
    run.step("deploy/", lambda: deploy(run))
    if beside.beside:
        run.step("lints (begun beside the tests)", beside.end)


def functions(run, *goals):
    # A build folder of its own: the functions are another workspace.
    env = {"CARGO_TARGET_DIR": str(TARGET / "functions")}
    return run.command("functions", ["make", "--no-print-directory", "-C", "functions", *goals], env=env)


def api(run):
    env = {"FDN": str(run.program), "FDN_TEST_PLACE": str(TARGET / "schemathesis")}
    return run.command("api", ["scripts/schemathesis.sh"], env=env)


def deploy(run):
    """What deploy/ holds and no test program runs; the compose file is a group of soak."""
    programs = run.program.parent
    commands = {
        "rules": ["scripts/deploy/monitoring.py", "rules"],
        "monitoring": ["scripts/deploy/monitoring.py", "network", programs],
        "units": ["scripts/deploy/units.py", programs],
        "dist": ["scripts/deploy/dist.py", programs],
        "helm": ["scripts/deploy/helm.py", "check", programs, TARGET / "helm"],
    }
    # A list: each is to be run.
    return all([run.command(name, argv, quiet=False) for name, argv in commands.items()])


def browser(run, *arguments):
    log = run.logs / "browser.log"
    code = run.execute(["node", "e2e/run.js", *arguments], log, {"FDN_PROGRAM": str(run.program)}, ROOT / "web", run.limit_s)
    result = Result(read(log), code)
    run.passed += result.passed
    if result.good:
        return True
    say("\n".join(read(log).rstrip().splitlines()[-SHOWN:]))
    run.failures.append(("the console in a browser", f"{ended(code)}: {first_reason(read(log))}"))
    return False


def soak(run, groups):
    unknown = [group for group in groups if group not in SOAK]
    if unknown:
        run.failures.append(("soak", f"no group {', '.join(unknown)}; there are {', '.join(SOAK)}"))
        return
    groups = groups or [group for group in SOAK if group not in BY_NAME]
    if not run.step("preflight", lambda: preflight(run)):
        return
    if not run.step("console", lambda: run.command("console", ["scripts/console.sh"])):
        return
    programs = []

    def build():
        programs.extend(run.build() or [])
        return bool(programs)

    if not run.step("build", build):
        return
    if not run.step("servers", run.start_servers):
        return
    # The tutorial and the templates build functions in every language.
    if {"long", "functions"} & set(groups) and not run.step("tools", lambda: run.command("tools", ["functions/install-tools.sh", "rust", "python", "js", "c"])):
        return
    for group in groups:
        run.step(group, lambda group=group: SOAK[group](run, programs))


def long_tests(run, programs):
    # What needs the programs of another revision is a group of its own, and so is an hour.
    return run.tests(programs, ["soak::", "--skip", "soak::upgrade::", "--skip", "soak::endurance::"], again=False)


def endurance(run, programs):
    """The hour, or FDN_ENDURANCE_MINUTES, in which everything happens; what it reports stands in test-logs, also as JSON."""
    seed = run.environment.setdefault("FDN_ENDURANCE_SEED", str(secrets.randbelow(1_000_000)))
    minutes = int(run.environment.setdefault("FDN_ENDURANCE_MINUTES", "60"))
    say(f"    FDN_ENDURANCE_SEED={seed} FDN_ENDURANCE_MINUTES={minutes}")
    report = run.logs.parent / "endurance.txt"
    report.unlink(missing_ok=True)
    chosen = [program for program in programs if program[:2] == ("e2e", "it")]
    before = run.limit_s
    # Beginning, the end of what is under way, and counting.
    run.limit_s = minutes * 60 + 2_400
    try:
        good = run.tests(chosen, ["soak::endurance::"], again=False)
    finally:
        run.limit_s = before
    say(read(report).rstrip())
    return good


def upgrade(run, programs):
    """A network of the revision before is upgraded under load by the programs of this build."""
    before = previous(run)
    if before is None:
        return False
    run.environment["FDN_UPGRADE_BINARIES"] = str(before)
    chosen = [program for program in programs if program[:2] == ("e2e", "it")]
    return run.tests(chosen, ["soak::upgrade::"], again=False)


def previous(run):
    """The folder with the programs of the revision before: as FDN_UPGRADE_BINARIES says, else built from git in a folder of that revision alone."""
    given = os.environ.get("FDN_UPGRADE_BINARIES")
    if given:
        say(f"    from the programs in {given}")
        return Path(given).resolve()
    revision = previous_revision(run)
    if revision is None:
        return None
    say(f"    from revision {revision[:12]} (FDN_UPGRADE_FROM=REVISION for another one)")
    # Cargo takes packages of two trees in one build folder for the same, and goes by times that are those of commits here.
    parent = TARGET / "upgrade"
    place = parent / revision
    for other in parent.glob("*"):
        if other != place:
            shutil.rmtree(other)
    sources, folder = place / "sources", place / "build"
    if not sources.exists():
        archive = place / "sources.tar"
        place.mkdir(parents=True, exist_ok=True)
        if not run.command("upgrade sources", ["git", "archive", "--output", archive, revision]):
            return None
        unpacked = place / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir()
        if not run.command("upgrade sources", ["tar", "-xf", archive, "-C", unpacked]):
            return None
        archive.unlink()
        unpacked.rename(sources)
    profile = ["--release"] if run.profile == "release" else ["--profile", run.profile]
    wanted = ["fdn", "fdn-controller", "fdn-dns", "fdn-edge-agent"]
    argv = ["cargo", "build", "--locked", *profile, "--workspace", *[part for name in wanted for part in ("--bin", name)]]
    env = {"CARGO_TARGET_DIR": str(folder), "FDN_REVISION": revision[:12]}
    if not run.command("upgrade build", argv, env=env, cwd=sources, limit_s=5_400):
        return None
    return folder / ("release" if run.profile == "release" else run.profile)


def previous_revision(run):
    """FDN_UPGRADE_FROM; else the newest release; else the newest revision on the first-parent line whose sources are not those of the work tree."""

    def git(*argv):
        done = subprocess.run(["git", *argv], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    def of(name):
        return git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")

    asked = os.environ.get("FDN_UPGRADE_FROM")
    if asked:
        found = of(asked)
    else:
        # Of two tags of one commit any will do; a release is no upgrade of itself.
        tags = (git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname") or "").split()
        lines = (git("rev-list", "--first-parent", "--max-count=100", "HEAD") or "").split()
        found = next((of(tag) for tag in tags if differs(git, tag)), None) or next((line for line in lines if differs(git, line)), None)
    if found is None:
        why = f"there is no revision {asked}" if asked else "no revision before this one is there; fetch more of the history"
        run.failures.append(("upgrade", f"{why}, or name one by FDN_UPGRADE_FROM, or its programs by FDN_UPGRADE_BINARIES"))
    return found


def differs(git, revision):
    """Whether the work tree's programs are made of other files than that revision's."""
    return git("diff", "--quiet", revision, "--", "*.rs", "*.sql", "Cargo.lock", ":(exclude)*/tests/*", ":(exclude)e2e", ":(exclude)testkit") is None


def properties(run, programs):
    # Tests of the gate call the ready functions, which are built.
    if not functions(run, "all"):
        return False
    seed = str(secrets.randbits(63))
    say(f"    PROPTEST_RNG_SEED={seed}")
    run.environment["PROPTEST_RNG_SEED"] = seed
    try:
        return run.tests(programs, ["--skip", "soak::"], again=False)
    finally:
        run.environment["PROPTEST_RNG_SEED"] = SEED


def deployed(run):
    """deploy/ and a release, on machines and engines."""
    programs = run.program.parent
    commands = {
        "compose": ["scripts/deploy/compose.py", programs],
        "services": ["scripts/deploy/services.py", programs],
        "machines": ["scripts/deploy/dist.py", programs, "machines"],
    }
    return all([run.command(name, argv, quiet=False) for name, argv in commands.items()])


def release(run):
    """Two builds from the same sources, at two paths, are the same bytes."""
    # Elsewhere than `make dist` puts it: what lies there is somebody's.
    argv = ["scripts/dist.py", "--again", "--out", TARGET / "release-again"]
    return run.command("release", argv, quiet=False, limit_s=10_800)


SOAK = {
    "long": long_tests,
    "endurance": endurance,
    "properties": properties,
    "functions": lambda run, _: functions(run, "all", "test", "verify", "test-templates"),
    "docs": lambda run, _: run.command("docs", ["scripts/check.sh", run.profile, "docs"]),
    "browser": lambda run, _: browser(run),
    "deploy": lambda run, _: deployed(run),
    "release": lambda run, _: release(run),
    "upgrade": upgrade,
}
# They take an hour and more each, and run when they are named.
BY_NAME = ("endurance", "release")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["gate", "soak"])
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--profile", help="of the build, instead of the kind's own: soak on what the gate has built, for one")
    asked = parser.parse_intermixed_args()
    os.chdir(ROOT)
    TARGET.mkdir(parents=True, exist_ok=True)
    if asked.kind == "gate":
        run = Run("gate", asked.profile or "gate", GATE_LIMIT_S)
    else:
        # What is shipped is what is strained.
        run = Run("soak", asked.profile or "release", SOAK_LIMIT_S)
        # The published figures need the recorded traces: where they are, none is left out for want of one.
        if (ROOT.parent / "shared" / "data").is_dir():
            run.environment["FDN_DATA_REQUIRED"] = "1"
    run.environment["PROPTEST_RNG_SEED"] = SEED
    sys.exit(whole(run, lambda: gate(run) if asked.kind == "gate" else soak(run, asked.groups)))


def whole(run, act):
    """A run from its beginning to its last line; its exit code."""
    begin = time.monotonic()
    run.processes.listen()
    try:
        act()
        run.stop_servers()
    except Interrupted:
        pass
    finally:
        run.processes.close()
    if run.processes.signal:
        run.failures.append(("run", f"interrupted by {run.processes.signal.name}"))
    say(f"=== {run.kind} took {(time.monotonic() - begin) / 60:.1f} minutes")
    return run.finish()


if __name__ == "__main__":
    main()
