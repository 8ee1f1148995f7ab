#include "advisor/script/flag_effects.h"

#include <algorithm>

namespace heddle::advisor {

namespace {

// Names apart by blanks. One that ends in '*' stands for all flags that begin so; the longest that fits counts, a
// whole one before a beginning. Flags of Megatron-LM (its parser of core 0.20), of MindSpeed and MindSpeed-LLM
// (July 2026), and of what starts them.
struct Flags {
  FlagEffect effect;
  std::string_view names;
};
constexpr Flags kEffects[] = {
    // Data, rates, logs, checkpoints, launchers.
    {FlagEffect::none, R"(
        --accumulate-allreduce-grads-in-fp32 --actor-num-* --adam-* --add-eos-token --additional-config
        --address --ademamix-* --adlr-* --advantage-estimator --ai-framework --aiqos*
        --allow-ambiguous-pad-tokens --alternative-prompt --app-tag-* --append-eod --apply-chat-template
        --apply-wd-to-qk-layernorm --async-ckpt-* --async-save --async-strategy --attention-mask-on-cpu
        --attention-mask-type --attention-softmax-in-fp32 --auto-detect-ckpt-format --auto-settings*
        --balance-data --batch-size --bind-core --broadcast --cache-dir --cache-mla-latents --calc-ft-timeouts
        --calculate-per-token-loss --chain-of-thought --chat-template --check-* --ckpt-* --clip-grad
        --cluster-time-out --colocate --config-logger-dir --container-* --cp-attention-mask-type
        --cpu-offloading-retain-pinned-cpu-buffers --cpunodebind --cpus-per-task --create-all-gather-group
        --cross-entropy-fusion-impl --cuda-graph-modules --cuda-graph-warmup-steps --cut-max-seqlen
        --data-args-path --data-cache-path --data-impl --data-parallel-random-init --data-path --dataloader-*
        --dataset* --ddp-* --DDP-impl --decode-only-cuda-graphs --decoupled-* --deterministic-mode
        --disable-align-* --disable-bf16-reduced-precision-matmul --disable-ckpt-*
        --disable-clone-scatter-output-in-embedding --disable-flight-recorder-* --disable-gloo-group
        --disable-gloo-process-groups --disable-jit-fuser --disable-log-* --disable-manual-gc-eval --disable-msc
        --disable-pad-vocab-size --disable-save-tokenizer-assets --disable-straggler-on-startup
        --disable-strict-fsdp-dtensor-load --disable-symmetric-registration --disable-tokenizer-*
        --disable-use-tokenizer-model-from-checkpoint-args --dist-ckpt-* --dist-train --dist-url
        --distrib-optim-* --distributed-* --drop-thinking --dump-param-to-param-group-map
        --embedding-init-method-std --empty-unused-memory-level --enable-chunked-prefill
        --enable-elastic-training --enable-experimental --enable-ft-package --enable-gpt-oss
        --enable-hbmfault-repair --enable-hf2mg-convert --enable-high-availability --enable-mg2hf-convert
        --enable-mla-absorb --enable-msc --enable-share-memory --enable-thinking --enable-worker-reboot
        --end-weight-decay --entropy-coef --eod-mask-loss --epochs --eps-clip* --error-injection-* --eval-*
        --evaluation-batch-size --exclusive --exit-* --exp-avg-* --export --export-force-local-attention
        --extra-vocab-size --fake-process-group --fault-injector-* --fim-* --finetune --finetune-hf-dataset
        --fix-sub-seq-length --flash-attention-version --flash-decode --flight-recorder-*
        --fp16-lm-cross-entropy --fp4-quantizer-factory --fp4-recipe --fp8-amax-* --fp8-interval --fp8-margin
        --fp8-quantizer-factory --fsdp-* --fsdp2-config-path --ft-* --full-shuffle-instruction-dataset
        --full-validation --gemm-gradient-accumulation-fusion --goldfish-* --gpu-sniff-test-interval --greedy
        --group-query-attention --grpo-* --handler-name --hccl-* --help --hf-* --high-priority-stream-groups
        --history-turns --hysteresis --inference-* --init-* --initial-loss-scale --inprocess-* --input-key
        --instruction-template --interleave-probs --is-instruction-dataset --is-pairwise-dataset
        --iterations-to-skip --jit-compile --job-name --join --json-keys --keep-newlines --kv-lora-rank
        --label-key --langrl-env-config --lazy-mpu-init --lion-* --load* --local-addr --local-rank
        --local-ranks-filter --local-worker-num --log* --log-dir --loss-scale* --lr* --main-grads-dtype
        --main-params-dtype --make-vocab-size-divisible-by --manual-gc* --map-keys --master-* --max-eval-samples
        --max-new-tokens --max-padding-length --max-restarts --max-samples --max-tokens-per-gpu
        --max-tokens-to-oom --megatron-cp-in-bnsd --megatron-fsdp-* --membind --memory-snapshot-path
        --merge-file --merge-group-keys --mg-save-dir --mid-level-dataset-surplus --min-loss-scale --min-lr
        --min-offloaded-tensor-size --mix-strategy --mla-fa-divide-qk --mla-fa-without-pad --mla-mm-split
        --mlp-chunks-for-prefill --mock-data --model-type --model-type-hf --moe-deepep-num-sms
        --moe-enable-routing-replay --moe-flex-dispatcher-num-sms --moe-grouped-gemm --moe-hybridep-*
        --moe-ncclep-zero-copy --moe-per-layer-logging --moe-permute-fusion --moe-router-force-load-balancing
        --moe-router-fusion --moe-router-padding-for-* --moe-routing-trace-* --moe-upcycling-granularity
        --moe-use-upcycling --monitor-interval --mpi --mtp-detach-heads --mtp-mem-efficient-logits
        --multiple-validation-sets --mup-* --n-samples-* --nccl-all-reduce-for-prefill
        --nccl-communicator-config-path --neat-pack --next-tockens --nnodes --no-barrier-with-level-1-timing
        --no-bias-dropout-fusion --no-chat-template --no-check-for-nan-in-loss-and-grad --no-ckpt-*
        --no-clone-scatter-output-in-embedding --no-create-attention-mask-in-dataloader --no-cut-token
        --no-data-sharding --no-enable-linear-qkv --no-flight-recorder-* --no-gradient-accumulation-fusion
        --no-gradient-reduce-div-fusion --no-inference-* --no-initialization --no-load-* --no-log-*
        --no-manual-gc-eval --no-masked-softmax-fusion --no-mmap-bin-files --no-one-logger
        --no-pad-to-seq-lengths --no-pad-vocab-size --no-persist-layer-norm --no-pin-cpu-* --no-rl-*
        --no-rope-fusion --no-save-* --no-shared-storage --no-shuffle --no-strict-fsdp-dtensor-load
        --no-tokenizer-* --no-use-layer-wise-param-layout --no-use-tokenizer-model-from-checkpoint-args
        --no-weight-decay-* --node-rank --nodelist --nodes --non-persistent-* --nproc* --npu-datadump
        --npu-deterministic --ntasks* --null-tokenizer-* --num-dataset-builder-threads --num-rollout
        --num-speculative-tokens --num-workers --nvtx-ranges --object-storage-cache-path --one-logger-*
        --only-convert-last-checkpoint --onnx-safe --op-cal-tflops --optimizer-offload-policy
        --optimizer-selection --otel-* --out-seq-length --output-prefix --override-* --overwrite-cache --pack
        --pad-to-multiple-of --pad-vocab-size-to --padded-samples --padded-vocab-size --partition
        --patch-tokenizer-type --per-dataset-sequences-path --per-split-data-args-path
        --persistent-save-interval --phase-transition-iterations --pipeline-model-parallel-comm-backend
        --placeholder-token --pre-tockens --pretrained-checkpoint --prof-file --profile* --prompt-data
        --prompt-type* --pytorch-profiler-* --q-lora-rank --qk-clip* --qk-head-dim --qk-pos-emb-head-dim
        --qknorm-impl --rank --rdzv-* --reasoning-effort --record-* --redirects --ref-load
        --ref-micro-batch-size --refit-method --replication* --rerun-mode --reset-attention-mask
        --reset-bucket-group-order --reset-position-ids --result-rejected-tracker-filename --reward-tokens
        --rl-* --rm-type --role --rollout-* --rotary-interleaved --run-workload-inspector-server
        --runtime-env-json --sample-rate --save* --script-data-dir --seed --sft --sft-*
        --sft-tokenizer-prompt-format --sgd-* --sglang-* --shape-order --share-mtp-embedding-and-output-weight
        --short-seq-prob --skip-train --sparse-mode --split --split-sentences --stage --standalone
        --start-eval-at-iter --start-method --start-weight-decay --straggler-* --streaming --structured-logs*
        --suggested-communication-unit-size --swap-optimizer-times --target-nnodes --task --task-data-path
        --te-comparison-* --te-rng-tracker --tee --temperature --tensorboard-* --test-data-path --test-mode
        --test-weighted-split-paths* --tiktoken-* --time --timing-log-* --tokenizer* --top-k --top-p
        --torch-fsdp2-no-reshard-after-forward --tp-comm-bootstrap-backend --tp-comm-overlap-cfg --train-*
        --train-mode --train-sync-interval --transformer-impl --trigger-path --trust-remote-code --ttp-*
        --use-checkpoint-opt-param-scheduler --use-cp-send-recv-overlap --use-cpu-initialization
        --use-deter-comp --use-dist-ckpt --use-dynamic-batch-size --use-fused-* --use-fusion-attn-v2
        --use-gigatoken --use-glm-rope --use-kl-loss --use-kv-cache --use-legacy-models
        --use-legacy-static-engine --use-mcore-models --use-mup --use-nccl-ub --use-one-sent-docs
        --use-persistent-ckpt-worker --use-pytorch-profiler --use-same-sampling-seed-across-dp-ranks --use-te
        --use-tis --use-torch-optimizer-for-cpu-offload --use-tp-pp-dp-mapping --use-triton-swiglu-limit
        --use-wandb --v-head-dim --valid-data --valid-data-path --valid-num-workers
        --valid-weighted-split-paths* --validation-set-names --variable-seq-lengths --verify-integrity
        --vocab-extra-ids --vocab-file --vocab-size --wandb-* --warmup --weight-decay* --worker-num --workers
        --world-size)"},
    // Read where something else calls for them (experts, operands in eight bits, recomputation, the pipeline,
    // context parallelism of two levels), else without effect.
    {FlagEffect::none, R"(
        --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split
        --activations-checkpoint-num-layers --attention-head-type --cp-window-size
        --decoder-first-pipeline-num-layers --decoder-last-pipeline-num-layers --first-k-dense-replace
        --fp8-recipe --hierarchical-context-parallel-sizes --moe-expert-capacity-factor --moe-ffn-hidden-size
        --moe-intermediate-size --moe-latent-size --moe-layer-freq --moe-model-type
        --moe-pad-expert-input-to-capacity --moe-router-enable-expert-bias --moe-router-topk
        --moe-shared-expert-gate --moe-shared-expert-intermediate-size --moe-token-drop-policy
        --moe-tp-extend-ep --multi-head-latent-attention --n-group --n-shared-experts --no-bias-gelu-fusion
        --no-bias-swiglu-fusion --qk-nope-head-dim --qk-rope-head-dim --recompute-activations --recompute-method
        --recompute-modules --recompute-num-layers --routed-scaling-factor --shared-expert-gate --spec
        --topk-group --ulysses-degree-in-cp --use-flash-attn --window-attn-skip-freq)"},
    // Schedules, kernels, precision and places that no estimate counts.
    {FlagEffect::pace, R"(
        --activation-offload-fraction --adaptive-* --ampipe-* --async-log-allreduce
        --async-tensor-model-parallel-allreduce --automated-pipeline* --balanced-moe-* --batch-invariant-backend
        --batch-invariant-mode --coc-* --compress-activation --compress-dense --compress-optimizer
        --context-parallel-cache-interval --context-parallel-kv-cache-policy --decrease-batch-size-if-needed
        --defer-embedding-wgrad-compute --delay-offload-until-cuda-graph --delta-offload-bytes-across-pp-ranks
        --disable-fp8-wgrad --disable-tp-comm-* --distribute-saved-activations
        --distributed-optimizer-no-replica --dualpipev-dw-detach --enable-a2avc
        --enable-backward-overlap-ag-with-matmul --enable-expert-placement
        --enable-fine-grained-expert-placement --enable-full-sharding-in-hsdp --enable-overlap-ag-with-matmul
        --enable-overlap-matmul-with-rs --enable-recompute-layers-per-pp-rank --enable-seq1f1b
        --enable-token-rearrange-opt --enable-zero3 --ep-overlap-early-attn-memory-release
        --expert-placement-freq --expert-tensor-parallel-num-weight-shards --fine-grained-expert-placement-thre
        --fine-grained-offloading-max-inflight-offloads --first-last-layers-bf16 --fix-router
        --fp32-residual-connection --fp4-param-gather --fp8-output-proj --fp8-param-gather
        --fp8-reuse-quantized-weight --fused-residual-rmsnorm --gtp-expert-remat-nccl-ub --gtp-remat-*
        --high-priority-a2a-comm-stream --hybrid-context-parallel --keep-fp8-transpose-cache
        --kitchen-attention-backend --kitchen-config-file --kitchen-recipe-number
        --kv-head-repeat-before-uly-alltoall --layerzero* --loss-chunk-size --loss-compute-mode
        --max-seqlen-per-dp-cp-rank --mbs-idx --microbatch-group-size-per-virtual-pipeline-stage
        --mla-down-proj-fusion --mla-swap-core-attn-out --mla-up-proj-tp-overlap --mla-zero-memory
        --mlp-chunks-for-training --moe-adaptive-recompute-* --moe-alltoall-mc2 --moe-bmm-mc2
        --moe-combine-bwd-dtype --moe-dispatch-fwd-dtype --moe-dynamic-padding --moe-expert-rank-capacity-factor
        --moe-hierarchical-alltoallv --moe-no-drop --moe-pad-experts-for-cuda-graph-inference --moe-paged-stash*
        --moe-permute-fusion-into-hybridep --moe-single-grouped-bias --moe-single-grouped-weight
        --moe-unperm2-mem-optim --moe-unperm2-mem-optim-swap --moe-use-grouped-tensor
        --moe-zero-memory-num-layers --mtp-standalone --n-subs --nd1-dim1-size --nd2-dim1-size --no-align-*
        --no-async-tensor-model-parallel-allreduce --no-fp8-wgrad --no-tp-comm-* --no-use-gmm-fp8 --no-use-rts
        --no-use-sparse-c8-indexer --num-distributed-optimizer-instances --num-layers-at-end-in-bf16
        --num-layers-at-start-in-bf16 --o2-gradient --o2-optimizer --offload-modules --optimize-send-recv-comm
        --optimize-vpp-send-recv-comm --optimized-mbs-list --optimized-mbs-mode --optimizer-cuda-graph
        --optimizer-offload-fraction --outer-dp-sharding-strategy --output-layer-slice-num --output-logit-dtype
        --overlap-cpu-optimizer-d2h-h2d --overlap-dispatch-backward-with-experts-wgrad
        --overlap-p2p-communication-warmup-flush --overlap-param-gather-with-optimizer-step
        --param-and-grad-buffer-pad --pipe-experts-* --pp-schedule-list --print-expert-load --quant-grads
        --quant-states --rampup-batch-size --recompute-activation-function-num-layers --recompute-in-advance
        --recompute-in-bubble --recompute-mla-up-proj --recompute-module-list --recompute-mtp-layer
        --recompute-mtp-norm --recompute-norm-num-layers --recompute-type --reuse-grad-buf-for-mxfp8-param-ag
        --save-memory-ratio --seq1f1b-* --sharp-enabled-group --smart-swap --step-batch-size-schedule
        --swap-layer-input --swap-modules --symmetric-ar-type --te-gmm-mode --te-precision-config-file
        --tensor-parallel-num-weight-shards --tp-2d --tp-comm-overlap-rs-dgrad --tp-x --tp-y
        --trans-hot-expert-group-num --unaligned-linear --use-grouped-gemm-for-dense-mlp
        --use-grouped-gemm-for-shared-expert --use-kitchen-attention
        --use-multiparameter-pipeline-model-parallel --use-nanopipe* --use-nd-matmul --use-pipe-experts
        --use-ring-exchange-p2p --use-sharp --use-te-activation-func --use-transformer-engine-op-fuser
        --use-ulysses-allgather-kv --virtual-optimizer --wgrad-deferral-limit)"},
    // Constants of the model and of training.
    {FlagEffect::values, R"(
        --activation-func-clamp-value --add-rmsnorm-offset --alibi-* --apply-layernorm-1p
        --apply-query-key-layer-scaling --apply-residual-connection-post-layernorm --apply-rope-no-in-complex
        --attention-dropout --attn-logit-softcapping --beta-* --dim-model-base --dpo-* --dynamic-factor --ema-*
        --embedding-multiplier-scale --fill-neg-inf --gamma-beta-ratio --gelu-tanh --glu-linear-offset
        --hidden-dropout --high-freq-factor --init-norm-weight-in-fp32 --input-embeds-norm --input-jitter
        --input-layernorm-in-fp32 --kl-* --long-factor --long-mscale --longrope-* --low-freq-factor
        --moe-apply-probs-on-input --moe-aux-loss-coeff --moe-comm-aux-loss-coeff
        --moe-device-level-aux-loss-coeff --moe-input-jitter-eps --moe-mlp-glu-interleave-size
        --moe-revert-type-after-topk --moe-router-bias-update-rate --moe-router-dtype --moe-router-force-biased
        --moe-router-group-topk --moe-router-load-balancing-type --moe-router-num-groups
        --moe-router-pre-softmax --moe-router-quantile-balancing-ema --moe-router-score-function
        --moe-router-topk-scaling-factor --moe-shared-expert-glu-interleave-size --moe-train-capacity-factor
        --moe-use-sinkhorn --moe-z-loss-coeff --mrope-section --mscale* --mtp-loss-scaling-factor --muon-*
        --no-rope-freq --no-yarn-* --noisy-gate-policy --norm-epsilon --norm-topk-prob --openai-gelu --optimizer
        --original-max-position-embeddings --output-logit-softcapping --output-multiplier-scale
        --partial-rotary-factor --pref-ftx --qk-l2-norm --query-pre-attn-scalar --rmsnorm-weight-in-fp32
        --rope-* --rotary-base --rotary-percent --rotary-scaling-factor --rotary-seq-len-interpolation-factor
        --router-gating-in-fp32 --scale-depth --scale-emb --seq-aux --short-factor --short-mscale --simpo-*
        --square-alibi-mask --swiglu-limit --topk-softmax-in-fp32 --use-ema --use-fused-weighted-squared-relu
        --use-global-aux-loss --use-rope-scaling --yarn-*)"},
    // Parts of a model that no shape here has.
    {FlagEffect::sizes, R"(
        --add-dense-bias --add-output-layer-bias --attention-output-gate --cla-share-factor --compress-ratios
        --compress-rope-theta --disable-dsa-* --dsa-* --enable-dsa-indexer --enable-mhc*
        --enable-mla-scale-kv-lora --enable-mla-scale-q-lora --enable-shared-expert --expert-interval --fc-type
        --freeze-* --hc-* --head-lr-mult --index-* --indexer-* --interleave-sliding-window --kv-compress
        --logits-load-* --lora-* --lu-lora-* --mhc-* --moba-* --mtp-hsm --mtp-spec --mtp-use-repeated-layer
        --n-hash-layers --no-dsa-* --no-post-layer-norm --num-zero-experts --o-groups --o-lora-rank
        --perform-rl-step --post-norm --qad-* --qat-* --qlora --quant-param-path --ref-model --share-kvstates
        --shared-expert-gate-output-dimension --shared-moe-ffn-hidden-size --skip-bias-add --sliding-window
        --sliding-window-size --use-checkpoint-args --use-dsa-absorb --use-fused-sparse-flash-attention
        --use-moba-attn --use-mp-args-from-checkpoint-args --use-sparse-flash-attn --use-triton-mhc)"},
    // Hybrids, encoders, images, networks that differ from layer to layer.
    {FlagEffect::other_model, R"(
        --allow-missing-vision-* --bert-* --biencoder-* --block-data-path --classes-fraction
        --data-per-class-fraction --decoder-num-layers --decoder-seq-length --dino-*
        --disable-mamba-mem-eff-path --disable-vision-class-token --embedding-path --encoder-*
        --evidence-data-path --experimental-attention-variant --freeze-LM --freeze-ViT --full-attention-interval
        --gdp-* --heterogeneous-layers-* --hybrid-* --ict-* --image-* --img-* --indexer-batch-size
        --indexer-log-interval --is-hybrid-model --iter-per-epoch --language-model-type
        --layerwise-disaggregated-training --linear-attention-freq --linear-conv-kernel-dim
        --linear-key-head-dim --linear-num-key-heads --linear-num-value-heads --linear-value-head-dim --mamba-*
        --mask-factor --mask-prob --mask-type --max-num-tiles --mm-* --mtp-hybrid-override-pattern
        --num-channels --num-classes --output-bert-embeddings --patch-dim --pixel-shuffle --query-in-block-prob
        --relative-attention-* --retriever-* --swin-* --titles-data-path --use-thumbnail --use-tile-tags
        --use-tiling --use-triton-gdn --vision-* --vlm-* --yaml-cfg)"},
};

}  // namespace

FlagEffect effect_of(std::string_view flag) {
  FlagEffect effect = FlagEffect::unknown;
  size_t longest = 0;
  for (const Flags& flags : kEffects)
    for (std::string_view rest = flags.names; !rest.empty();) {
      rest.remove_prefix(std::min(rest.find_first_not_of(" \n"), rest.size()));
      const std::string_view name = rest.substr(0, rest.find_first_of(" \n"));
      rest.remove_prefix(name.size());
      if (name.empty()) break;
      const bool all = name.ends_with('*');
      const std::string_view beginning = name.substr(0, name.size() - (all ? 1 : 0));
      if (all ? !flag.starts_with(beginning) : flag != name) continue;
      const size_t weight = all ? beginning.size() : 1000;
      if (weight > longest) longest = weight, effect = flags.effect;
    }
  return effect;
}

}  // namespace heddle::advisor
