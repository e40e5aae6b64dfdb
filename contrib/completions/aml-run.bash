# shellcheck shell=bash
# Completion for bash of aml-run and of the launchers aml-torchrun, aml-mpirun, aml-deepspeed and aml-horovodrun.

_aml_run() {
    local current=${COMP_WORDS[COMP_CWORD]} previous='' word
    local own='--kind= --set --setup --mpi= --instance-types= --no-expand --dry-run --wait --json --new-job --list-keys --version
        --literal --snapshot --dashboard --stop-before= --test-only --list --show= --cancel= --stream= --resume= --download= --download-path= --metric-pattern=
        --spares= --retries= --per-hour= --min-nodes= --no-restart-on= --checkpoints= --progress= --grace= --health= --requeue-at-limit --help'
    local slurm='--account= --array= --begin= --chdir= --comment= --constraint= --cpus-per-task= --dependency= --distribution=
        --error= --exclude= --exclusive --export= --gpus-per-node= --gres= --hold --job-name= --mail-type= --mem= --nodelist=
        --nodes= --ntasks= --ntasks-per-node= --output= --partition= --qos= --reservation= --tasks-per-node= --time='
    COMPREPLY=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [[ $word == -- ]]; then # after it comes the user's command
            mapfile -t COMPREPLY < <(compgen -c -- "$current")
            compopt -o default 2>/dev/null
            return
        fi
    done
    previous=${COMP_WORDS[COMP_CWORD - 1]}
    [[ $previous != = ]] || previous=${COMP_WORDS[COMP_CWORD - 2]}
    case $previous in
    --kind) mapfile -t COMPREPLY < <(compgen -W 'pytorch mpi tensorflow jax ray none help' -- "${current#=}") ;;
    --mpi) mapfile -t COMPREPLY < <(compgen -W 'pmix pmi2 none' -- "${current#=}") ;;
    --instance-types) mapfile -t COMPREPLY < <(compgen -f -- "${current#=}") ;;
    --set) mapfile -t COMPREPLY < <(compgen -W "$("$1" --list-keys 2>/dev/null | sed 's/ .*/=/; s/\*.*//')" -- "$current") ;;
    *)
        if [[ $current == -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W "$own $slurm --" -- "$current")
        else
            mapfile -t COMPREPLY < <(compgen -f -X '!*.@(yml|yaml)' -- "$current"; compgen -d -- "$current")
            compopt -o filenames 2>/dev/null
        fi
        ;;
    esac
    [[ ${COMPREPLY[*]} != *= ]] || compopt -o nospace 2>/dev/null
}

# The flags come from the launcher's own table; a word that is no flag is the program.
_aml_launcher() {
    local current=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$1" --list-flags 2>/dev/null | sed 's/  .*//')" -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        compopt -o filenames 2>/dev/null
    fi
}

shopt -s extglob
complete -F _aml_run aml-run
complete -F _aml_launcher aml-torchrun aml-mpirun aml-deepspeed aml-horovodrun
