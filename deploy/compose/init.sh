#!/bin/sh
# Write the files of the nodes for compose.yaml in etc, with one user, and print its token: only this
# once. n1 to n3 begin the cluster by cluster.toml; n4 and n5 join it by files about themselves alone.
# FIFO: the command line, by default of this machine, or as in FIFO="docker run --rm fifo:0.2.0".
set -eu
cd "$(dirname "$0")"
: "${FIFO:=fifo}"
if [ -e etc ]; then
    echo "init.sh: etc is there already: remove it to begin anew" >&2
    exit 1
fi
# Others on this machine stop at the folder; the user of the containers reads the files in it.
made=$($FIFO user token)
umask 077
mkdir etc
secret=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
printf '%s\n' "$secret" > etc/cluster.secret
cluster() {
    printf '[cluster]\nname = "compose"\nsecret_file = "cluster.secret"\n'
}
nodes() {
    for node in "$@"; do
        printf '\n[[node]]\nname = "%s"\n' "$node"
        printf 'client = "%s:7101"\npeer = "%s:7102"\nhttp = "%s:7103"\n' "$node" "$node" "$node"
        printf 'data_dir = "/var/lib/fifo/data-%s"\n' "$node"
    done
}
user() {
    printf '\n[[user]]\nname = "admin"\n%s\n' "$(printf '%s\n' "$made" | grep '^token_hash')"
    printf 'declare = ["*"]\npublish = ["*"]\nconsume = ["*"]\nmanage = ["*"]\n'
    printf 'monitor = true\noperate = true\n'
}
{ cluster; nodes n1 n2 n3; user; } > etc/cluster.toml
for node in n4 n5; do
    { cluster; printf 'join = ["n1:7102", "n2:7102", "n3:7102"]\n'; nodes "$node"; user; } > "etc/$node.toml"
done
chmod 444 etc/*
chmod 711 etc
printf '%s\n' "$made" | grep '^token '
