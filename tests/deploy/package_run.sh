#!/bin/sh
# Install a package of fifo in a Debian, use it as its user, and purge it: an error ends it.
#
#     package_run.sh ROOT PACKAGE      the root of the Debian, as a hook of mmdebstrap gets it
set -eu
root=$1 package=$2
cp "$package" "$root/tmp/fifo.deb"
inside() { chroot "$root" "$@"; }
as_fifo() { inside setpriv --reuid fifo --regid fifo --clear-groups env HOME=/tmp "$@"; }

inside dpkg --install /tmp/fifo.deb
[ "$(inside stat -c '%U %a' /var/lib/fifo)" = "fifo 700" ]
inside fifo --version | grep -q "$(inside dpkg-query --show --showformat '${Version}' fifo-quorum)"

# A cluster as the user of the unit, on ports of its own: nothing of it is in the package's folder.
where=/var/lib/fifo/check
as_fifo fifo cluster start --nodes 1 --detach --base-port 27200 --dir "$where" < /dev/null
end() { as_fifo fifo cluster stop --dir "$where" || true; }
trap end EXIT
as_fifo fifo queue declare orders --url fifo://127.0.0.1:27201
as_fifo fifo publish orders --body one --url fifo://127.0.0.1:27201
as_fifo fifo consume orders --count 1 --ack --url fifo://127.0.0.1:27201 | grep -q one
end
trap - EXIT

# What the unit does before each start, for a file that is not there.
if as_fifo fifo config check /etc/fifo/cluster.toml --node n1; then exit 1; fi
[ -z "$(inside find /usr/lib/fifo -name __pycache__)" ]
inside dpkg --purge fifo-quorum
[ ! -e "$root/usr/bin/fifo" ]
[ -d "$root/var/lib/fifo/check" ]
