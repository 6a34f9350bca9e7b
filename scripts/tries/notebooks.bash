# Starts JupyterHub in a fresh bookworm as docs/guide/notebooks.md describes, with two users and
# Weir from a build of this tree. Fakes of the driver's libraries (tests/fake_driver) show two GPUs.
# scripts/tries/notebooks_hub.py logs both users in and runs the notebooks of examples/notebooks and
# a kernel of R through the hub. It checks which user holds which GPU, and that a GPU is free after
# its kernel was killed, restarted or culled. All of this runs in network and process namespaces of
# its own, which end with the script.
#   scripts/try notebooks [FOLDER]    5 GB below FOLDER; left out, a temporary one, removed when all
#                                     is well; a second run with the same FOLDER reuses its system
#   BUILD=DIR      a configured build folder of this tree, on Debian 12 (build)
#   PYTORCH=DIR    a venv of Python 3.11 that has PyTorch, mounted there at the same path; left out,
#                  pip fetches PyTorch
# Needs Debian's archive, PyPI, and a quarter of an hour.
# shellcheck shell=bash disable=SC2034,SC2154  # variables of scripts/try
needs unshare util-linux
needs ip iproute2
build=$(realpath "${BUILD:-$source/build}")
[ -e "$build/build.ninja" ] || missing "$build is not configured: cmake --preset dev"
[ -z "${PIP_CERT:-}" ] || PIP_CERT=$(realpath -e "$PIP_CERT") || exit 2
begin "$@"
claim_folder
finish() {
    if [ "$1" = 0 ] && [ -z "$keep" ]; then
        rm -rf "$folder"
    else
        echo "try notebooks: left as it is: $folder" >&2
    fi
}
inner=(DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
    PIP_QUIET=1 ${PIP_CERT:+PIP_CERT=/etc/ca.crt} ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"})
# The commands of a section of the page are its lines that are indented by four spaces.
page=docs/guide/notebooks.md
commands_of() {
    awk -v title="## $1" '/^#/ { on = $0 == title } on && /^    / { print substr($0, 5) }' "$page"
}
# The file that a section of the page shows after the line that names it.
file_of() { # NAME
    awk -v name="$1" '/^```/ { if (on) exit; on = named; next } on { print }
        index($0, name) && /:$/ { named = 1 }' "$page"
}

say "building"
logged log ninja -C "$build" ps worker weirctl weir-task weir libweir_cpu.so pages fake_cuda \
    fake_nvml

if [ ! -e "$folder/made" ]; then
    say "a fresh bookworm"
    rm -rf "$root"
    fresh bookworm "$root"
    echo "127.0.0.1 localhost" >"$root/etc/hosts" # every installed system has this
    touch "$folder/made"
fi
[ -z "${PIP_CERT:-}" ] || cp "$PIP_CERT" "$root/etc/ca.crt"
cp /etc/resolv.conf "$root/etc/resolv.conf"
mount_at "$root/proc" -t proc proc
chmod 1777 "$root/run/lock"

say "packages"
logged log inside apt-get -qq update
# The page installs Weir's package, which apt would install these libraries for.
mapfile -t libraries < <(ldd "$build"/bin/{ps,worker,weirctl} "$build"/lib/libweir{.so.0,_cpu.so} |
    awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u | xargs -n 1 realpath |
    sed 's|.*/|*/|' | xargs -d '\n' dpkg-query -S | sed 's/:.*//' | sort -u)
logged log inside apt-get -qq -y install --no-install-recommends "${libraries[@]}" \
    libmicrohttpd12 dataset-fashion-mnist
mapfile -t packages < <(commands_of "Installing" | grep '^apt-get install jupyterhub')
[ ${#packages[@]} = 1 ] || fail "$page does not install jupyterhub"
logged log inside sh -ec "${packages[0]/install/-qq -y install --no-install-recommends}"

say "Weir"
# Files of an earlier run, which the build may no longer have.
rm -rf "$root"/usr/local/{bin,lib,include,share}/*weir*
logged log env DESTDIR="$root" cmake --install "$build" --component weir
logged log inside ldconfig
mkdir -p "$root/opt/fakes"
cp "$build"/tests/fake_cuda/*.so* "$build"/tests/fake_nvml/*.so* "$root/opt/fakes"

say "the environment of the kernels"
mapfile -t lines < <(commands_of "Installing" | grep '^python3 -m venv\|^/opt/lab/')
if [ -n "${PYTORCH:-}" ]; then
    venv=$(realpath "$PYTORCH")
    mkdir -p "$root$venv"
    mount_at "$root$venv" --bind "$venv"
    mount -o remount,ro,bind "$root$venv"
    lines=("${lines[@]/ torch/}")
    site=lib/python3.11/site-packages
    lines[0]+=" && echo $venv/$site >/opt/lab/$site/pytorch.pth"
fi
prefix=/usr/local
for line in "${lines[@]}"; do
    echo "$line"
    logged log inside sh -ec "${line//PREFIX/$prefix}"
done
commands_of "R" | while read -r line; do
    echo "$line"
    logged log inside sh -ec "cd /tmp; ${line//PREFIX/$prefix}" </dev/null
done

say "users and the hub's files"
for user in anna ben; do
    inside sh -ec "id $user >/dev/null 2>&1 || useradd --create-home --shell /bin/bash $user"
    echo "$user:secret of $user" | inside chpasswd
    cp examples/notebooks/*.ipynb "$root/home/$user"
done
for file in /etc/jupyterhub/jupyterhub_config.py /etc/jupyter/jupyter_notebook_config.py; do
    mkdir -p "$root$(dirname $file)"
    file_of $file >"$root$file"
    [ -s "$root$file" ] || fail "$page does not show $file"
done
# The hub's users have the fakes of the driver; the page's users have a driver.
cat >>"$root/etc/jupyterhub/jupyterhub_config.py" <<'END'
c.Spawner.environment.update(LD_LIBRARY_PATH="/opt/fakes", WEIR_FAKE_GPUS="/opt/fakes/state",
                             WEIR_NOTEBOOK_STEPS="400")
END
cp scripts/tries/notebooks_hub.py "$root/root/"
mount_at "$root/dev/shm" -t tmpfs tmpfs
say "the hub"
unshare --net --pid --mount --fork --kill-child sh -ec "ip link set lo up
mount -t proc proc '$root/proc'
exec chroot '$root' env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    LC_ALL=C.UTF-8 /usr/bin/python3 -u /root/notebooks_hub.py" || fail "the end of the hub's" \
    "log is in the lines above; all of it is in $root/var/log/jupyterhub.log"
