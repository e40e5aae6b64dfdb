#!/bin/bash
#SBATCH --job-name=line-mwms
#SBATCH --comment="experiment: line"
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --chdir=/home/you/aml-run/tensorflow
#SBATCH --output=/home/you/aml-run/slurm-%j.out

# Fit a line with MultiWorkerMirroredStrategy on two workers.
# Written by aml-run X.Y.Z from tensorflow.yml.
#
# Without effect here:
#   $schema: only editors read it.
#   environment: an environment that is registered with Azure ML is not here: give environment.image, add it
#   to environments: of the administrator's table, or prepare the software with --setup.
#   compute: this cluster's tables do not list it: choose with --partition and --constraint.

cd -- /home/you/aml-run/tensorflow 2>/dev/null || {
    echo "aml-dist: the job's folder is not there on $HOSTNAME, so the nodes do not share it: "/home/you/aml-run/tensorflow >&2
    exit 4
}
mkdir -p outputs logs 2>/dev/null || echo "aml-dist: outputs/ and logs/ cannot be made in $PWD" >&2

export MLFLOW_TRACKING_URI="${MLFLOW_TRACKING_URI:-$PWD/mlruns}"
export MLFLOW_EXPERIMENT_NAME=line

# Each task gives this to bash, so that $RANK and its like are its own.
command='python3 train.py --steps 50'
command='cd -- /home/you/aml-run/tensorflow || exit 4; '$command

srun --kill-on-bad-exit=1 --aml-dist=tensorflow,worker_count=2 bash -c "$command"
