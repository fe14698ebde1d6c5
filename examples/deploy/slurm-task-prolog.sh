#!/bin/bash
# Slurm's TaskProlog (slurm.conf: TaskProlog=/etc/slurm/slurm-task-prolog.sh), for sites that want no plugin: what this
# prints as 'export NAME=VALUE' becomes the environment of every task.
#
# A job that asked for a part of a GPU by --gres=shard:N gets a cap of the same share, and its tasks on this node share
# it. Jobs without a shard are only recorded. WEIR_SHARDS_PER_GPU is the Count of a GPU's shards in gres.conf. A job may
# set its own WEIR_CAP, also a larger one: only the plugin (docs/how-to/slurm.md) compares the two, finds jobs that
# escape, and has an option.

LIBRARY=${WEIR_LIBRARY:-/usr/lib/weir/libweir.so}
PER_GPU=${WEIR_SHARDS_PER_GPU:-8}

# Without the library a job runs as it would without weir.
[ -r "$LIBRARY" ] || exit 0
[ -n "${SLURM_JOB_ID:-}" ] || exit 0

case ${LD_PRELOAD:-} in
    */libweir.so*) ;;
    *) echo "export LD_PRELOAD=${LD_PRELOAD:+$LD_PRELOAD:}$LIBRARY" ;;
esac

# A task has SLURM_SHARDS_ON_NODE (Slurm sets no SLURM_JOB_GRES for it): a number, here also behind a type, 'a100:2'.
shards=${SLURM_SHARDS_ON_NODE:-}
shards=${shards##*:}
# They may be spread over all GPUs that the task sees; of each it gets the same share.
gpus=$(printf '%s' "${CUDA_VISIBLE_DEVICES:-0}" | tr -cd , | wc -c)
case $shards in
    '' | *[!0-9]* | 0*) ;;
    *)
        share=$((shards * 100 / (PER_GPU * (gpus + 1))))
        if [ "$share" -ge 1 ] && [ "$share" -le 100 ] && [ -z "${WEIR_CAP:-}" ]; then
            echo "export WEIR_CAP=$share%"
            echo "export WEIR_GROUP=slurm-$SLURM_JOB_ID-${SLURMD_NODENAME:-node}"
        fi
        ;;
esac
exit 0
