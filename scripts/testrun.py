"""Runs test steps and counts what really ran. Used by the Makefile only.

  testrun.py steps STEP...      runs `make STEP` one after another, stops at the first that fails, and prints
                                "tests: P passed, F failed, S skipped" last, counted from go test's own events
  testrun.py go LABEL ARGS...   runs `go test -json ARGS`, prints one line a package and the output of what failed
  testrun.py fuzz TIME PKG...   runs every fuzz target of the packages for TIME each (5m, or 10000x inputs)
  testrun.py unchanged CMD...   runs a command and fails if it changes a golden file or the docs

A skipped test fails the run: a test that cannot run proves nothing. So does a step in which no test ran, and a package
without the fuzz target it was named for. A step that fails without a failing test (a format error, say) counts as one
failure.
"""

import hashlib
import json
import os
import subprocess
import sys
import time

TALLY = "BROWNOUT_TALLY"  # environment: the file the counts of one `steps` run are collected in
WORDS = ("pass", "fail", "skip")


class Counts(dict):
    def __init__(self):
        super().__init__(dict.fromkeys(WORDS, 0))

    def __str__(self):
        return f"{self['pass']} passed, {self['fail']} failed, {self['skip']} skipped"


def record(counts):
    """Adds counts to the tally of the surrounding run, if there is one."""
    if TALLY in os.environ:
        with open(os.environ[TALLY], "a", encoding="utf-8") as f:
            f.write(json.dumps(counts) + "\n")


def tally(path):
    total = Counts()
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            for line in f:
                for word, n in json.loads(line).items():
                    total[word] += n
    return total


def steps(names):
    path = os.path.join(".cache", "test", f"tally-{os.getpid()}.jsonl")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.environ[TALLY] = os.path.abspath(path)
    code = 0
    try:
        for name in names:
            print(f"=== {name}", flush=True)
            began, before = time.monotonic(), tally(path)["fail"]
            code = subprocess.call([os.environ.get("MAKE", "make"), "--no-print-directory", name])
            print(f"=== {name}: {'ok' if code == 0 else 'FAILED'} ({time.monotonic() - began:.0f}s)", flush=True)
            if code != 0:
                total = tally(path)
                if total["fail"] == before and total["skip"] == 0:
                    record({"fail": 1})
                break
        print(f"tests: {tally(path)}", flush=True)
    finally:
        if os.path.exists(path):
            os.remove(path)
    return 1 if code else 0


class Events:
    """Reads go test's events: counts tests, keeps the output of those that did not pass."""

    def __init__(self):
        self.counts = Counts()
        self.output = {}  # (package, test) → lines; "" stands for the package itself
        self.failed_tests = set()  # packages with a failing test
        self.benchmarks = 0

    def take(self, line):
        try:
            event = json.loads(line)
        except ValueError:
            print(line, end="", flush=True)  # go itself speaks
            return
        action, test = event["Action"], event.get("Test", "")
        package = event.get("Package", event.get("ImportPath", ""))
        key = (package, test)
        if action in ("output", "build-output"):
            self.output.setdefault(key, []).append(event["Output"])
            self.benchmarks += " ns/op" in event["Output"]
        elif test and action in WORDS:
            self.test(action, key, event)
        elif action in WORDS:
            self.package(action, key, event)

    def test(self, action, key, event):
        self.counts[action] += 1
        lines = self.output.pop(key, [])
        if action == "fail":
            self.failed_tests.add(key[0])
        if action != "pass":
            print("".join(lines), end="", flush=True)
        elif event["Elapsed"] > 10:
            print(f"      {event['Test']} took {event['Elapsed']:.0f}s", flush=True)

    def package(self, action, key, event):
        lines = self.output.pop(key, [])
        if action == "fail":
            # Without a failing test the package did not build, crashed or ran out of time: that is one failure, and
            # what its tests had said until then matters.
            if key[0] not in self.failed_tests:
                self.counts["fail"] += 1
                lines += [text for (pkg, _), kept in self.output.items() if pkg in (key[0], event.get("FailedBuild")) for text in kept]
            print("".join(lines), end="", flush=True)
        elif action == "pass":
            print(f"ok    {key[0]}  {event.get('Elapsed', 0):.1f}s", flush=True)


def go(label, args):
    events = Events()
    run = subprocess.Popen(["go", "test", "-json", *args], stdout=subprocess.PIPE, text=True, encoding="utf-8", errors="replace")
    for line in run.stdout:
        events.take(line)
    code = run.wait()
    record(events.counts)
    ran = f"{events.benchmarks} benchmarks" if events.benchmarks else events.counts
    print(f"{label}: {ran}", flush=True)
    if not events.benchmarks and not any(events.counts.values()):
        print(f"{label}: nothing ran: go test {' '.join(args)}", flush=True)
        return 1
    return 1 if code or events.counts["fail"] or events.counts["skip"] else 0


def fuzz(duration, packages):
    targets = 0
    for package in packages:
        listed = subprocess.run(["go", "test", "-list", "^Fuzz", package], stdout=subprocess.PIPE, text=True, check=False)
        if listed.returncode != 0:
            print(listed.stdout)
            return 1
        names = [line for line in listed.stdout.splitlines() if line.startswith("Fuzz")]
        if not names:
            print(f"{package}: no fuzz target in it")
            return 1
        for name in names:
            targets += 1
            if go(f"{package} {name}", ["-run", "^$", "-fuzz", f"^{name}$", "-fuzztime", duration, package]):
                return 1
    print(f"{targets} fuzz targets, {duration} each")
    if targets == 0:
        print("no package with a fuzz target was named")
        return 1
    return 0


def generated():
    """Checksums of the files that a program writes: goldens and the docs."""
    sums = {}
    for folder, inner, names in os.walk("."):
        inner[:] = [d for d in inner if not d.startswith(".") and d not in ("fuzz", "rapid")]
        parts = folder.split(os.sep)
        if "testdata" in parts or parts[1:2] == ["docs"]:
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    sums[path] = hashlib.sha256(f.read()).hexdigest()
    return sums


def unchanged(command):
    before = generated()
    code = subprocess.call(command)
    after = generated()
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    for path in changed:
        print(f"{path}: generation changes this file; read the change, it has been made")
    return 1 if code or changed else 0


def main():
    command, args = sys.argv[1], sys.argv[2:]
    if command == "go":
        return go(args[0], args[1:])
    if command == "fuzz":
        return fuzz(args[0], args[1:])
    return {"steps": steps, "unchanged": unchanged}[command](args)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
