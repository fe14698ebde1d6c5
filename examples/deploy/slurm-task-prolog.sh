#!/bin/bash
# Slurm's TaskProlog (slurm.conf: TaskProlog=/etc/slurm/slurm-task-prolog.sh): what this prints as 'export NAME=VALUE'
# becomes the environment of every task.
#
# A job that asked for a part of a GPU by --gres=shard:N gets a cap of the same share, and its tasks on this node share
# it; a job may set its own WEIR_CAP below that by hand. Jobs without a shard are only recorded. WEIR_SHARDS_PER_GPU is
# the Count of a GPU's shards in gres.conf.

LIBRARY=${WEIR_LIBRARY:-/usr/lib/weir/libweir.so}
PER_GPU=${WEIR_SHARDS_PER_GPU:-8}

# Without the library a job runs as it would without weir.
[ -r "$LIBRARY" ] || exit 0
[ -n "${SLURM_JOB_ID:-}" ] || exit 0

echo "export LD_PRELOAD=${LD_PRELOAD:+$LD_PRELOAD:}$LIBRARY"
echo "export WEIR_DIR=${WEIR_DIR:-$HOME/.local/state/weir}"

# SLURM_JOB_GRES and SLURM_STEP_GRES look like 'gres/shard:3' or 'shard:3,gpu:1', as the version has it.
shards=$(printf '%s\n' "${SLURM_JOB_GRES:-${SLURM_STEP_GRES:-}}" | tr ',' '\n' | sed -n 's/^.*shard[:=]\([0-9][0-9]*\).*$/\1/p' | head -n 1)
case $shards in
    '' | 0*) ;;
    *)
        share=$((shards * 100 / PER_GPU))
        if [ "$share" -ge 1 ] && [ "$share" -le 100 ] && [ -z "${WEIR_CAP:-}" ]; then
            echo "export WEIR_CAP=$share%"
            echo "export WEIR_GROUP=slurm-$SLURM_JOB_ID"
        fi
        ;;
esac
exit 0
