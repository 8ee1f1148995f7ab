# sourced by others
MODEL_ARGS=(
  --num-layers ${LAYERS:-32} --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8
  --ffn-hidden-size 14336 --swiglu --normalization RMSNorm --disable-bias-linear --vocab-size 128256
  --untie-embeddings-and-output-weights --position-embedding-type rope --rotary-base 500000
)
