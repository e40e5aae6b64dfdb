#!/bin/bash
# root-init.sh ROOT COMMAND...: a command in another Debian, in a new mount namespace that ends with it. /tmp and the
# way to the network are the host's.
set -eu
# shellcheck source=SCRIPTDIR/enter-root.sh
. "${BASH_SOURCE[0]%/*}/enter-root.sh"
root=$1 folder=$PWD; shift

mount --make-rprivate / 2>/dev/null || mount --make-rprivate /proc
for file in hosts resolv.conf; do
    [[ -e /etc/$file ]] || continue
    [[ -e $root/etc/$file ]] || : >"$root/etc/$file"
    mount --bind "/etc/$file" "$root/etc/$file"
done
mount --bind /tmp "$root/tmp"
enter_root "$root"
cd "$folder" 2>/dev/null || cd /
exec "$@"
