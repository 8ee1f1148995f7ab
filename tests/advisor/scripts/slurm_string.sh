#!/bin/bash
# expects: Llama-3-8B: tp 4 cp 1 dp 4 pp 2 vpp 2 microbatch 1, bf16
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
DIR=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)
VPP=2
source ${DIR}/models/dense.sh
options=" \
  ${MODEL_ARGS[*]} --seq-length 8192 --micro-batch-size 1 --global-batch-size 256 --bf16 \
  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 "
if [ "$VPP" -gt 1 ]; then
  options="$options --num-virtual-stages-per-pipeline-rank $VPP"
fi
srun -l --output=logs/%x.log bash -c "
  RANK=\$SLURM_PROCID python -u pretrain_gpt.py ${options}
"
