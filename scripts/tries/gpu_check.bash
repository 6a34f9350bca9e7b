# Runs scripts/gpu_check from start to end without a card, in a fresh bookworm made by debootstrap,
# with only the packages of scripts/setup. It runs over the emulation, with stand-ins for nvidia-smi
# and compute-sanitizer: first without PyTorch, then with PyTorch in a venv, which computes on the
# CPU. The CUDA toolkit of this machine is mounted there. Needs PyPI, an hour on two cores and 12
# GB.
#   scripts/try gpu_check FOLDER     uses the files of an earlier run in FOLDER
#   PYTORCH=DIR          a venv of this machine's /usr/bin/python3 that has PyTorch, mounted there
#                        at the same path; by default bench/train --setup2 makes build/venv-torch2
#   CUDA=DIR             the toolkit, with cuDNN's headers in its include (/usr/local/cuda)
#   CMAKE_FLAGS="..."    for the build, such as -DWEIR_CUDA_ARCHITECTURES=90
#   CCACHE=DIR           folder of a ccache, with which the build needs much less time
# Exit 0: both runs passed every stage. The output of the runs stays in FOLDER/without.log and
# FOLDER/with.log, the reports in FOLDER/without and FOLDER/with.
# shellcheck shell=bash disable=SC2034,SC2154  # variables of scripts/try
[ $# = 1 ] || missing "a folder; see the top of scripts/tries/gpu_check.bash"
cuda=$(realpath "${CUDA:-/usr/local/cuda}")
[ -x "$cuda/bin/nvcc" ] && [ -e "$cuda/include/cudnn.h" ] ||
    missing "$cuda has no bin/nvcc, or no include/cudnn.h: name a toolkit that has both by CUDA=DIR"
begin "$1"
there=/tmp/weir/source
inner=(${CCACHE:+CCACHE_DIR=/ccache CCACHE_BASEDIR=/tmp CCACHE_NOHASHDIR=1})
lend() { # DIR PLACE: read-only, except a ccache
    mkdir -p "$root$2"
    mount_at "$root$2" --bind "$1"
    [ "$1" = "${CCACHE:-}" ] || mount -o remount,ro,bind "$root$2"
}
in_source() { inside sh -c "cd $there && $1"; }

if [ ! -e "$folder/made" ]; then
    say "a fresh bookworm"
    fresh bookworm "$root"
    touch "$folder/made"
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
mount_at "$root/proc" -t proc proc
mount_at "$root/dev/shm" -t tmpfs tmpfs
lend "$cuda" /usr/local/cuda
[ -z "${CCACHE:-}" ] || lend "$CCACHE" /ccache
mkdir -p "$root$there"
# Removes all files of an earlier run except the build.
find "$root$there" -xdev -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
copy_source "$root$there"

say "scripts/setup"
logged setup.log in_source scripts/setup
[ -z "${CCACHE:-}" ] || logged log in_source "apt-get -qq -y install ccache"
flags="${CMAKE_FLAGS:-} ${CCACHE:+-DCMAKE_C_COMPILER_LAUNCHER=ccache}"
flags+=" ${CCACHE:+-DCMAKE_CXX_COMPILER_LAUNCHER=ccache}"
[ -z "${flags// /}" ] || logged log in_source "cmake -S . -B build -G Ninja $flags"

failed=0
# course NAME TEXT [FLAG]: runs gpu_check, whose output must contain TEXT
course() {
    say "scripts/gpu_check --emulated, $1 PyTorch"
    local status=0
    in_source "scripts/gpu_check --emulated --out=/tmp/weir/$1 ${3:-}" >"$folder/$1.log" 2>&1 ||
        status=$?
    tail -n 3 "$folder/$1.log"
    rm -rf "${folder:?}/$1"
    cp -r "$root/tmp/weir/$1" "$folder/$1" || status=1
    if [ $status != 0 ] || ! grep -q "^gpu_check: all [0-9]* stages passed" "$folder/$1.log" ||
        ! grep -q -e "$2" "$folder/$1.log"; then
        echo "try gpu_check: $1 PyTorch: not every stage passed, see $folder/$1.log" >&2
        failed=1
    fi
}
# The flag hides the venv of an earlier run, which is in the build folder.
course without '^=== PyTorch: skipped, no PyTorch that sees a card' --python=/usr/bin/python3
if [ -n "${PYTORCH:-}" ]; then
    venv=$(realpath "$PYTORCH")
    lend "$venv" "$venv"
    logged log in_source "apt-get -qq -y install --no-install-recommends python3-dev"
    inner+=(VIRTUAL_ENV="$venv")
elif ! in_source "build/venv-torch2/bin/python -c 'import torch'" 2>/dev/null; then
    say "bench/train --setup2"
    logged setup2.log in_source "bench/train --setup2"
fi
course with '^=== short training, beside PyTorch'
[ $failed = 0 ] || exit 1
