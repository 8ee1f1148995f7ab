#!/bin/bash
# expects: Llama-3-8B: tp 2 cp 1 dp 8 pp 1 microbatch 2, bf16
NODES=2
TP=${TP:-2}
ARGS="--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 \
  --ffn-hidden-size 14336 --swiglu --normalization RMSNorm --disable-bias-linear --vocab-size 128256 \
  --untie-embeddings-and-output-weights --position-embedding-type rope --seq-length 8192 --micro-batch-size 2 \
  --global-batch-size 64 --bf16 --tensor-model-parallel-size ${TP}"
sbatch <<EOT
#!/bin/bash
#SBATCH --nodes=$NODES
#SBATCH --ntasks-per-node=8
srun python pretrain_gpt.py ${ARGS} --save checkpoints/\${SLURM_JOB_ID}
EOT
