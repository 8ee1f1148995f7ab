"""Faults of published lists, written anew as changes of one call of Megatron-Core: Megatron-LM issue 7452, and the table of
TTrace (arXiv 2506.09280). Each is a function that megatron_trainer.py calls when the model is made ("model"), when DDP is
made ("ddp"), and after the schedule has run ("step")."""
import sys

import torch

FAULTS = {}


def fault(moment):
    """A fault of one moment, under the function's name."""

    def listed(change):
        FAULTS[change.__name__] = lambda run, now: change(run) if now == moment else None
        return change

    return listed


def nothing(*_, **__):
    return None


def parameters(run, word):
    return [p for name, p in run.model.named_parameters() if word in name]


def layer_of(run, number):
    return next((layer for layer in run.model.decoder.layers if layer.layer_number == number + 1), None)


def buckets(ddp, experts):
    for group in ddp.expert_parallel_bucket_groups if experts else ddp.bucket_groups:
        yield from group.buckets


def module(name):
    return sys.modules["megatron.core." + name]


# ---- gradients that are reduced over too few ranks, or too often


@fault("model")
def norms_not_summed_over_tp(run):
    run.replace(module("distributed.finalize_model_grads"), "_allreduce_non_tensor_model_parallel_grads", nothing)


@fault("model")
def router_not_summed_over_tp(run):
    for p in parameters(run, "router"):
        p.sequence_parallel = False


@fault("model")
def router_not_summed_over_ep(run):
    for p in parameters(run, "router"):
        p.allreduce = False  # as if it were an expert's


@fault("ddp")
def experts_scaled_by_expert_degree(run):
    from megatron.core import parallel_state as state
    for bucket in buckets(run.ddp, True):
        bucket.gradient_scaling_factor = 1 / state.get_expert_data_parallel_world_size()


@fault("ddp")
def averaged_twice(run):
    for bucket in buckets(run.ddp, False):
        bucket.gradient_scaling_factor **= 2


@fault("ddp")
def not_summed_over_cp(run):
    from megatron.core import parallel_state as state
    for group in run.ddp.bucket_groups:
        group.data_parallel_group = state.get_data_parallel_group(with_context_parallel=False)


@fault("ddp")
def not_reduced_over_dp(run):
    run.replace(run.ddp, "finish_grad_sync", nothing)


@fault("step")
def finalized_twice(run):
    module("distributed.finalize_model_grads")._allreduce_non_tensor_model_parallel_grads([run.ddp], run.config)


@fault("model")
def shared_embedding_not_summed(run):
    run.replace(module("distributed.finalize_model_grads"), "_allreduce_word_embedding_grads", nothing)


# ---- counts and scales


@fault("model")
def labels_counted_locally(run):
    reduce = torch.distributed.all_reduce

    def only_gradients(tensor, *args, **kwargs):
        return None if tensor.dtype == torch.int and tensor.numel() == 1 else reduce(tensor, *args, **kwargs)

    run.replace(torch.distributed, "all_reduce", only_gradients)


@fault("model")
def mean_of_own_labels(run):
    """The case says it: the loss that is declared is the mean over all labels."""


@fault("model")
def microbatches_not_averaged(run):
    calculate = module("pipeline_parallel.schedules").forward_step_calc_loss

    def times(*args, **kwargs):
        output, tokens = calculate(*args, **kwargs)
        return output * run.case.get("microbatches", 2), tokens

    run.replace(module("pipeline_parallel.schedules"), "forward_step_calc_loss", times)


@fault("model")
def balance_loss_not_scaled(run):
    from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler
    MoEAuxLossAutoScaler.main_loss_backward_scale = torch.ones(1)
    run.replace(MoEAuxLossAutoScaler, "set_loss_scale", staticmethod(nothing))


# ---- forward and backward passes


@fault("model")
def output_not_reduced_over_tp(run):
    layer_of(run, 0).self_attention.linear_proj.explicit_expert_comm = True


@fault("model")
def input_gradient_not_reduced_over_tp(run):
    layer_of(run, 1).mlp.linear_fc1.explicit_expert_comm = True


@fault("model")
def input_gradient_cut_not_summed(run):
    def own(output, whole, group):
        output.copy_(whole.chunk(group.size())[group.rank()])
        return None

    def waited(output, whole, group, async_op=False):
        own(output, whole, group)
        return type("Done", (), {"wait": nothing})() if async_op else None

    run.replace(module("tensor_parallel.layers"), "dist_reduce_scatter_func", waited)


@fault("model")
def positions_from_zero(run):
    rope = module("models.common.embeddings.rotary_pos_embedding")
    run.replace(rope, "get_pos_emb_on_this_cp_rank", lambda table, dim, group: table[: table.shape[0] // group.size()])


@fault("model")
def positions_in_a_row(run):
    rope = module("models.common.embeddings.rotary_pos_embedding")
    run.replace(rope, "get_pos_emb_on_this_cp_rank", lambda table, dim, group: table.chunk(group.size())[group.rank()])


@fault("model")
def joint_product_read_as_blocks(run):
    """Its rows lie group by group: queries, key, value of a group. They are read as all queries, all keys, all values."""
    attention = layer_of(run, 0).self_attention
    width, groups = attention.hidden_size_per_attention_head, attention.num_query_groups_per_partition
    each = attention.num_attention_heads_per_partition // groups
    heads = groups * each
    order = [h for g in range(groups) for h in [*range(g * each, (g + 1) * each), heads + g, heads + groups + g]]

    def reordered(_, __, output):
        blocks = output[0].unflatten(-1, (-1, width))
        return blocks[..., order, :].flatten(-2), output[1]

    attention.linear_qkv.register_forward_hook(reordered)


@fault("model")
def stage_reads_the_microbatch_before(run):
    from megatron.core import parallel_state as state
    if state.is_pipeline_first_stage():
        return
    seen = []
    give = run.model.set_input_tensor

    def stale(tensor):
        one = tensor[0] if isinstance(tensor, list) else tensor
        seen.append(one.detach().clone())
        if len(seen) > 1:
            one.data.copy_(seen[-2])
        return give(tensor)

    run.replace(run.model, "set_input_tensor", stale)


# ---- norms and updates


@fault("model")
def norm_counts_replicas(run):
    run.replace(module("tensor_parallel"), "param_is_not_tensor_parallel_duplicate", lambda *_: True)


@fault("model")
def norm_counts_shared_embedding_twice(run):
    if not run.model.pre_process:
        run.model.output_layer.weight.shared = False


@fault("ddp")
def parameters_not_gathered(run):
    run.replace(run.ddp, "start_param_sync", nothing)
    for group in run.ddp.bucket_groups:
        run.replace(group, "start_param_sync", nothing)
