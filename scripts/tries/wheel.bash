# Tries the wheel in a fresh bookworm with python3 and python3-venv, without a compiler, headers and
# the libraries that Weir needs. Runs the commands of docs/guide/own-model.md ("From nothing to two
# workers") there literally, with PyTorch from the Python packages' index. Then it runs them again
# with a worker that is killed and started again, which must lead to the same bits. It also runs two
# versions of weir.Cluster at the same time, and pip uninstall, after which no file may be left.
#   scripts/try wheel [--wheel=FILE] [FOLDER]
#       FILE: the wheel; by default scripts/make_wheel makes it
#       FOLDER needs 15 GB; by default a temporary folder, which is removed when all is well
# Needs 3 GB from the packages' index, and a quarter of an hour.
# shellcheck shell=bash disable=SC2034,SC2154  # variables of scripts/try
wheel=
case ${1:-} in --wheel=*) wheel=$(realpath -e "${1#--wheel=}") && shift || exit 2 ;; esac
case ${1:-} in -*) missing "unknown argument '$1'; see the top of scripts/tries/wheel.bash" ;; esac
[ -z "${PIP_CERT:-}" ] || PIP_CERT=$(realpath -e "$PIP_CERT") || exit 2
begin "$@"
claim_folder
finish() {
    if [ "$1" = 0 ] && [ -z "$keep" ]; then
        rm -rf "$folder"
    else
        echo "try wheel: left as it is: $folder" >&2
    fi
}
inner=(PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_QUIET=1
    ${PIP_CERT:+PIP_CERT=/etc/ca.crt} ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"})
# The commands of the page are the lines of the section that are indented by four spaces.
page=$(awk '/^#/ { on = /From nothing to two workers/ } on && /^    / { print substr($0, 5) }' \
    docs/guide/own-model.md)
# The same commands, which also record the ids of background processes: each must exit with 0.
page_run=$(sed 's/ &$/ \& started+=" $!"/' <<<"$page")
# Every shell in the system begins with this line, because background processes outlive their shell.
ends="trap 'kill \$(jobs -p) 2>/dev/null || :' EXIT"
line_with() { grep -- "$1" <<<"$page" | sed 's/ &$//'; }

if [ -z "$wheel" ]; then
    say "scripts/make_wheel"
    logged log scripts/make_wheel --out="$folder/wheel"
    wheel=$(tail -1 "$folder/log")
fi
ls -l "$wheel"

say "a fresh bookworm"
rm -rf "$root"
fresh bookworm "$root" --include=python3,python3-venv
echo "127.0.0.1 localhost" >"$root/etc/hosts" # every installed system has this
[ -z "${PIP_CERT:-}" ] || cp "$PIP_CERT" "$root/etc/ca.crt"
mount_at "$root/proc" -t proc proc
mkdir -p "$root/root/try"
cp "$wheel" "$root/root/try"
! inside sh -c 'for c in cc gcc clang; do command -v $c && exit; done; false' ||
    fail "there is a compiler"
! inside dpkg-query -W -f '${Package}\n' | grep -E -- '-dev$' || fail "there are headers"
! inside ldconfig -p | grep -E "lib(grpc|protobuf-c|dnnl|absl|isal|jansson|microhttpd)" ||
    fail "there are libraries that Weir needs"

say "the page's commands"
echo "$page"
logged run inside bash -ec "cd /root/try
$ends
$page_run
for pid in \$started; do wait \$pid; done"
bits=$(sed -n 's/.*SHA-256 of the weights: //p' "$folder/run" | sort -u)
grep -E "^step (0|199) |SHA-256" "$folder/run"
[ "$(grep -c "SHA-256 of the weights" "$folder/run")" = 2 ] || fail "a worker has not ended"
[ "$(wc -w <<<"$bits")" = 1 ] || fail "the workers have different bits"
inside sh -c 'cd /root/try && . env/bin/activate && python3 -m weir'

say "once more, with kill -9 of a worker, and its line again"
inside bash -euc "cd /root/try && . env/bin/activate && mkdir killed && cd killed
$ends
cp ../char_gpt_weir.py .
$(line_with ^weir-ps) 2>ps.log & ps=\$!
$(line_with task_index=0) >0.log 2>&1 & first=\$!
$(line_with task_index=1) >1.log 2>&1 & second=\$!
for _ in {1..1200}; do ! grep -q '^step 80 ' 1.log || break; sleep 0.1; done
kill -9 \$second
grep -c '^step' 1.log
$(line_with task_index=1) >again.log 2>&1
wait \$first
wait \$ps
grep -m 1 ^step again.log
grep SHA-256 again.log
grep -hq 'weights: $bits' 0.log && grep -hq 'weights: $bits' again.log" ||
    fail "it ends with other bits: $root/root/try/killed"

say "two versions, each in its environment, at the same time"
cat >"$root/root/try/other_version.py" <<'END'
"""The wheel of this folder with another version's number."""
import glob, zipfile
source, = glob.glob("weir-*.whl")
version = source.split("-")[1]
other = version + ".1"
rename = lambda text: text.replace("weir-" + version, "weir-" + other)
with zipfile.ZipFile(source) as old, zipfile.ZipFile("two/" + rename(source), "w") as new:
    for info in old.infolist():
        data = old.read(info)
        info.filename = rename(info.filename)
        if info.filename.endswith(("METADATA", "RECORD", "weir/__init__.py")):
            data = rename(data.decode())
            for before in ("Version: ", '__version__ = "'):
                data = data.replace(before + version, before + other)
            data = data.encode()
        new.writestr(info, data)
END
cat >"$root/root/try/version.py" <<'END'
"""A job that waits for the other environment's job; the environments share no file."""
import array, os, re, sys, time, weir

def mapped(pid):
    with open("/proc/%d/maps" % pid) as f:
        return set(re.findall(r"/\S*\.so\b\S*|/\S*/weir-\w+", f.read()))

with weir.Cluster() as cluster, weir.Member(**cluster.settings(), train_steps=3) as m:
    w = m.param("w", (1000,))
    for step in m:
        m.push(w, array.array("f", [1] * 1000), samples=1)
        open("started-" + weir.__version__, "w").close()
        until = time.monotonic() + 120
        while len([n for n in os.listdir() if n.startswith("started-")]) < 2:
            assert time.monotonic() < until, "the other one has not started"
            time.sleep(0.05)
        found = mapped(os.getpid()) | mapped(cluster.processes["ps:0"].popen.pid)
        foreign = {f for f in found if "weir" in f and not f.startswith(sys.prefix)}
        assert not foreign, foreign
        assert any("libgrpc" in f for f in found)
        system = {os.path.basename(f) for f in found if f.startswith(("/lib", "/usr/lib/x86"))}
print(weir.__version__, m.result, "of the system:", *sorted(system))
END
inside bash -euc "cd /root/try && python3 -m venv two && python3 other_version.py
$ends
two/bin/pip install two/weir-*.whl
env/bin/python version.py & one=\$!
two/bin/python version.py
wait \$one" || fail "the two versions do not work side by side"

say "pip uninstall"
inside bash -euc 'cd /root/try && env/bin/pip uninstall -y weir && find env -iname "*weir*"' \
    >"$folder/left"
[ ! -s "$folder/left" ] || fail "it leaves $(head -3 "$folder/left")"
