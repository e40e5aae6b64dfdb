#!/bin/bash
#SBATCH --job-name=spirals-ddp
#SBATCH --comment="experiment: spirals; owner=nobody"
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:10:00
#SBATCH --chdir=/home/you/pytorch
#SBATCH --output=/home/you/aml-run/slurm-%j.out

# Tell three spirals apart, with data-parallel PyTorch.
# Written by aml-run X.Y.Z from pytorch.yml.
#
# Without effect here:
#   $schema: only editors read it.
#   environment: an environment that is registered with Azure ML is not here: give environment.image, add it
#   to environments: of the administrator's table, or prepare the software with --setup.
#   compute: this cluster's tables do not list it: choose with --partition and --constraint.

cd -- /home/you/pytorch 2>/dev/null || {
    echo "aml-dist: the job's folder is not there on $HOSTNAME, so the nodes do not share it: "/home/you/pytorch >&2
    exit 4
}
mkdir -p outputs logs 2>/dev/null || echo "aml-dist: outputs/ and logs/ cannot be made in $PWD" >&2

# ${{outputs.report}}
AML_OUTPUT_report="$PWD/outputs/$SLURM_JOB_ID/report"
export AML_OUTPUT_report
mkdir -p -- "$AML_OUTPUT_report" || exit

export MLFLOW_TRACKING_URI="${MLFLOW_TRACKING_URI:-$PWD/mlruns}"
export MLFLOW_EXPERIMENT_NAME=spirals

# Each task gives this to bash, so that $RANK and its like are its own.
# The values of ${{...}} are put in here, as text.
# shellcheck disable=SC2016
command=$(aml-run --fill-in 'python3 train_ddp.py --epochs ${{inputs.epochs}} --learning-rate ${{inputs.learning_rate}} --report ${{outputs.report}}/report.json' \
    inputs.epochs=5 \
    inputs.learning_rate=0.006 \
    "outputs.report=$AML_OUTPUT_report") || exit
command='cd -- /home/you/pytorch || exit 4; '$command

srun --kill-on-bad-exit=1 --aml-dist=pytorch bash -c "$command"
