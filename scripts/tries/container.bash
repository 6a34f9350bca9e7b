# Tries the image of packaging/docker/Dockerfile, by podman and without a registry: a bookworm of
# debootstrap replaces debian:bookworm-slim. Builds the image, and runs programs in it as a user
# that is not root, with a read-only root, no capabilities and a /dev/shm of 64 MB. These are a
# worker alone that is stopped and resumes; a server and a worker that share 150 MB of parameters;
# and the commands of examples/kubernetes/job.yaml, each in its own network namespace, with
# Kubernetes' requests for the servers' health. One pod of each kind is killed.
#   scripts/try container [FOLDER]    needs 5 GB in FOLDER; default: a temporary folder
# Needs podman, runc, iproute2, python3-yaml and python3-grpcio, and ten minutes.
# shellcheck shell=bash disable=SC2034,SC2154  # variables of scripts/try
needs podman podman
needs runc runc
needs ip iproute2
/usr/bin/python3 -c 'import grpc, yaml' || missing "apt-get install python3-grpcio python3-yaml"
begin "$@"
id=weir$$
pods=(weir-ps-0 weir-ps-1 weir-worker-0 weir-worker-1 weir-worker-2)

run_podman() {
    podman --root "$folder/store" --runroot "$folder/run" --storage-driver vfs \
        --cgroup-manager cgroupfs --runtime runc "$@"
}
finish() {
    run_podman rm --all --force --time 0 >/dev/null 2>&1 || true
    run_podman volume rm --all --force >/dev/null 2>&1 || true
    for name in "${pods[@]}"; do ip netns delete "$id-$name" 2>/dev/null || true; done
    ip link delete "$id" 2>/dev/null || true
    [ -n "$keep" ] || rm -rf "$folder"
}
wait_for() { # SECONDS COMMAND...
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $until ] || fail "not in time: $*"
        sleep 0.2
    done
}
# podman's own limits may be above those that this process may set.
as_users() { # PODMAN'S FLAGS... IMAGE COMMAND...
    run_podman run --ulimit nofile=1024:1024 --ulimit nproc=2000:2000 --read-only --tmpfs /tmp \
        --cap-drop all --security-opt no-new-privileges --shm-size 64m "$@"
}
says() { run_podman logs "$1" 2>&1 | grep -Eq "$2"; }
has_ended() { [ "$(run_podman inspect --format '{{.State.Status}}' "$1")" = exited ]; }
ends_with() { # STATUS NAME
    local status
    wait_for 150 has_ended "$2"
    status=$(run_podman inspect --format '{{.State.ExitCode}}' "$2")
    [ "$status" = "$1" ] || {
        run_podman logs "$2" 2>&1 | tail -5
        fail "$2 has ended with $status, not $1"
    }
}

if ! run_podman image exists localhost/bookworm:slim; then
    say "a bookworm"
    rm -rf "$folder/base"
    fresh bookworm "$folder/base" --include=ca-certificates
    tar -C "$folder/base" -c . | run_podman import - localhost/bookworm:slim >/dev/null 2>&1
fi
say "the image"
logged log run_podman build --isolation chroot --network host \
    --build-arg BASE=localhost/bookworm:slim -f packaging/docker/Dockerfile -t localhost/weir .
run_podman images --format '{{.Repository}}:{{.Tag}} {{.Size}}'
as_users --rm --network none --entrypoint sh localhost/weir -c \
    'id && df -h /dev/shm | tail -1 && ! touch /x 2>&1 && weir-worker --version'

say "a worker alone, stopped by SIGTERM, resumes"
run_podman volume create alone >/dev/null
alone() {
    as_users --network none -v alone:/var/lib/weir "$@" localhost/weir --job_name=worker \
        --model=lenet5 --train_steps=$steps --checkpoint_dir=/var/lib/weir/job --log_every=1
}
steps=100000 && alone -d --name alone >/dev/null
wait_for 60 says alone "global step: 5\)"
run_podman kill --signal TERM alone >/dev/null
ends_with 143 alone
at=$(run_podman logs alone 2>&1 | sed -n 's/.*checkpoint at step \([0-9]*\):.*/\1/p' | tail -1)
steps=$((at + 3)) && alone --rm 2>&1 | grep -E "found a checkpoint at step $at:|test accuracy"

say "a server and a worker in one container: 150 MB of parameters, of 64 MB in /dev/shm"
cat >"$folder/wide.json" <<'END'
{"name": "wide", "input": "auto", "classes": "auto", "layers": [
 {"type": "flatten"}, {"type": "dense", "units": 48000},
 {"type": "dense", "units": "classes"}, {"type": "softmax_cross_entropy"}]}
END
logged log as_users --rm --network none -v "$folder/wide.json:/wide.json:ro" --entrypoint sh \
    localhost/weir -c '
    hosts="--ps_hosts=127.0.0.1:2222 --worker_hosts=127.0.0.1:2223 --model=/wide.json"
    weir-ps $hosts --optimizer=sgd 2>/tmp/ps & weir-worker $hosts --optimizer=sgd --batch_size=8 \
        --train_steps=3 && wait'
grep -E "parameters in|shared memory|test accuracy" "$folder/log" | cut -c1-120
grep -q "payloads are sent through shared memory" "$folder/log" || fail "no memory is shared"

say "examples/kubernetes/job.yaml"
ip link add name "$id" type bridge && ip link set "$id" up
hosts=()
i=1
for name in "${pods[@]}"; do
    ip netns add "$id-$name"
    ip link add "$id-$i" type veth peer name eth0 netns "$id-$name"
    ip link set "$id-$i" master "$id" up
    ip -n "$id-$name" address add "10.84.0.$i/24" dev eth0
    ip -n "$id-$name" link set eth0 up
    ip -n "$id-$name" link set lo up
    case $name in weir-ps-*) hosts+=(--add-host "$name.weir-ps:10.84.0.$i") ;; esac
    i=$((i + 1))
done
command_of() { # KIND: the shell's words
    /usr/bin/python3 - "$1" <<'END'
import sys, yaml
for d in yaml.safe_load_all(open("examples/kubernetes/job.yaml")):
    if d["kind"] == sys.argv[1]:
        print(d["spec"]["template"]["spec"]["containers"][0]["command"][2])
END
}
ps_line=$(command_of StatefulSet) worker_line=$(command_of Job)
start() { # NAME: as its pod
    local name=$1 line
    local flags="--worker_timeout=20 --train_steps=400 --log_every=1 --model=lenet5 --save_steps=50"
    line=${worker_line/ &/" $flags &"} # the worker's command is not the last one of the line
    case $name in weir-ps-*) line="$ps_line $flags" ;; esac
    run_podman rm --force --time 0 "$name" >/dev/null 2>&1 || true
    as_users -d --name "$name" --hostname "$name" "${hosts[@]}" -v "$name:/var/lib/weir" \
        --network "ns:/run/netns/$id-$name" -e JOB_COMPLETION_INDEX="${name##*-}" \
        --entrypoint sh localhost/weir -c "$line" >/dev/null
}
for name in "${pods[@]}"; do start "$name"; done
wait_for 120 says weir-worker-0 "global step: 60\)"
for name in weir-ps-0 weir-ps-1; do # an empty request; SERVING is 1 in field 1
    ip netns exec "$id-$name" /usr/bin/python3 -c 'import grpc
ask = grpc.insecure_channel("127.0.0.1:2222").unary_unary("/grpc.health.v1.Health/Check")
answer = ask(b"", timeout=10)
assert answer == b"\x08\x01", answer
print("health: SERVING")'
done
for name in weir-worker-1 weir-ps-1; do # another pod replaces a killed one
    run_podman kill --signal KILL "$name" >/dev/null
    ends_with 137 "$name"
    start "$name"
    wait_for 60 says "$name" "joined|global step|generation"
done
for name in "${pods[@]}"; do ends_with 0 "$name"; done
run_podman logs weir-worker-0 2>&1 | grep "test accuracy"

say "after the end: servers restart, and the last worker, which ends with 0"
for name in weir-ps-0 weir-ps-1 weir-worker-2; do start "$name"; done
for name in weir-worker-2 weir-ps-0 weir-ps-1; do ends_with 0 "$name"; done
run_podman logs weir-worker-2 2>&1 | grep "nothing is left to train"
