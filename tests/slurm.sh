#!/usr/bin/env bash
# Node states beside a real Slurm, on free ports of this machine: slurm.sh [FOLDER [--ignored]]
# FOLDER, outside the checkout, takes Debian's packages, unpacked, once: some 20 MB. Nothing is installed. --ignored measures delays.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/rankguard-slurm}
case "$folder" in "$(cd "$here/.." && pwd)"/*) echo "$folder lies in the checkout; choose another place" >&2; exit 2;; esac
. "$here/../.ci/skip.sh"
# Debian 12. A security update changes the last part of the version.
version=22.05.8-4+deb12u*
root=$folder/22.05.8
unpack() {
    local place
    place=$(mktemp -d "$folder/get.XXXXXX")
    cd "$place"
    # An empty list of packages is that of a new container.
    [ -n "$(apt-cache madison slurmctld)" ] || apt-get update -qq
    apt-get download -qq "slurmctld=$version" "slurmd=$version" "slurm-client=$version" \
        "slurm-wlm-basic-plugins=$version" munge libmunge2 libhwloc15 libnuma1
    for package in *.deb; do dpkg -x "$package" root; done
    mv root "$root"
    cd "$here"
    rm -rf "$place"
}
mkdir -p "$folder"
if ! [ -e "$root/usr/sbin/slurmctld-wlm" ]; then
    command -v apt-get dpkg >/dev/null && (unpack) >"$folder/packages.log" 2>&1 ||
        { tail -n 5 "$folder/packages.log" >&2; skip "Slurm 22.05 of Debian 12 cannot be had, so nothing is tested beside a real Slurm"; }
fi
libraries=$root/usr/lib/$(uname -m)-linux-gnu
LD_LIBRARY_PATH=$libraries:$libraries/slurm-wlm "$root/usr/sbin/slurmctld-wlm" -V >/dev/null 2>&1 ||
    skip "slurmctld of Debian 12 does not run here, so nothing is tested beside a real Slurm"
cd "$here/.."
# With the whole workspace, so that Cargo reuses what `cargo test --workspace` has built.
RANKGUARD_TEST_SLURM=$root exec cargo test --workspace --locked --test processes slurm:: -- --nocapture "${@:2}"
