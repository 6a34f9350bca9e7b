# Tries the Debian packages: builds weir (and weir-cuda if the CUDA backend can be built), checks
# them with lintian, installs weir with apt in a fresh bookworm, reads its manual page, trains there
# on Debian's Fashion-MNIST, removes it, and prints the files that are left.
#   scripts/try packages [FOLDER]    needs 1 GB in FOLDER; default: a temporary folder
#   CMAKE_FLAGS="..."                more flags for cmake, such as -DWEIR_CUDA_OBJECTS=DIR
# Needs lintian, and some minutes. The packages stay in FOLDER/packages.
# shellcheck shell=bash disable=SC2034,SC2154  # variables of scripts/try
needs lintian lintian
needs dpkg-shlibdeps dpkg-dev
needs file file
begin "$@"
claim_folder
finish() { if [ -n "$keep" ]; then rm -rf "$root"; else rm -rf "$folder"; fi; }
inner=(DEBIAN_FRONTEND=noninteractive)
apt_install() { logged log inside sh -c "apt-get -qq -y install --no-install-recommends $*"; }
# Lists every file and folder except those of the system's own records.
list() {
    find "$root" -xdev \( -path "$root/proc" -o -path "$root/tmp" -o -path "$root/var/cache" -o \
        -path "$root/var/log" -o -path "$root/var/lib/apt" -o -path "$root/var/lib/dpkg" \) \
        -prune -o -printf '%P\n' | LC_ALL=C sort
}

say "building"
# shellcheck disable=SC2086  # several words
logged log cmake -S . -B "$folder/build" -G Ninja -DCMAKE_INSTALL_PREFIX=/usr -DBUILD_TESTING=OFF \
    ${CMAKE_FLAGS:-}
logged log ninja -C "$folder/build"
rm -rf "$folder/packages"
logged log env -C "$folder/build" cpack -B ../packages
rm -rf "$folder/packages/_CPack_Packages"
ls -l "$folder/packages"

say "lintian"
lintian --allow-root "$folder"/packages/*.deb || true # read its findings

say "a fresh bookworm"
rm -rf "$root"
fresh bookworm "$root"
mount_at "$root/proc" -t proc proc
cp "$folder"/packages/*.deb "$root/tmp"
# Weir's dependencies are installed before the list of files, so that all files that are left are
# Weir's.
depends=$(dpkg-deb -f "$folder"/packages/weir_*.deb Depends |
    sed 's/([^)]*)//g; s/|[^,]*//g; s/,/ /g')
inside apt-get -qq update
apt_install "$depends" dataset-fashion-mnist man-db
list >"$folder/before"

say "apt-get install ./weir"
apt_install '/tmp/weir_*.deb'
inside weir-worker --help | sed -n 1,3p # not head: the program continues to write
inside weir-ps --version
inside weirctl --version
inside man weir-worker | sed -n 1,4p
inside sh -c 'cd /tmp && weir-worker --model=deep_mnist --train_steps=60 2>&1 | tail -2'

say "a job of one server and two workers"
inside sh -euc 'cd /tmp
hosts="--ps_hosts=127.0.0.1:2221 --worker_hosts=127.0.0.1:2223,127.0.0.1:2224"
weir-ps $hosts >ps.log 2>&1 & ps=$!
weir-worker $hosts --task_index=0 --model=lenet5 --train_steps=30 >0.log 2>&1 & first=$!
weir-worker $hosts --task_index=1 --model=lenet5 --train_steps=30 >1.log 2>&1
wait $first && wait $ps && tail -n 1 0.log'
if ls "$folder"/packages/weir-cuda_*.deb >/dev/null 2>&1; then
    say "weir-cuda beside it, where there is no GPU"
    apt_install '/tmp/weir-cuda_*.deb'
    inside sh -c 'weir-worker --self_test 2>&1 | tail -3'
fi

say "apt-get purge"
inside sh -c 'apt-get -qq -y purge "weir*"' >"$folder/log" 2>&1
list >"$folder/after"
diff "$folder/before" "$folder/after" || fail "the files in the lines above are new or missing"
say "nothing is left of $(wc -l <"$folder/before") files and folders before and after"
