# shellcheck shell=bash
# The files that the machines see in /etc, and the users' homes.

readonly CLUSTER_USERS='alice:20001 bob:20002'

write_machine_files() {
    local machine=$1 me=$STATE/machines/$1
    mkdir -p "$me/mnt" "$me/broken"
    echo "$machine" >"$me/hostname"
    write_hosts "$machine" >"$me/hosts"
    write_healthy_resolver "$machine"
}

# Written in place: the file is mounted over /etc/resolv.conf, a new one would not be seen.
write_healthy_resolver() {
    local me=$STATE/machines/$1
    : >"$me/resolv.conf"
    write_nsswitch files >"$me/nsswitch.conf"
}

write_hosts() {
    local machine
    echo '127.0.0.1 localhost'
    echo '::1 localhost ip6-localhost ip6-loopback'
    if [[ ${2-} == loopback-name ]]; then echo "127.0.1.1 $1"; fi
    for machine in $(machine_names); do
        if [[ ${2-} == loopback-name && $machine == "$1" ]]; then continue; fi
        echo "$(address_of "$machine") $machine"
    done
}

# Look-ups end with the hosts file: nothing ever waits for a name server.
write_nsswitch() {
    printf '%s: files\n' passwd group shadow gshadow networks protocols services ethers rpc
    echo "hosts: $1"
}

write_users() {
    local pair user id file
    mkdir -p "$STATE/etc" "$STATE/home"
    cp "${P[root]-}"/etc/{passwd,group} "$STATE/etc/"
    for file in shadow gshadow; do
        if [[ -f ${P[root]-}/etc/$file ]]; then cp -p "${P[root]-}/etc/$file" "$STATE/etc/"; fi
    done
    for pair in $CLUSTER_USERS; do
        user=${pair%:*} id=${pair#*:}
        echo "$user:x:$id:$id:$user:$STATE/home/$user:/bin/bash" >>"$STATE/etc/passwd"
        echo "$user:x:$id:" >>"$STATE/etc/group"
        echo "$user:*:19000:0:99999:7:::" >>"$STATE/etc/shadow"
        echo "$user:*::" >>"$STATE/etc/gshadow"
        mkdir -p "$STATE/home/$user"
        chown "$id:$id" "$STATE/home/$user"
    done
    chmod 0640 "$STATE/etc/shadow" "$STATE/etc/gshadow"
}
