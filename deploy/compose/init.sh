#!/bin/sh
# Write etc/cluster.toml and etc/cluster.secret for compose.yaml, with one user, and print its token:
# only this once. FIFO: the command line, by default of this machine, or as in
# FIFO="docker run --rm fifo:0.2.0".
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
{
    printf '[cluster]\nname = "compose"\nsecret_file = "cluster.secret"\n'
    for node in n1 n2 n3; do
        printf '\n[[node]]\nname = "%s"\n' "$node"
        printf 'client = "%s:7101"\npeer = "%s:7102"\nhttp = "%s:7103"\n' "$node" "$node" "$node"
        printf 'data_dir = "/var/lib/fifo/data-%s"\n' "$node"
    done
    printf '\n[[user]]\nname = "admin"\n%s\n' "$(printf '%s\n' "$made" | grep '^token_hash')"
    printf 'declare = ["*"]\npublish = ["*"]\nconsume = ["*"]\nmanage = ["*"]\n'
    printf 'monitor = true\noperate = true\n'
} > etc/cluster.toml
chmod 444 etc/cluster.toml etc/cluster.secret
chmod 711 etc
printf '%s\n' "$made" | grep '^token '
