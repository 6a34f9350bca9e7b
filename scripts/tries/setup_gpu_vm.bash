# Tries scripts/setup_gpu_vm in fresh systems made by debootstrap. dpkg, apt, awk, sed, the
# archive's packages and the build of Weir are real. Everything that needs a card or NVIDIA's
# repository is imitated: curl fetches a false keyring, wrappers remove NVIDIA's packages from the
# commands of apt and dpkg, and nvidia-smi finds a card. Needs some minutes and 3 GB for each
# system.
#   scripts/try setup_gpu_vm [--build] FOLDER SYSTEM...    SYSTEM: bookworm, jammy, noble
#   --build     also builds and installs Weir there (for the CPU, without CUDA)
#   UBUNTU_KEYRING=FILE   Ubuntu's archive keyring, for jammy and noble (package ubuntu-keyring)
# shellcheck shell=bash disable=SC2034,SC2154  # variables of scripts/try
build=no
if [ "${1:-}" = --build ]; then
    build=yes
    shift
fi
[ $# -ge 2 ] || missing "a folder and systems; see the top of scripts/tries/setup_gpu_vm.bash"
begin "$1"
shift
inner=(PATH=/stubs:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
stub() { # NAME, its text on standard input
    { echo '#!/bin/bash' && cat; } >"$root/stubs/$1"
    chmod +x "$root/stubs/$1"
}
# Imitates the machine: a T4, and a kernel whose headers the archive has.
make_machine() {
    local device=$root/machine/sys/bus/pci/devices/0000:00:04.0 name
    rm -rf "$root/machine" "$root/stubs" "$root/source"
    mkdir -p "$root/stubs" "$device" "$root/source" "$root/machine/etc/systemd/system" \
        "$root/machine/proc"
    cp "$root/etc/os-release" "$root/machine/etc"
    cp /proc/version "$root/machine/proc"
    echo 0x10de >"$device/vendor" && echo 0x030200 >"$device/class" && echo 0x1eb8 >"$device/device"
    copy_source "$root/source"
    inside apt-get -qq update
    kernel=$(inside apt-cache search --names-only '^linux-headers-[0-9].*(cloud-amd64|generic)$' |
        sed 's/^linux-headers-//; s/ .*//' | sort -V | tail -n 1)
    stub uname <<<"[ \"\$1\" = -r ] && echo $kernel || exec /bin/uname \"\$@\""
    stub curl <<'END'
while [ "$1" != -o ]; do shift; done
echo "this is no package" >"$2"
END
    stub sha256sum <<<'cat >/dev/null' # of a file that is not available here
    stub nvidia-smi <<<'echo "GPU 0: Tesla T4 (UUID: GPU-1)"'
    for name in dpkg apt-get apt-mark apt-cache; do
        stub "$name" <"$folder/nvidia_stub"
    done
    for name in modprobe systemctl; do
        stub "$name" </dev/null
    done
    if [ $build = no ]; then
        stub cmake </dev/null
        # shellcheck disable=SC2016
        stub ninja <<<'mkdir -p "$2/lib" && touch "$2/lib/libweir_cuda.so"'
        stub weir-worker <<<'echo "GPU is running!"'
    fi
}
# Wraps the four programs of apt and dpkg. The wrappers record the names of NVIDIA's packages, which
# no archive here has, and remove them from the arguments.
cat >"$folder/nvidia_stub" <<'END'
name=${0##*/} left=() taken=no
case "$name $1" in
"apt-cache policy" | "apt-cache madison")
    case $2 in
    libnccl2) echo " libnccl2 | 2.30.1-1+cuda13.2 | x"; exit ;;
    nvidia-* | cuda-* | libcu*) echo "  Candidate: 1"; exit ;;
    esac ;;
esac
for word in "$@"; do
    case $word in
    nvidia-* | cuda-* | libcu* | libnccl* | */cuda-keyring*)
        echo "$name $word" >>/nvidia
        taken=yes
        ;;
    *) left+=("$word") ;;
    esac
done
case "$name $taken" in
"dpkg yes" | "apt-mark yes") exit ;;
esac
exec "/usr/bin/$name" "${left[@]}"
END

for system in "$@"; do
    root=$folder/$system
    say "$system: a fresh system"
    [ -e "$root/etc/os-release" ] || fresh "$system" "$root"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    mount_at "$root/proc" -t proc proc
    make_machine
    rm -f "$root/nvidia"
    flags=--root=/machine steps=7
    [ $build = no ] || steps=5
    if [ "$system" = jammy ]; then # lacks all dependencies of Weir
        flags+=' --no_weir' steps=5
    fi
    say "$system: kernel $kernel; a dry run"
    # shellcheck disable=SC2086  # several words
    inside /source/scripts/setup_gpu_vm $flags --dry_run
    [ ! -e "$root/machine/var" ] || exit 1
    say "$system: setup_gpu_vm"
    status=0
    # shellcheck disable=SC2086
    inside /source/scripts/setup_gpu_vm $flags || status=$?
    say "$system: it ended with $status; it requested these packages of NVIDIA:"
    cat "$root/nvidia"
    # Weir is built, and the script detects that it has no CUDA, which is not available here.
    if [ $build = yes ] && [ "$system" != jammy ]; then
        [ $status = 1 ]
        inside /source/build-vm/bin/worker --self_test 2>&1 | tail -n 2
    else
        [ $status = 0 ]
    fi
    # shellcheck disable=SC2016  # dpkg expands it
    inside dpkg-query -W -f '${Package} ${Version}\n' dkms "linux-headers-$kernel"
    say "$system: once more"
    # shellcheck disable=SC2086
    inside /source/scripts/setup_gpu_vm $flags 2>&1 | grep -c 'done before' | grep -qx $steps
    unmount_all
done
