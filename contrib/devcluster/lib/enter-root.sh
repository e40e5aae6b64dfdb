# shellcheck shell=bash
# Another Debian as the root of this mount namespace. Needs a mount namespace of its own.

# enter_root ROOT: from here on / is that folder. The system's own folders are ROOT's; what people keep
# elsewhere (/home, /srv, ...), /run and /var/tmp are those of the host, under the same names.
enter_root() {
    local root=$1 folder
    mount --make-rprivate / 2>/dev/null || mount --make-rprivate /proc
    mount --rbind "$root" "$root"
    while IFS= read -r folder; do
        mkdir -p "$root$folder"
        mount --rbind "$folder" "$root$folder"
    done < <(shared_folders)
    mkdir -p "$root/.outside"
    cd "$root" && pivot_root . .outside && cd / && umount -l /.outside
}

shared_folders() {
    local folder
    printf '%s\n' /dev /proc /sys /run /var/tmp
    for folder in /*; do
        case $folder in
        /bin|/boot|/dev|/etc|/lib*|/lost+found|/proc|/run|/sbin|/sys|/tmp|/usr|/var) ;;
        *) if [[ -d $folder && ! -L $folder ]]; then printf '%s\n' "$folder"; fi ;;
        esac
    done
}
