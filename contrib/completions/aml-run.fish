# Completion for fish of aml-run and of the launchers aml-torchrun, aml-mpirun, aml-deepspeed and aml-horovodrun.

complete -c aml-run -f -a '(__fish_complete_suffix .yml; __fish_complete_suffix .yaml)'
complete -c aml-run -l kind -x -a 'pytorch mpi tensorflow jax ray none help' -d 'Kind of job'
complete -c aml-run -l set -x -a '(aml-run --list-keys 2>/dev/null | string replace --regex " .*" "=")' -d 'Change a key of the job file'
complete -c aml-run -l setup -x -d 'A line of bash in front of the program'
complete -c aml-run -l mpi -x -a 'pmix pmi2 none' -d "srun's --mpi"
complete -c aml-run -l instance-types -r -F -d 'Table of instance types'
complete -c aml-run -l no-expand -d 'Leave $RANK and its like alone'
complete -c aml-run -l dry-run -d 'Print the batch script'
complete -c aml-run -s W -l wait -d 'Follow the job'
complete -c aml-run -l json -d 'What was done, for programs'
complete -c aml-run -l new-job -d 'A job, even inside an allocation'
complete -c aml-run -l literal -d 'A value of ${{...}} is one word'
complete -c aml-run -l dashboard -d 'With the dashboard of Ray'
complete -c aml-run -l stop-before -x -d 'Ask the ranks to stop so long before the time limit'
complete -c aml-run -l snapshot -d 'Copy the code folder for the job'
complete -c aml-run -l test-only -d 'Ask sbatch when the job would start'
complete -c aml-run -l list -d Runs
complete -c aml-run -l show -x -d 'A run or a job'
complete -c aml-run -l cancel -x -d 'End a run or a job'
complete -c aml-run -l stream -x -d 'Follow a run or a job'
complete -c aml-run -l resume -x -d 'Run again what did not end well'
complete -c aml-run -l download -x -d 'Copy the logs and outputs of a run or a job'
complete -c aml-run -l download-path -r -d 'Where --download puts them'
complete -c aml-run -l metric-pattern -x -d 'Where in its log a trial says its metric'
complete -c aml-run -l spares -x -d 'aml-dist keep: nodes that wait'
complete -c aml-run -l retries -x -d 'aml-dist keep: how often it starts again'
complete -c aml-run -l per-hour -x -d 'aml-dist keep: how often within an hour'
complete -c aml-run -l min-nodes -x -d 'aml-dist keep: go on with fewer nodes'
complete -c aml-run -l no-restart-on -x -d 'aml-dist keep: statuses that end it'
complete -c aml-run -l checkpoints -r -d 'aml-dist keep: folder of checkpoints'
complete -c aml-run -l progress -r -d 'aml-dist keep: file or command'
complete -c aml-run -l grace -x -d 'aml-dist keep: seconds for the other ranks'
complete -c aml-run -l health -x -a 'off quick bench' -d 'aml-dist keep: check of the nodes'
complete -c aml-run -l requeue-at-limit -d 'aml-dist keep: back to the queue after an agreed stop'
complete -c aml-run -l list-keys -d 'Every key of a job file'
complete -c aml-run -l version -d 'Print the release'
complete -c aml-run -s h -l help -d Help
complete -c aml-run -s N -l nodes -x -d Nodes
complete -c aml-run -s n -l ntasks -x -d Tasks
complete -c aml-run -l tasks-per-node -x -d 'Tasks of each node'
complete -c aml-run -l gpus-per-node -x -d 'GPUs of each node'
complete -c aml-run -s c -l cpus-per-task -x -d 'CPUs of each task'
complete -c aml-run -s t -l time -x -d 'Time limit'
complete -c aml-run -s p -l partition -x -a '(sinfo -h -o %R 2>/dev/null)' -d Partition
complete -c aml-run -s A -l account -x -d Account
complete -c aml-run -s q -l qos -x -d 'Quality of service'
complete -c aml-run -s C -l constraint -x -d 'Features of the nodes'
complete -c aml-run -s J -l job-name -x -d Name
complete -c aml-run -s o -l output -r -F -d 'File of the output'
complete -c aml-run -s D -l chdir -x -a '(__fish_complete_directories)' -d 'Working folder'

# The flags come from the launcher's own table.
function __aml_launcher_flags
    set -l launcher (commandline --tokenize)[1]
    $launcher --list-flags 2>/dev/null | string replace --regex '^(.*?)  +\S+ +(.*)$' '$1\t$2' |
        while read --delimiter \t names becomes
            for name in (string split ' ' -- $names)
                printf '%s\t%s\n' $name $becomes
            end
        end
end
for launcher in aml-torchrun aml-mpirun aml-deepspeed aml-horovodrun
    complete -c $launcher -n 'string match --quiet -- "-*" (commandline --current-token)' -a '(__aml_launcher_flags)'
end
