"""Installs what the end-to-end tests run as clients and as model server: get_sdk.py NAME...

Prints one path a name on stdout: a command that takes the driver's input (python, node, go), or the Python that has the
llama.cpp server (llama). Everything lies in .cache/sdk/NAME of this repository and is made once for each content of
the file that pins the versions. Messages go to stderr; on failure the last one names a remedy.

A result appears by rename, so a reader sees a whole one or none; concurrent callers wait for one another.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.path.join(ROOT, ".cache", "sdk")
SDK = os.path.join(ROOT, "e2e", "sdk")


def die(problem, remedy):
    print(f"get_sdk: {problem}", file=sys.stderr)
    print(f"get_sdk: remedy: {remedy}", file=sys.stderr)
    sys.exit(1)


def run(what, remedy, *command, cwd=None):
    try:
        done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        die(f"{command[0]} is needed for {what} and is not on PATH", f"install {command[0]}; the README lists the prerequisites")
    if done.returncode != 0:
        print((done.stdout + done.stderr).rstrip(), file=sys.stderr)
        die(f"{what}: {command[0]} failed with status {done.returncode}", remedy)
    return done.stdout


def venv(into, requirements):
    """Makes a virtual environment. It is made in its final place, because it knows its own path."""
    remedy = "check the network and pip's index settings; Debian needs the package python3-venv too"
    run("a virtual environment", remedy, sys.executable, "-m", "venv", into)
    run(requirements, remedy, os.path.join(into, "bin", "python"), "-m", "pip", "install", "--quiet",
        "--disable-pip-version-check", "--only-binary", ":all:", "--requirement", requirements)


def python(into):
    venv(into, os.path.join(SDK, "python", "requirements.txt"))


def node(into):
    major = run("the JavaScript SDKs", "install Node 20 or newer", "node", "--version").lstrip("v").split(".")[0]
    if not major.isdigit() or int(major) < 20:
        die(f"node is version {major}", "install Node 20 or newer")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(os.path.join(SDK, "node", name), into)
    run("the JavaScript SDKs", "install npm, and check the network and its registry settings",
        "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", cwd=into)


def go(into):
    run("the Go SDKs", "check the network and Go's proxy settings", "go", "mod", "download", cwd=os.path.join(SDK, "go"))


def llama(into):
    venv(into, os.path.join(ROOT, "e2e", "llama", "requirements.txt"))


# What pins the versions, what installs them, and what to run: the driver is not part of what is kept.
PARTS = {
    "python": (["sdk/python/requirements.txt"], python),
    "node": (["sdk/node/package.json", "sdk/node/package-lock.json"], node),
    "go": (["sdk/go/go.mod", "sdk/go/go.sum"], go),
    "llama": (["llama/requirements.txt"], llama),
}


def key(name):
    digest = hashlib.sha256(sys.version.encode())
    for pin in PARTS[name][0]:
        with open(os.path.join(ROOT, "e2e", pin), "rb") as f:
            digest.update(f.read())
    return digest.hexdigest()[:12]


def install(name):
    """Returns the folder in which the part is installed."""
    into = os.path.join(CACHE, f"{name}-{key(name)}")
    stamp = os.path.join(into, ".complete")
    if not os.path.exists(stamp):
        for old in os.listdir(CACHE):
            if old.startswith(name + "-"):
                shutil.rmtree(os.path.join(CACHE, old))
        print(f"get_sdk: installing {name}, once", file=sys.stderr)
        os.makedirs(into)
        PARTS[name][1](into)
        with open(stamp, "w", encoding="utf-8"):
            pass
    return into


def command(name, into):
    """What to run."""
    if name in ("python", "llama"):
        return os.path.join(into, "bin", "python")
    if name == "node":  # a module finds others beside it only
        shutil.copy(os.path.join(SDK, "node", "driver.mjs"), into)
        return os.path.join(into, "driver.mjs")
    binary = os.path.join(into, "driver")
    run("the Go driver", "read the compiler's message", "go", "build", "-o", binary, ".", cwd=os.path.join(SDK, "go"))
    return binary


def main():
    os.makedirs(CACHE, exist_ok=True)
    for name in sys.argv[1:]:
        if name not in PARTS:
            die(f"no part {name}", f"choose from: {' '.join(PARTS)}")
        with open(os.path.join(CACHE, f"{name}.lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            print(command(name, install(name)))


if __name__ == "__main__":
    try:
        main()
    except OSError as err:
        die(str(err), "free some space or fix the permissions of the cache folder .cache/sdk")
