#!/bin/sh
# Start deploy/compose with podman, use it, lose its leader, let n4 join, and end it. Prints a line for
# each step.
#
#     unshare --mount compose_run.sh ARCHIVE COMPOSE FOLDER     an image, compose.yaml, where it works
#
# Its mounts, its images and its networks are its own: FOLDER can be deleted afterwards.
set -eu
archive=$1 compose=$2 work=$3
# crun wants no controllers in cgroup v2 beside v1: a machine may have both.
umount /sys/fs/cgroup/unified 2>/dev/null || true
mkdir -p "$work/bin" "$work/compose"
cat > "$work/bin/podman" <<PODMAN
#!/bin/sh
exec $(command -v podman) --root "$work/storage" --runroot "$work/run" "\$@"
PODMAN
chmod +x "$work/bin/podman"
printf '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n' > "$work/containers.conf"
export PATH="$work/bin:$PATH" CONTAINERS_CONF="$work/containers.conf"
project=$(basename "$work")
export COMPOSE_PROJECT_NAME="$project"
end() {
    podman rm --force --all > /dev/null 2>&1 || true
    podman volume rm --all --force > /dev/null 2>&1 || true
    podman network rm "${project}_default" > /dev/null 2>&1 || true
}
trap end EXIT

podman load --quiet --input "$archive" > /dev/null
image=$(podman images --format '{{.Repository}}:{{.Tag}}' | head -1)
export FIFO_IMAGE="$image"
cp -R "$compose/." "$work/compose"
cd "$work/compose"
token=$(FIFO="podman run --rm --network=none $image" ./init.sh 2> /dev/null | cut -d' ' -f2)
# No port of this machine, and no more descriptors than it may give: nothing else differs.
python3 - <<'CHANGE'
import json, re, pathlib
path = pathlib.Path("compose.yaml")
text = re.sub(r"(?m)^    ports: .*\n", "", path.read_text())
path.write_text(text.replace("    nofile: 65536", "    nofile: 4096\n    nproc: 4096"))
CHANGE
podman-compose -p "$project" -f compose.yaml up -d > "$work/up.log" 2>&1
hosts=n1:7101,n2:7101,n3:7101
cli() {
    podman run --rm --network "${project}_default" -e "FIFO_URL=fifo://$hosts?token=$token" "$image" "$@"
}
leader() {
    cli status --json 2> /dev/null | python3 -c 'import json, sys
found = json.load(sys.stdin)
print(next((one["node"] for one in found["nodes"] if one.get("role") == "leader"), ""))' 2> /dev/null
}
wait_for_leader() {
    tries=0
    until led=$(leader) && [ -n "$led" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 30 ] || { cat "$work/up.log" >&2; podman ps -a >&2; podman logs "${project}_n1_1" >&2; exit 1; }
    done
}
wait_for_leader
echo "leads: $led"
cli queue declare orders > /dev/null
cli publish orders --body one > /dev/null
echo "published"
podman kill "${project}_${led}_1" > /dev/null
before=$led
tries=0
while wait_for_leader && [ "$led" = "$before" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 30 ] || exit 1
done
echo "killed: $before"
cli consume orders --count 1 --ack | grep -q one
echo "consumed under: $led"
podman start "${project}_${before}_1" > /dev/null
# An older podman-compose knows no profiles, and has started n4 before.
if podman-compose --help | grep -q -e --profile; then
    podman-compose -p "$project" --profile grow -f compose.yaml up -d n4 > "$work/grow.log" 2>&1
fi
joined=$(cli member add n4 2>> "$work/grow.log") || { cat "$work/grow.log" >&2; podman logs "${project}_n4_1" >&2; exit 1; }
echo "joined: $joined"
