#!/bin/sh
# Prints the path of a redis-server on stdout. Tests of the Redis store ask here.
#
# In this order:
#   1. $REDIS_BIN, which must be executable;
#   2. a `redis-server` on PATH, version 6 or newer;
#   3. the Debian or Ubuntu packages of redis-server and the libraries it needs, fetched once with apt-get into
#      .cache/redis of this repository, without root and without installing anything.
#
# apt-get checks every package against the index that the distribution has signed; scripts/fetch_redis.py checks the
# SHA-256 once more. Messages go to stderr; on failure the last one names a remedy and nothing is printed on stdout.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname -- "$here")
oldest=6

die() {
	echo "get-redis: $1" >&2
	echo "get-redis: remedy: $2" >&2
	exit 1
}

# major_of BINARY prints the major version, or nothing if the binary does not run or does not say.
major_of() { "$1" --version 2>/dev/null | sed -n 's|.* v=\([0-9][0-9]*\)\..*|\1|p' | head -n 1; }

if [ -n "${REDIS_BIN:-}" ]; then
	[ -f "$REDIS_BIN" ] && [ -x "$REDIS_BIN" ] ||
		die "REDIS_BIN=$REDIS_BIN is not an executable file" "point REDIS_BIN at a redis-server, or unset it to have one fetched"
	echo "$REDIS_BIN"
	exit 0
fi

if found=$(command -v redis-server 2>/dev/null); then
	have=$(major_of "$found")
	if [ "${have:-0}" -ge "$oldest" ]; then
		echo "$found"
		exit 0
	fi
	echo "get-redis: $found is version ${have:-unknown}, older than $oldest: not used" >&2
fi

binary=$root/.cache/redis/redis-server
if [ ! -x "$binary" ]; then
	for tool in apt-get apt-cache dpkg-deb ldd python3; do
		command -v "$tool" >/dev/null 2>&1 ||
			die "$tool is needed to fetch Redis and is not on PATH" "install redis-server $oldest or newer, or set REDIS_BIN to one"
	done
	python3 "$here/fetch_redis.py" "$root/.cache/redis" >&2
fi
echo "$binary"
