# shellcheck shell=bash
# Other releases of Debian, each with its Slurm, in folders that mmdebstrap makes.

help_root() {
    cat <<'HELP'
devcluster root RELEASE [-- COMMAND...]
devcluster root --possible RELEASE

  devcluster root trixie                        makes the root if there is none, and prints its folder
  devcluster root trixie -- slurmctld -V        runs a command there, as root
  devcluster start --release trixie             a cluster of its Slurm
  devcluster root --possible trixie             exit status 0 if there is a root, or one could be made and used here;
                                                1 if not, with the reason

  bookworm   Debian 12: Slurm 22.05, PMIx 4
  trixie     Debian 13: Slurm 24.11, PMIx 5
  forky      Debian testing: Slurm 26.05, without a PMIx plugin

A root (a root file system) is made once, in about 30 s, from the Debian archive that this machine's apt uses. It stays in
/var/cache/aml-devcluster; to remove it, delete that folder. The release of this machine needs no root.
DEVCLUSTER_ROOTS=DIR makes roots in DIR, also one of this machine's release. The command sees the host's /tmp, /var/tmp,
/run and all folders that do not belong to the system.
HELP
}

readonly ROOTS=${DEVCLUSTER_ROOTS:-/var/cache/aml-devcluster}
readonly RELEASES='bookworm trixie forky'

cmd_root() {
    parse_options 'possible' "$@"
    if [[ -n ${OPT[help]-} ]]; then help_root; return; fi
    [[ ${#REST[@]} -gt 0 ]] || usage_error "root: name a release ($RELEASES)"
    local release=${REST[0]} root
    local -a command=("${REST[@]:1}")
    if [[ ${command[0]-} == -- ]]; then command=("${command[@]:1}"); fi
    check_release "$release"
    root=$(root_of "$release")
    if [[ -n ${OPT[possible]-} ]]; then root_is_possible "$release" "$root"; return; fi
    if [[ -n $root ]]; then make_root "$release" "$root"; fi
    if [[ ${#command[@]} -eq 0 ]]; then echo "${root:-/}"; return; fi
    run_in_root "$root" "${command[@]}"
}

# root_is_possible RELEASE ROOT: reports what no change of ours could fix; a failing mmdebstrap is not such a reason
root_is_possible() {
    local release=$1 root=$2 mirror
    if [[ -z $root ]]; then return; fi
    [[ $EUID -eq 0 ]] || fail "only root can make and enter a root for '$release'"
    namespaces_allowed || fail 'this machine does not allow namespaces'
    mountpoint -q / || fail "/ of this machine is not a mount point (a chroot?), so it cannot be replaced by another root"
    if [[ -d $root ]]; then return; fi
    mirror=$(own_archive)
    [[ -n $mirror ]] || fail "this machine's apt has no Debian archive configured: try 'apt-get update'"
    archive_has "$mirror" "$release" || fail "the archive of this machine, $mirror, has no '$release'"
}

# archive_has URL RELEASE: asked with apt's own means and settings
archive_has() {
    local folder status=0
    folder=$(mktemp -d)
    /usr/lib/apt/apt-helper -o APT::Sandbox::User=root download-file "${1%/}/dists/$2/InRelease" "$folder/InRelease" \
        >"$folder/log" 2>&1 || status=1
    rm -rf "$folder"
    return "$status"
}

# run_in_root ROOT COMMAND...: with little of our environment, which may name programs that ROOT lacks
run_in_root() {
    local root=$1 proxies; shift
    mapfile -t proxies < <(env | grep -iE '^(http|https|no)_proxy=')
    local -a clean=(env -i PATH="$DAEMON_PATH" HOME="$HOME" LANG=C.UTF-8 TERM="${TERM:-dumb}" "${proxies[@]}")
    if [[ -z $root ]]; then exec "${clean[@]}" "$@"; fi
    exec unshare --mount "$LIB/root-init.sh" "$root" "${clean[@]}" "$@"
}

check_release() {
    [[ " $RELEASES " == *" $1 "* ]] || usage_error "'$1' is not one of the releases $RELEASES"
}

# root_of RELEASE: the folder, or nothing where this machine is of that release
root_of() {
    if [[ -n ${DEVCLUSTER_ROOTS-} ]] || ! grep -qsx "VERSION_CODENAME=$1" /etc/os-release; then echo "$ROOTS/$1"; fi
}

make_root() {
    local release=$1 root=$2 began=$SECONDS lock mirror
    if [[ -d $root ]]; then return; fi
    [[ $EUID -eq 0 ]] || fail "only root can make a root for '$release'"
    command -v mmdebstrap >/dev/null || fail 'not installed: mmdebstrap'$'\n''  apt-get install --no-install-recommends mmdebstrap'
    mkdir -p "$ROOTS"
    exec {lock}>>"$ROOTS/.lock-$release"
    flock -n "$lock" || { say "waiting for another devcluster that makes $root"; flock "$lock"; }
    if [[ -d $root ]]; then exec {lock}>&-; return; fi
    mirror=$(own_archive)
    [[ -n $mirror ]] || fail "this machine's apt has no Debian archive configured: try 'apt-get update'"
    say "making $root: Debian $release with Slurm"
    rm -rf --one-file-system -- "$root.new"
    debootstrap_into "$root.new" "$release" "$mirror" {lock}>&- || { rm -rf --one-file-system -- "$root.new"; exit 1; }
    mv "$root.new" "$root"
    exec {lock}>&-
    say "made $root in $((SECONDS - began)) s"
}

# Where this machine's own packages come from.
own_archive() {
    # shellcheck disable=SC2016  # apt's own notation
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 2>/dev/null |
        sort -u | head -n 1
}

# The release file of an archived release has expired. A root that was left half made is not used: see make_root.
debootstrap_into() {
    local packages
    packages=$(packages_of "$PREREQUISITES")
    mmdebstrap --variant=apt --components=main --include="${packages// /,},python3,slurm-wlm-basic-plugins" \
        --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt=force-unsafe-io "$2" "$1" "$3" >&2
}
