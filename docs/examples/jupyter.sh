#!/bin/bash
# Jupyter in a job: sbatch jupyter.sh, from a login pod. jupyter-<job>.log says how to reach it.
#SBATCH --job-name=jupyter
#SBATCH --cpus-per-task=2
#SBATCH --time=8:00:00
#SBATCH --output=jupyter-%j.log
#SBATCH --signal=B:TERM@60

port=$((20000 + SLURM_JOB_ID % 10000)) # a node may have several
echo "on your machine: ssh -N -L 8888:$(hostname -f):$port $USER@<login>, then http://localhost:8888/"
# Others in the cluster reach the port, but do not have the token.
exec jupyter lab --no-browser --ip=0.0.0.0 --port="$port"
