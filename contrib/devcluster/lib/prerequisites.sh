# shellcheck shell=bash
# What must be installed, and which Debian package has it.

readonly HOST_TOOLS='flock:util-linux setpriv:util-linux setsid:util-linux mount:mount umount:mount
    ip:iproute2 unshare:util-linux nsenter:util-linux'
readonly PREREQUISITES="slurmctld:slurmctld slurmd:slurmd srun:slurm-client scontrol:slurm-client
    sinfo:slurm-client munged:munge $HOST_TOOLS"

# check_prerequisites ROOT: in another release's root everything is installed, when it is made
check_prerequisites() {
    local pair missing='' wanted=$PREREQUISITES
    if [[ -n $1 ]]; then wanted=$HOST_TOOLS; fi
    PATH=$PATH:/usr/sbin:/sbin
    for pair in $wanted; do
        command -v "${pair%%:*}" >/dev/null || missing+=" $pair"
    done
    [[ -z $missing ]] || fail "not installed:$(programs_of "$missing")"$'\n'"  apt-get install --no-install-recommends $(packages_of "$missing")"
}

programs_of() { local pair; for pair in $1; do printf ' %s' "${pair%%:*}"; done; }

# packages_of 'PROGRAM:PACKAGE...': each once, separated by blanks
packages_of() { tr -s ' \n' '\n' <<<"$1" | sed -n 's/.*://p' | sort -u | paste -sd' '; }

# of the cluster's own root
slurm_version() {
    if [[ -n ${P[root]-} ]]; then chroot "${P[root]}" slurmctld -V; else slurmctld -V; fi | cut -d' ' -f2
}

# at_least 23.11: this Slurm is that release or newer
at_least() { [[ $(printf '%s\n' "$1" "$(slurm_version)" | sort -V | head -n1) == "$1" ]]; }

# Debian builds mpi/pmix for some releases only; for Slurm, a setting for a missing plugin is an error.
has_pmix() { compgen -G "${P[root]-}/usr/lib/*/slurm-wlm/mpi_pmix.so" >/dev/null; }
