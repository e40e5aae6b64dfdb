#!/bin/bash
# Installs aml-dist on a node of a Slurm cluster, from the packages in files/ that fit the node's Slurm. CycleCloud runs it as root,
# after the project `slurm`, on each node when it starts. Tried again it does nothing.
#
# CycleCloud's plugstack.conf is shared and includes /etc/slurm/plugstack.conf.d/*, a folder of each node, where the package has its
# line. So nodes that start before their scheduler are no worse off than without. aml-dist-doc has the samples that 20-aml-dist-health.sh
# installs.
set -euo pipefail

files=${CYCLECLOUD_SPEC_PATH:-$(cd "$(dirname "$0")/.." && pwd)}/files
[[ ! -d $files ]] && files=${CYCLECLOUD_SPEC_PATH:-.}/cluster-init/files

say() { printf 'aml-dist: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }

# 24.11, of "slurm 24.11.5"
slurm_release() {
    local text
    text=$(srun --version 2>/dev/null) || text=$(slurmd -V 2>/dev/null) || fail 'no Slurm on this node: put the project slurm first'
    [[ $text =~ ([0-9]+\.[0-9]+)\.[0-9]+ ]] || fail "cannot read the release of Slurm in '$text'"
    printf '%s\n' "${BASH_REMATCH[1]}"
}

# one FILE...: the only one that is there
one() {
    [[ $# -eq 1 && -f $1 ]] || fail "$files has no package for Slurm $release, or several: $*"
    printf '%s\n' "$1"
}

release=$(slurm_release)
shopt -s nullglob
if command -v dpkg >/dev/null; then
    package=$(one "$files"/aml-dist-slurm-smd"$release"_*.deb)
    packages=("$package" "$files"/aml-dist_*.deb "$files"/libamldist0_*.deb "$files"/aml-dist-doc_*.deb)
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "${packages[@]}"
else
    package=$(one "$files"/aml-dist-slurm-*.slurm"$release".*rpm)
    packages=("$package" "$files"/aml-dist-[0-9]*.rpm "$files"/aml-dist-libs-*.rpm "$files"/aml-dist-doc-*.rpm)
    dnf install -y "${packages[@]}"
fi
say "installed for Slurm $release"
