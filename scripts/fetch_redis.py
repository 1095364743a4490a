"""Fetches a redis-server from the distribution's packages for get-redis.sh: fetch_redis.py CACHE_DIR.

The result is CACHE_DIR/redis-server, a wrapper around the unpacked binary and its libraries. It appears by rename when
everything else is in place; concurrent callers wait for one another on a lock file and only the first one downloads.
Nothing is installed and no root is needed: where the machine has no package index, one is fetched into CACHE_DIR.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

PACKAGES = ("redis-server", "redis-tools")
# Libraries of these names come from the machine: a foreign one would not fit its loader.
OF_THE_MACHINE = re.compile(r"^(libc6|libgcc-s1|libstdc\+\+6|libcrypt1)(:|$)")
# apt refuses packages whose index is not signed; what the machine's configuration may say is overruled.
VERIFIED = ["-o", "APT::Get::AllowUnauthenticated=false", "-o", "Acquire::AllowInsecureRepositories=false",
            "-o", "Acquire::AllowWeakRepositories=false"]
REMEDY = "check the network and apt's sources, install redis-server, or set REDIS_BIN to one"


def die(problem, remedy=REMEDY):
    print(f"get-redis: {problem}", file=sys.stderr)
    print(f"get-redis: remedy: {remedy}", file=sys.stderr)
    sys.exit(1)


def run(args, **more):
    return subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          env={**os.environ, "LC_ALL": "C"}, **more)


def candidate(package, options):
    """Returns the version apt would install, or None."""
    found = re.search(r"^  Candidate: (\S+)$", run(["apt-cache", *options, "policy", package]).stdout, re.M)
    return None if found is None or found[1] == "(none)" else found[1]


def private_index(cache):
    """Fetches the distribution's index into the cache, for a machine that has none, and returns apt's options for it."""
    state = os.path.join(cache, "apt")
    for folder in ("lists/partial", "archives/partial"):
        os.makedirs(os.path.join(state, folder), exist_ok=True)
    options = ["-o", f"Dir::State::lists={state}/lists", "-o", f"Dir::Cache={state}", "-o", "APT::Sandbox::User="]
    print("get-redis: fetching the package index (once)", file=sys.stderr)
    done = run(["apt-get", *VERIFIED, *options, "update"])
    if done.returncode != 0:
        print((done.stdout + done.stderr).rstrip(), file=sys.stderr)
        die("apt-get could not fetch the package index")
    return options


def libraries(options):
    """Returns the library packages that the server's packages depend on."""
    out = set()
    for package in PACKAGES:
        for name in re.findall(r"^\s+Depends: <?([^\s>]+)", run(["apt-cache", *options, "depends", package]).stdout, re.M):
            if re.match(r"^(lib|lua-)", name) and not OF_THE_MACHINE.match(name):
                out.add(name)
    return sorted(out)


def download(packages, options, into):
    """Returns the paths of the packages, each with the checksum that the signed index states."""
    done = run(["apt-get", *VERIFIED, *options, "-o", "APT::Sandbox::User=", "download", *packages], cwd=into)
    if done.returncode != 0:
        print((done.stdout + done.stderr).rstrip(), file=sys.stderr)
        die(f"apt-get could not download {' '.join(packages)}")
    files = sorted(os.path.join(into, name) for name in os.listdir(into) if name.endswith(".deb"))
    for path in files:
        verify(path, options)
    return files


def verify(path, options):
    """Ends the program unless the index states this file's checksum for its package and version."""
    package, version = os.path.basename(path).split("_")[:2]
    version = version.replace("%3a", ":")
    stated = re.findall(r"^SHA256: ([0-9a-f]{64})$", run(["apt-cache", *options, "show", f"{package}={version}"]).stdout, re.M)
    with open(path, "rb") as f:
        have = hashlib.file_digest(f, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else hashlib.sha256(f.read()).hexdigest()
    if have not in stated:
        die(f"{os.path.basename(path)} has sha256 {have}, the signed index states {' '.join(stated) or 'none'}",
            "do not use this file; check apt's sources, or set REDIS_BIN to a redis-server")


def find_binary(tree):
    for folder in ("usr/bin", "bin"):
        path = os.path.join(tree, folder, "redis-server")
        if os.path.exists(path):
            return os.path.join(folder, "redis-server")
    die(f"the packages {' '.join(PACKAGES)} hold no redis-server", "set REDIS_BIN to a redis-server")
    return None


def library_path(tree):
    """Returns the folders of the tree that hold shared libraries, relative to it."""
    out = set()
    for folder, _, names in os.walk(tree):
        if any(name.startswith("lib") and ".so" in name for name in names):
            out.add(os.path.relpath(folder, tree))
    return sorted(out)


def wrapper(binary, folders):
    paths = ":".join(f"$here/tree/{f}" for f in folders)
    return f"""#!/bin/sh
# Written by scripts/fetch_redis.py: the unpacked server with the libraries it came with.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
LD_LIBRARY_PATH="{paths}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" exec "$here/tree/{binary}" "$@"
"""


def install(cache, debs, staging):
    tree = os.path.join(staging, "tree")
    for deb in debs:
        done = run(["dpkg-deb", "-x", deb, tree])
        if done.returncode != 0:
            die(f"unpacking {os.path.basename(deb)}: {done.stderr.strip()}")
    binary, folders = find_binary(tree), library_path(tree)
    script = os.path.join(staging, "redis-server")
    with open(script, "w", encoding="utf-8") as f:
        f.write(wrapper(binary, folders))
    os.chmod(script, 0o755)
    if not run([script, "--version"]).stdout.startswith("Redis server v="):
        missing = run(["ldd", os.path.join(tree, binary)])
        print((missing.stdout + missing.stderr).rstrip(), file=sys.stderr)
        die("the unpacked redis-server does not run on this machine", "install redis-server, or set REDIS_BIN to one")
    shutil.rmtree(os.path.join(cache, "tree"), ignore_errors=True)
    os.rename(tree, os.path.join(cache, "tree"))
    os.rename(script, os.path.join(cache, "redis-server"))


def main():
    cache = os.path.abspath(sys.argv[1])
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.access(os.path.join(cache, "redis-server"), os.X_OK):
            return
        options = [] if candidate(PACKAGES[0], []) else private_index(cache)
        version = candidate(PACKAGES[0], options)
        if version is None:
            die("apt knows no package redis-server", "install redis-server, or set REDIS_BIN to one")
        print(f"get-redis: fetching redis-server {version} and its libraries (about 2 MB, once)", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".staging-") as staging:
            debs = os.path.join(staging, "debs")
            os.mkdir(debs)
            install(cache, download([*PACKAGES, *libraries(options)], options, debs), staging)


if __name__ == "__main__":
    try:
        main()
    except OSError as err:
        die(str(err), "free some space or fix the permissions of the cache folder, or set REDIS_BIN to a redis-server")
