#!/bin/bash
#SBATCH --job-name=pi
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --chdir=/home/you/aml-run/mpi
#SBATCH --output=/home/you/aml-run/slurm-%j.out

# Integrate 4/(1+x^2) from 0 to 1, each rank its share.
# Written by aml-run X.Y.Z from mpi.yml.
#
# Without effect here:
#   $schema: only editors read it.
#   environment.image: the administrator's table does not say how images are run: prepare the software with
#   --setup, or choose a container with your site's option.

cd -- /home/you/aml-run/mpi 2>/dev/null || {
    echo "aml-dist: the job's folder is not there on $HOSTNAME, so the nodes do not share it: "/home/you/aml-run/mpi >&2
    exit 4
}
mkdir -p outputs logs 2>/dev/null || echo "aml-dist: outputs/ and logs/ cannot be made in $PWD" >&2

export MLFLOW_TRACKING_URI="${MLFLOW_TRACKING_URI:-$PWD/mlruns}"

export OMP_NUM_THREADS=1

# Each task gives this to bash, so that $RANK and its like are its own.
command='./pi 1000000'
command='cd -- /home/you/aml-run/mpi || exit 4; '$command

srun --mpi=pmix --kill-on-bad-exit=1 --aml-dist=mpi bash -c "$command"
