#!/bin/sh
# Build a Debian package of fifo: nodes, command line, units. Two builds give the same bytes.
#
#     deploy/debian/build.sh [FOLDER]    fifo-quorum_VERSION_ARCH.deb, by default in build/
#
# Needs dpkg-deb, and a Python of the Debian release with pip (PYTHON=python3.11): some of the wheels
# in it are for that Python alone, which the package depends on.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-$here/build}
: "${PYTHON:=python3.11}"
: "${SOURCE_DATE_EPOCH:=$(git -C "$here" log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH PYTHON
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

"$here/deploy/app.sh" "$root"
version=$("$PYTHON" -c 'import sys, tomllib; print(tomllib.load(open(sys.argv[1], "rb"))["project"]["version"])' "$here/pyproject.toml")
minor=$("$PYTHON" -c 'import sys; print(sys.version_info[1])')
doc=$root/usr/share/doc/fifo-quorum
install -D -m 644 "$here/deploy/systemd/fifo@.service" "$root/lib/systemd/system/fifo@.service"
install -D -m 644 "$here/deploy/systemd/fifo.sysusers" "$root/usr/lib/sysusers.d/fifo.conf"
install -D -m 644 "$here/cluster.example.toml" "$doc/examples/cluster.toml"
install -m 644 "$here/deploy/debian/copyright" "$doc/copyright"
maintainer="the fifo maintainers <maintainers@fifo.example>"
{
    printf 'fifo-quorum (%s) unstable; urgency=medium\n\n' "$version"
    printf '  * CHANGELOG.md.gz, beside this file, says what changed.\n\n'
    printf ' -- %s  %s\n' "$maintainer" "$(LC_ALL=C date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")"
} | gzip -9 --no-name > "$doc/changelog.gz"
gzip -9 --no-name < "$here/CHANGELOG.md" > "$doc/CHANGELOG.md.gz"
chmod 644 "$doc"/*.gz
# Its folder is there for the file with users, whose hashes are for the nodes alone.
install -d -m 755 "$root/etc/fifo"
find "$root" -type d -exec chmod 755 {} +
find "$root/usr/lib/fifo" -type f -exec chmod 644 {} +

install -d -m 755 "$root/DEBIAN"
for script in postinst prerm postrm; do
    install -m 755 "$here/deploy/debian/$script" "$root/DEBIAN/$script"
done
cat > "$root/DEBIAN/control" <<CONTROL
Package: fifo-quorum
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)
Depends: python3 (>= 3.$minor), python3 (<< 3.$((minor + 1))), libc6 (>= 2.28), adduser, ca-certificates
Recommends: systemd, openssl
Section: net
Priority: optional
Description: replicated work queue with replicated message locks
 Three nodes agree by Raft on every message and its holder: when one of them
 dies, no message is lost, and none goes to a second worker while the first
 still holds it. This package has the nodes, the command line and units for
 systemd; enable fifo@NAME on the machine of each node.
CONTROL
find "$root" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$out"
dpkg-deb --root-owner-group --uniform-compression -Zxz --build "$root" "$out" > /dev/null
echo "$out/fifo-quorum_${version}_$(dpkg --print-architecture).deb"
