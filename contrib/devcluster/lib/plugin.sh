# shellcheck shell=bash

help_plugin() {
    cat <<'HELP'
devcluster plugin [--name NAME] [--mode required|optional] FILE|none ['ARGUMENTS']

  devcluster plugin ./build/spank_aml_dist.so 'port_range=20000-20999 master_addr=name'
  devcluster plugin none

srun, sbatch and slurmstepd read plugstack.conf each time they start: the next step has the new plugin.
slurmd keeps the plugin that it loaded until it is restarted (break NODE down, heal NODE).
HELP
}

cmd_plugin() {
    parse_options_anywhere 'name= mode=' "$@"
    if [[ -n ${OPT[help]-} ]]; then help_plugin; return; fi
    [[ ${#REST[@]} -ge 1 && ${#REST[@]} -le 2 ]] || usage_error "plugin: give FILE|none ['ARGUMENTS']"
    [[ ${OPT[mode]-required} =~ ^(required|optional)$ ]] || usage_error '--mode is required or optional'
    need_cluster "${OPT[name]-}"
    refuse_inside
    lock_cluster
    load_params
    if [[ ${REST[0]} == none ]]; then P[plugin]=''; else P[plugin]=$(plugin_path "${REST[0]}") || exit 1; fi
    P[plugin_args]=${REST[1]-}
    P[plugin_mode]=${OPT[mode]:-${P[plugin_mode]}}
    write_plugstack
    save_params
    say "plugin of cluster '$NAME': ${P[plugin]:-none}${P[plugin_args]:+ ${P[plugin_args]}}, from the next step on (no reconfigure needed)"
}

plugin_path() {
    [[ -f $1 ]] || { say "plugin: no file $1"; return 1; }
    local path
    path=$(readlink -f -- "$1")
    [[ $path != *[[:space:]]* ]] || { say "plugin: plugstack.conf cannot hold a path with a blank: $path"; return 1; }
    echo "$path"
}
