#!/usr/bin/env zsh
# complete.zsh FOLDER LINE...: each command line as it stands after a tab in an interactive zsh that completes from FOLDER.
emulate -R zsh
zmodload zsh/zpty
readonly folder=$1 work=$(mktemp -d)
trap 'rm -rf $work' EXIT
shift
export TERM=dumb
cat >$work/setup <<SETUP
fpath=($folder \$fpath)
autoload -Uz compinit && compinit -u -d $work/dump
after-tab() { zle complete-word; print -r -- "\$BUFFER" >$work/partial; mv $work/partial $work/line; BUFFER=; }
zle -N after-tab
bindkey '^T' after-tab
touch $work/ready
SETUP
zpty -b shell zsh -f -i
zpty -w shell "source $work/setup"

wait_for() { # a file that the shell makes; ends the script after ten seconds
    local -i tries=0
    while [[ ! -e $1 ]]; do
        ((tries++ < 200)) || { print -u2 "zsh did not answer"; exit 1; }
        zpty -r -t shell >/dev/null
        sleep 0.05
    done
}

wait_for $work/ready
for line; do
    zpty -w -n shell "$line"$'\x14'
    wait_for $work/line
    print -r -- "$(<$work/line)"
    rm $work/line
done
zpty -d shell
