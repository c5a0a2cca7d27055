#!/bin/sh
# Build an OCI image of fifo from Debian packages and locked wheels, without pulling a base image.
# Two builds of one checkout from the same Debian packages give equal digests.
#
#     deploy/image/build.sh [FOLDER]     an OCI layout, by default build/image; prints its digest
#
# Needs mmdebstrap, and a Python of the Debian release with pip (PYTHON=python3.11). Then, for
# example: skopeo copy oci:build/image:fifo docker://registry.example/fifo:0.2.0
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-$here/build/image}
: "${SUITE:=bookworm}"
: "${PYTHON:=python3.11}"
: "${SOURCE_DATE_EPOCH:=$(git -C "$here" log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH PYTHON
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Python, certificates, and nothing to install more with: no apt, no package lists, no docs.
mmdebstrap --quiet --variant=custom \
    --include=base-files,base-passwd,libc-bin,dash,bash,coreutils,sed,grep,perl-base,findutils,diffutils,python3-minimal,libpython3-stdlib,ca-certificates,tzdata,netbase \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/lintian/*' \
    --customize-hook='echo "fifo:x:10001:10001:fifo:/var/lib/fifo:/usr/sbin/nologin" >> "$1/etc/passwd"' \
    --customize-hook='echo "fifo:x:10001:" >> "$1/etc/group"' \
    --customize-hook='install -d -m 700 -o 10001 -g 10001 "$1/var/lib/fifo" && install -d -m 755 "$1/etc/fifo"' \
    --customize-hook='rm -rf "$1"/var/cache/* "$1"/var/lib/apt "$1"/var/log/* "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/etc/machine-id "$1"/tmp/* "$1"/run/*' \
    --customize-hook='find "$1/usr" -name "*.pyc" -delete' \
    "$SUITE" "$work/base.tar"

mkdir "$work/app"
"$here/deploy/app.sh" "$work/app"
tar --create --file "$work/app.tar" --directory "$work/app" --sort=name --numeric-owner \
    --owner=0 --group=0 --mtime="@$SOURCE_DATE_EPOCH" --mode=go-w --format=pax \
    --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime .

rm -rf "$out"
"$PYTHON" "$here/deploy/image/oci.py" "$out" "$work/base.tar" "$work/app.tar"
