#include "heddle/plan/switches.h"

#include "heddle/cost/product_ways.h"
#include "heddle/passes/host/offload.h"
#include "heddle/passes/host/residency_words.h"
#include "heddle/passes/recompute.h"
#include "heddle/plan/switch_table.h"
#include "heddle/schedule/pipeline.h"

namespace heddle::plan {

namespace {

using enum MathsClass;

using Table = SwitchTable;

void objective_settings(Table& t) {
  constexpr auto o = &Choices::objective;
  using model::Objective;
  t.word<o, &Objective::learns>("train.objective",
                                "Objective: next_token, or dpo, the preference between two answers.")
      .also_called({"loss_type", "training_type", "stage"})
      .acts(changes_maths,
            "dpo moves the model towards preferred answers and away from the others, by how much likelier each "
            "became than under the weights that the run began with.",
            "the head's products are made twice, forward and backward; one forward of all pairs before the first "
            "step",
            page("dpo"))
      .tried({std::string("next_token")});
  t.number<o, &Objective::beta>("train.dpo_beta", 1e-6, 1e6,
                                "dpo: strength of the pull to the weights of the beginning.")
      .also_called({"beta", "dpo_beta"});
  t.number<o, &Objective::label_smoothing>("train.dpo_label_smoothing", 0, 0.499999,
                                           "dpo: probability that a preference is wrong.")
      .also_called({"label_smoothing"});
  t.number<o, &Objective::logit_z_loss>("train.logit_z_loss", 0, 1e3,
                                        "Weight of the penalty on the head's log-sum-exp, such as 1e-4; 0 is off.")
      .also_called({"z_loss_multiplier", "lm_head_z_loss", "softmax_auxiliary_loss"})
      .acts(changes_maths,
            "Adds the mean square of the log of the softmax's sum to the loss of each head, so that logits stay "
            "near zero.",
            "nothing beside the loss", page("logit_z_loss"));
}

void train_settings(Table& t) {
  constexpr auto u = &Choices::update;
  using O = passes::Optimizer;
  t.word<u, &O::rule>("train.optimizer", "Optimizer: adamw, or muon for the matrices of layers.")
      .also_called({"optim", "optimizer_type", "optimizer_name"})
      .acts(changes_maths,
            "muon makes the momentum of each matrix in the layers orthogonal before it is taken off; embedding, "
            "head, norms and biases use AdamW.",
            "15 products of a matrix with itself a step, dealt out over the ranks; one moment of each matrix less",
            page("muon"));
  t.number<u, &O::momentum>("train.muon_momentum", 0, 0.999999, "Muon: decay of the momentum.");
  t.number<u, &O::beta1>("train.beta1", 0, 0.999999, "AdamW: decay of the first moment.")
      .also_called({"adam_beta1"});
  t.number<u, &O::beta2>("train.beta2", 0, 0.99999999, "AdamW: decay of the second moment.")
      .also_called({"adam_beta2"});
  t.number<u, &O::epsilon>("train.epsilon", 1e-30, 1, "AdamW: added to the root of the second moment.")
      .also_called({"adam_eps", "adam_epsilon", "eps"});
  t.word<u, &O::moments>("train.moments", "AdamW: type of the moments between steps.")
      .also_called({"exp_avg_dtype", "optimizer_states_dtype", "moments_dtype", "state_dtype"})
      .acts(changes_maths,
            "A step computes both moments in fp32 and rounds what it keeps. With bf16 it keeps both in that, as "
            "DeepSeek-V3's training does: 4 bytes a parameter less. With fp8 it keeps the first in 8 bits, in "
            "units of the second's root, and the second in bf16: 5 bytes less.",
            "none in time; the second moment forgets changes below one part in 512 of it, and with fp8 the first "
            "those below one in 32",
            page("moments"));
  t.number<u, &O::weight_decay>("train.weight_decay", 0, 100, "AdamW: decay of matrices, apart from the gradient.")
      .also_called({"wd"});
  t.number<u, &O::clip_norm>("train.clip_norm", 0, 1e12, "Largest norm of the whole gradient; 0 is off.")
      .also_called({"clip_grad", "max_grad_norm", "grad_clip", "gradient_clipping", "gradient_clip_val"})
      .acts(changes_maths,
            "Scales the gradient of all parameters down so that its norm is at most this; 0 switches it off.",
            "one reading of the gradients; the norm is measured in any case", page("clip_norm"));
  t.number<u, &O::qk_clip>(
       "train.qk_clip", 0, 1e12,
       "Largest attention logit of a head; the weights of one that exceeds it shrink after the step. 0 is off.")
      .also_called({"qk_clip_threshold", "qk_clip_tau"})
      .acts(changes_maths,
            "Scales a head's query and key weights down after the update where its largest attention logit of the "
            "step exceeds this, so that logits stay bounded (MuonClip).",
            "one sweep over the log-sum-exps of attention, and the scores of the rows that may exceed the limit "
            "once more; a number a head among the ranks",
            page("qk_clip"))
      .tried({0.001});
  t.number<u, &O::skip_norm_above>("train.skip_norm_above", 0, 1e12,
                                   "Leaves out a step whose gradient norm is not finite, or more than so many "
                                   "times the median of the last train.skip_window applied steps; 0 is off.")
      .acts(changes_maths,
            "Leaves out a step whose gradient norm is an outlier among recent ones, or not finite: weights, "
            "moments and their count stay as they are.",
            "one sum of a number over the ranks", page("skip_outliers"));
  t.number<u, &O::skip_loss_above>("train.skip_loss_above", 0, 1e12, "The same of the next-token loss; 0 is off.")
      .acts(changes_maths,
            "Leaves out a step whose next-token loss is an outlier among recent ones, or not finite: weights, "
            "moments and their count stay as they are.",
            "one sum of a number over the ranks", page("skip_outliers"));
  t.boolean<&Choices::exact_sums>("train.exact_sums", "Sums of weight gradients that no layout of ranks changes.")
      .acts(reassociates,
            "Makes sums of weight gradients exact: every degree of data, expert and pipeline parallelism gives the "
            "same bits.",
            "8 bytes a parameter and one more sweep over the gradients a microbatch; twice the bytes of their "
            "reduction",
            page("exact_sums"))
      .beside({"device.dtype=f32"});  // its grid is coarser than fp64
  t.integer<&Choices::snapshot_every>(
       "train.snapshot_every", 0, 1e12,
       "Steps between snapshots of masters and moments in memory that outlives the process, from which a run "
       "resumes (heddle train --resume) without its disk; 0: never.")
      .also_called({"memory_every", "save_memory_interval", "flash_checkpoint", "memory_save_interval"})
      .acts(bitwise,
            "Copies the state in memory beside the forward and backward of the next step, twice in turn, with "
            "checksums of its bytes.",
            "twice the bytes of masters and moments in the host's memory, and the time of one copy where compute "
            "doesn't hide it",
            page("snapshots"))
      .tried({int64_t{1}});
  t.number<u, &O::average_decay>(
       "train.average_decay", 0, 0.9999999,
       "Decay of an average of the weights that is kept while training, such as 0.999; 0: no average.")
      .also_called({"ema_decay", "ema", "use_ema", "ema_beta"})
      .acts(changes_maths,
            "Keeps an exponential average of all trained parameters beside them, moved after each applied step; "
            "what is trained stays as it is.",
            "4 bytes a parameter, cut among the ranks as masters are, and one sweep over master and average a step",
            page("average"));
  objective_settings(t);
}

void adapter_settings(Table& t) {
  constexpr auto l = &Choices::lora;
  using A = passes::Adapters;
  t.integer<l, &A::rank>(
       "lora.rank", 0, 65536,
       "Rank of the low-rank adapters that are trained beside frozen weights; 0: all weights are trained.")
      .also_called({"lora_r", "lora_rank", "lora_dim"})
      .acts(changes_maths,
            "Freezes all weights and trains low-rank adapters beside the linear maps of lora.targets: no gradient, "
            "master or moment of a weight is kept.",
            "two thin products and an addition beside each such map; frozen weights stay in rows, whole on each "
            "rank of dp",
            page("lora"))
      .tried({int64_t{0}, int64_t{4}});
  t.number<l, &A::alpha>("lora.alpha", 0, 1e6, "Adapters count alpha ÷ rank times.").also_called({"lora_alpha"});
  Setting<Choices>& targets =
      t.add("lora.targets", Row::Kind::list,
            "Linear maps with adapters: attention, mlp, shared, experts, all, or modules such as q_proj.");
  targets.also_called({"target_modules", "lora_target_modules", "lora_target"});
  targets.words = {"attention", "mlp", "shared", "experts", "all"};
  targets.get = [](const Choices& c) { return Value(c.lora.targets); };
  targets.set = [](Choices& c, const Value& value) { c.lora.targets = std::get<std::string>(value); };
  t.boolean<l, &A::rank_stabilized>("lora.rslora", "Adapters count alpha ÷ √rank times.")
      .also_called({"use_rslora"});
  t.number<l, &A::dropout>("lora.dropout", 0, 0,
                           "Dropout of an adapter's input; Heddle has none, so only 0 is accepted.")
      .also_called({"lora_dropout"});
}

void device_settings(Table& t) {
  constexpr auto d = &Choices::device;
  t.boolean<d, &OnDevice::pack_weights>("device.pack_weights", "Keep weights in the matrix products' own blocking.")
      .acts(bitwise, "Keeps weights in the matrix products' own blocking, made once a step from the fp32 masters.",
            "a second blocking of each weight, for the input gradient; repacking at the end of each step",
            page("pack_weights"));
  t.boolean<d, &OnDevice::graphs>("device.graphs",
                                  "On cuda, put runs of launches that repeat on a stream as one CUDA graph.")
      .also_called({"cuda_graph", "cuda_graphs", "enable_cuda_graph"})
      .acts(bitwise, "On cuda, puts runs of launches that repeat on a stream as one CUDA graph.",
            "memory of the device for the graphs; what waits for a launch waits for its run", page("cuda_graphs"));
  t.word<d, &OnDevice::fp8>("device.fp8",
                            "Operands of the layers' linear maps: off, numbers of device.dtype; blocks, eight-bit "
                            "numbers whose blocks share a scale.")
      .also_called({"fp8", "fp8_format", "fp8_recipe"})
      .acts(changes_maths,
            "Rounds activations, weights and gradients to e4m3 before the products of the layers' linear maps and "
            "experts, by scales over blocks of 128; sums, masters, norms, router, attention, embedding and head "
            "stay. The backward keeps activations of these maps in eight bits.",
            "rounding of each operand; every product's operands once more as the device multiplies them",
            page("fp8"));
  t.word<d, &OnDevice::fp8_weights>(
       "device.fp8_weights", "When device.fp8 rounds a weight: step, once a step for all uses; use, at each use.")
      .acts(bitwise,
            "Rounds each weight of device.fp8 once a step, in place of once a use; a weight that comes to the "
            "device for a while is rounded at each use.",
            "a byte an element of these weights, two where the device reads them turned for the input gradient",
            page("fp8"))
      .beside({"device.fp8=blocks"});
  t.number<d, &OnDevice::product_rate>("device.product_rate", 0, 1e9,
                                       "GFLOP/s of a rank, by which overlap and offload are estimated; 0: as this "
                                       "machine was measured, else usual.");
  t.number<d, &OnDevice::memory_rate>("device.memory_rate", 0, 1e9,
                                      "GB/s of a rank to its memory, read and written together; likewise.");
  t.word<d, &OnDevice::join_updates>(
       "device.join_updates",
       "Updates of many parameters in one op: off, on, or auto: on where each op is a launch of its own (cuda).")
      .also_called({"foreach"})
      .acts(bitwise,
            "Joins the squares, AdamW steps and averages of neighbouring parameters into one op each, which a "
            "device launches once for up to 64 of them.",
            "a joined op waits for all that its parts wait for, so only those are joined that wait for no more "
            "than the first",
            page("join_updates"))
      .beside({"mesh.dp=2"});  // state in shares
  t.word<d, &OnDevice::copy_engine>(
       "device.copy_engine",
       "The mover of messages between ranks that reach each other's memory: off: the computing threads; on: a copy "
       "worker with a core of its own, an error where there is none; auto: on where that core is one of many.")
      .acts(bitwise,
            "A copy worker with a core of its own moves the bytes of gathers, exchanges and messages between the "
            "ranks of a host, so that no computing thread does.",
            "one core of each process computes no longer; two more control messages for each message",
            page("copy_engine"))
      .beside({"mesh.tp=2", "device.copy_engine_kb=0.001"});
  t.number<d, &OnDevice::copy_engine_kb>(
      "device.copy_engine_kb", 0, 1e9,
      "Smallest message in kB that device.copy_engine moves; 0: as this machine was measured, else 64.");
  t.number<d, &OnDevice::message_share>(
      "device.message_share", 0, 0.9,
      "Share of a device's units that a message takes from products while the usual transport moves it, by which "
      "the simulator and the paced mode estimate; none with device.copy_engine on.");
  Setting<Choices>& ways =
      t.add("device.product_ways", Row::Kind::list,
            "Times of the ways of moe.product over grouped, by MFLOP of an expert; none: usual for the backend.");
  ways.words = {"<kind>.<way> <MFLOP> <ratio>"};
  ways.check = [](const std::string& text) { cost::WayRates::parse(text); };
  ways.get = [](const Choices& c) { return Value(c.device.product_ways); };
  ways.set = [](Choices& c, const Value& value) { c.device.product_ways = std::get<std::string>(value); };
}

void mesh_settings(Table& t) {
  constexpr auto m = &Choices::mesh;
  t.integer<m, &Degrees::tp>("mesh.tp", 1, 4096, "Tensor parallel ranks: heads, widths and vocabulary are cut.")
      .also_called({"tensor_model_parallel_size", "tensor_parallel", "tensor_parallel_size", "tp_size"})
      .acts(reassociates,
            "Cuts heads, widths and vocabulary among ranks, and the tokens between the blocks (sequence parallel).",
            "gathers and scatters activations four times a layer each way; weights and activations shrink",
            page("tensor_parallel"))
      .tried({1, 2});
  t.integer<m, &Degrees::cp>("mesh.cp", 1, 4096, "Context parallel ranks: sequences are cut.")
      .also_called({"context_parallel_size", "context_parallel", "cp_size"});
  t.integer<m, &Degrees::dp>("mesh.dp", 0, 4096,
                             "Data parallel ranks: the batch is cut; 0: the ranks that tp, cp and pp leave over.")
      .also_called({"data_parallel_size", "data_parallel", "dp_size"})
      .acts(reassociates,
            "Replicas of the model, each on its share of the batch; gradients are summed, the optimizer is sharded "
            "over the replicas.",
            "a step sends each gradient and each weight once around; moments and masters shrink with the replicas",
            page("data_parallel"))
      .tried({1, 2});
  t.integer<m, &Degrees::pp>("mesh.pp", 1, 4096, "Pipeline stages: layers are cut.")
      .also_called(
          {"pipeline_model_parallel_size", "pipeline_parallel_size", "pipeline_parallel", "pp_size", "stages"});
  t.integer<m, &Degrees::ep>("mesh.ep", 1, 4096, "Expert parallel ranks: a stage's experts are cut among them.")
      .also_called({"expert_model_parallel_size", "expert_parallel_size", "expert_parallel", "ep_size"});
  t.integer<m, &Degrees::etp>("mesh.etp", 1, 4096, "Tensor parallel ranks of an expert: its width is cut.")
      .also_called({"expert_tensor_parallel_size"});
  t.word<m, &Degrees::order>("mesh.order", "The axes of the ranks, neighbours first.");
  t.word<m, &Degrees::expert_order>("mesh.expert_order",
                                    "The axes of a stage's ranks as the experts see them, neighbours first.");
}

void parallel_settings(Table& t) {
  constexpr auto p = &Choices::parallel;
  using P = Parallel;
  const std::vector<std::string> names = schedule::generator_names(), searched = schedule::searched_names();
  const std::string clipped =
      "with train.clip_norm results may differ in the last place where stages lie on other ranks, for the norm "
      "adds their squares; with train.exact_sums they do not";
  const std::vector<std::string> pipeline{"mesh.pp=2", "train.microbatch=1", "train.clip_norm=0"};
  std::vector<std::string> interleaved = pipeline;
  interleaved.emplace_back("parallel.schedule=interleaved");
  t.word<p, &P::schedule>("parallel.schedule",
                          "Order of forwards and backwards in the pipeline: a name of `heddle schedule`, or a file "
                          "with a schedule's text form.")
      .also_called({"pipeline_schedule"})
      .acts(
          bitwise,
          "Order in which the ranks of the pipeline run forwards and backwards, and the number of stages of each.",
          "bubble against memory: heddle schedule prints both; dual_pipe holds every weight twice and reassociates",
          page("schedules"))
      .unless(clipped)
      .planned({searched.begin(), searched.end()}, Planned::Where::several_ranks,
               {{"parallel.chunks=0", "parallel.layout=even"}})
      .tried({names.begin(), names.end()})
      .beside(pipeline)
      .as_switch->reassociating = {"dual_pipe"};
  t.integer<p, &P::chunks>("parallel.chunks", 0, 1024,
                           "Pipeline stages a rank, where the schedule leaves it open; 0: its usual number.")
      .also_called({"virtual_pipeline_model_parallel_size", "vpp", "num_virtual_stages_per_pipeline_rank"})
      .acts(bitwise, "Pipeline stages a rank, where the schedule leaves it open.",
            "a shorter bubble; more messages between ranks", page("schedules"))
      .unless(clipped)
      .tried({0, 2, 3})
      .beside(interleaved);
  t.integer<p, &P::group>("parallel.group", 0, 1 << 20,
                          "Microbatches that an interleaved schedule takes at a time; 0: as many as mesh.pp.")
      .acts(bitwise, "Microbatches that an interleaved schedule takes through a stage before it turns to the next.",
            "larger groups hold more activations", page("schedules"))
      .tried({0, 3, 4})
      .beside(interleaved);
  t.word<p, &P::layout>("parallel.layout",
                        "Layers of each pipeline stage: even, balanced, or letters such as \"Ettt|tt|ttL\".")
      .also_called({"pipeline_model_parallel_layout"})
      .acts(bitwise, "The layers that each pipeline stage holds; any cut, empty stages too, as letters.",
            "none by itself: the costliest stage sets the pace", page("stage_layout"))
      .unless(clipped)
      .tried({"even", "balanced"})
      .beside(pipeline);
  t.word<p, &P::weave>("parallel.weave",
                       "The blocks that are rearranged so that communication overlaps with computation.")
      .acts(bitwise,
            "Rearranges a block, or the forward and backward that a schedule fuses, so that their communication "
            "overlaps with computation.",
            "weight gradients run up to two layers later, which keeps their activations for as long", page("weave"))
      .planned({}, Planned::Where::several_ranks)
      .beside({"mesh.pp=2", "mesh.dp=2", "mesh.ep=2", "train.microbatch=1"});
  t.word<p, &P::tp_overlap>("parallel.tp_overlap",
                            "Overlap of the gathers and sums of tensor parallelism with their products.")
      .also_called({"tp_comm_overlap", "async_tensor_parallel", "async_tp", "userbuffers", "domino"})
      .acts(bitwise,
            "Cuts the products of tensor parallel blocks, the gathers before and the sums behind them into panels "
            "of rows: one panel travels while another is multiplied. Or makes one op of both, which multiplies "
            "rows as they come and sends them as they are made. auto takes the cheaper.",
            "more and smaller products and messages", page("tp_overlap"))
      .planned({"auto"}, Planned::Where::several_ranks)
      .beside({"mesh.tp=2"});
  t.integer<p, &P::tp_panels>(
       "parallel.tp_panels", 0, 1024,
       "Panels of each product that parallel.tp_overlap cuts, or pieces of a rank's rows; 0: by the rates.")
      .acts(bitwise, "Number of panels of rows into which parallel.tp_overlap cuts a product.",
            "as parallel.tp_overlap", page("tp_overlap"))
      .tried({0, 2, 3, 5})
      .beside({"mesh.tp=2", "parallel.tp_overlap=tiles"});
  t.word<p, &P::shard>("parallel.shard",
                       "Tensors sharded over the ranks that hold replicas of a parameter: state, masters and "
                       "moments; gradients, their sums too; weights, all of it.")
      .also_called({"fsdp", "zero", "zero_stage", "zero_optimization", "sharding_strategy", "fully_shard",
                    "data_parallel_sharding_strategy", "use_megatron_fsdp", "use_torch_fsdp2",
                    "use_distributed_optimizer"})
      .acts(reassociates,
            "gradients reduce-scatters each microbatch's gradient as soon as it is complete, and keeps the sum of "
            "a rank's run alone; weights gathers each matrix ahead of the first op of a block that reads it, and "
            "frees its memory after the last.",
            "the gradients are sent for each microbatch instead of once a step; weights are sent twice for each "
            "microbatch instead of once a step, and are not packed",
            page("sharding"))
      .planned({"weights", "gradients"}, Planned::Where::several_ranks)
      .beside({"mesh.dp=2", "train.microbatch=1"});
  t.integer<p, &P::shard_ranks>("parallel.shard_ranks", 0, 1 << 20,
                                "Neighbouring ranks of a stage that hold one replica of its weights together, such "
                                "as those of a node; 0: all ranks that hold replicas.")
      .also_called({"hsdp", "hybrid_shard", "zero_hpz_partition_size", "fsdp_size"})
      .acts(reassociates,
            "parallel.shard cuts gradients and weights among so many ranks; those that hold the same run sum it, "
            "and cut masters and moments of it among themselves.",
            "gradients and weights take as many times the memory as there are replicas", page("sharding"))
      .tried({0, 2})
      .beside({"mesh.dp=4", "train.microbatch=1", "parallel.shard=weights"});
  Setting<Choices>& sharded = t.add("parallel.sharded", Row::Kind::list,
                                    "Gradients and weights that parallel.shard cuts: all, or parts and layers such "
                                    "as experts:3-26 or 0-11; the others are cut as state.");
  sharded
      .acts(reassociates, "Chooses the matrices whose gradients and weights parallel.shard cuts.",
            "the other matrices take their whole place on each rank, and no message of a microbatch",
            page("sharding"))
      .tried({"all", "experts, attention:1"})
      .beside({"mesh.dp=2", "train.microbatch=1", "parallel.shard=weights"});
  sharded.words = passes::part_words();
  sharded.check = [](const std::string& text) { passes::part_groups(text); };
  sharded.get = [](const Choices& c) { return Value(passes::text_of(c.parallel.sharded)); };
  sharded.set = [](Choices& c, const Value& value) {
    c.parallel.sharded = passes::part_groups(std::get<std::string>(value));
  };
  t.word<p, &P::context>("parallel.context",
                         "Access of attention to the keys that other ranks of the context axis hold.")
      .acts(
          reassociates, "Access of attention to the keys of a sequence that is cut among ranks.",
          "gather and ring send the latent and make keys and values of the whole sequence on every rank; ulysses "
          "sends queries, keys, values and outputs by heads and repeats nothing; hybrid does so among neighbours, "
          "and sends the latent round the others; double_ring sends as ring does, but round neighbours first",
          page("context_parallel"))
      .planned({}, Planned::Where::several_ranks)
      .beside({"mesh.cp=4", "model.num_attention_heads=4"});
  t.integer<p, &P::context_inner>(
       "parallel.context_inner", 0, 1 << 20,
       "Neighbouring ranks of the context axis that exchange heads where parallel.context is hybrid, or have a "
       "ring of their own where it is double_ring, such as those of a node; 0: as many as go (in hybrid with the "
       "heads), but not all.")
      .also_called(
          {"hierarchical_context_parallel_sizes", "ulysses_degree_in_cp", "ulysses_degree", "cp_window_size"})
      .acts(reassociates, "Cuts the ranks of the context axis into runs; keys and values go round from run to run.",
            "in hybrid fewer ranks repeat the latent's product more often and send it further, more send more "
            "heads; in double_ring fewer send more often from run to run",
            page("context_parallel"))
      .tried({0, 2})
      .planned({2, 4, 8}, Planned::Where::several_ranks,
               {{"parallel.context=hybrid"}, {"parallel.context=double_ring"}})
      .beside({"mesh.cp=4", "parallel.context=hybrid"});
  t.word<p, &P::exchange, &model::Dispatcher::topology>("parallel.exchange",
                                                        "Exchange of rows with experts on other ranks.")
      .also_called({"moe_token_dispatcher_type", "dispatcher"})
      .acts(bitwise,
            "Sends rows to experts on other ranks one by one, once a rank, once a node, or all to every node. With "
            "auto it takes the cheapest by counts and links, for each layer and microbatch.",
            "node and merge hold the rows that pass through a rank, and take a second hop; all but plain send sums "
            "in the wide type",
            page("moe_exchange"))
      .planned({}, Planned::Where::several_ranks)
      .beside({"mesh.dp=4", "mesh.ep=4", "train.microbatch=1"});
  t.boolean<p, &P::reuse_lists>("parallel.reuse_lists",
                                "The counts of a MoE layer's rows go to the host once a microbatch.")
      .acts(bitwise,
            "Combining and both backward exchanges of a MoE layer use the row counts that the first one copied to "
            "the host.",
            "none; off, the host waits four times a layer and microbatch instead of once", page("reuse_lists"))
      .beside({"mesh.dp=2", "mesh.ep=2"});
  t.number<p, &P::message_rate>("parallel.message_rate", 0, 1e6,
                                "GB/s of a rank to others, by which overlap is estimated; 0: as this machine was "
                                "measured, else by the rates of exchange auto.");
  t.number<p, &P::message_latency_us>("parallel.message_latency_us", 0, 1e9,
                                      "Latency of such a message, in µs; likewise.");
  constexpr auto e = &P::exchange;
  using E = model::Dispatcher;
  t.number<p, e, &E::within_rate>("parallel.within_rate", 1e-6, 1e6,
                                  "GB/s of a rank to others of its node; by which exchange auto estimates.");
  t.number<p, e, &E::across_rate>("parallel.across_rate", 1e-6, 1e6, "GB/s of a node to others; likewise.");
  t.number<p, e, &E::within_latency_us>("parallel.within_latency_us", 0, 1e9,
                                        "Latency of a hop within a node, in µs; likewise.");
  t.number<p, e, &E::across_latency_us>("parallel.across_latency_us", 0, 1e9,
                                        "Latency of a hop across nodes, in µs; likewise.");
}

void expert_settings(Table& t) {
  t.word_or_number("moe.replicas",
                   "Slots of a rank for replicas of other ranks' hot experts, chosen for each layer and "
                   "microbatch; auto: where they pay by the rates of exchange auto.",
                   {{"off", 0}, {"auto", model::Dispatcher::kReplicasByCost}}, 64,
                   [](Choices& c) -> int& { return c.parallel.exchange.replicas; })
      .also_called(
          {"moe_hot_experts", "balanced_moe", "num_redundant_experts", "expert_replicas", "shadow_experts"})
      .acts(reassociates,
            "Once the counts of a layer and microbatch are known, ranks with room take replicas of hot experts and "
            "some of every rank's rows for them. The busiest rank ends sooner. Gradients return to the owner.",
            "room for the replicas of one layer; their weights cross twice a microbatch, their gradients once",
            page("expert_replicas"))
      .tried({"off", "auto", "1", "3"})
      .beside({"mesh.dp=4", "mesh.ep=4", "train.microbatch=1"});
  t.word<&Choices::parallel, &Parallel::exchange, &model::Dispatcher::replicas_from>(
       "moe.replicas_from",
       "Loads by which experts count as hot: counts, those of each microbatch; history, those of the last steps.")
      .acts(reassociates,
            "With history, ranks choose replicas before a microbatch's routers run and fetch them beside the work "
            "before the experts. Rows are split as would have been best for the last steps.",
            "replicas are as good as the next step's load is like the last ones'", page("expert_replicas"))
      .beside({"mesh.dp=4", "mesh.ep=4", "train.microbatch=1", "moe.replicas=2"});
  t.word_or_number("moe.migrate_every",
                   "Steps between decisions to move experts to other ranks. Experts move where that pays within as "
                   "many steps, by the rates of exchange auto.",
                   {{"off", 0}}, 1'000'000, [](Choices& c) -> int& { return c.parallel.exchange.migrate_every; })
      .also_called({"eplb_interval", "expert_rebalance_interval", "moe_rebalance_every"})
      .acts(reassociates,
            "At a step's end experts change ranks, with their weights, masters and moments. They move where by the "
            "loads of the last steps the next ones end sooner by more than the move costs.",
            "a message of each moved expert's state, and as long a step that moves them; room for one expert's "
            "largest tensor",
            page("expert_migration"))
      .tried({"off", "1", "2"})
      .beside({"mesh.dp=4", "mesh.ep=4", "train.microbatch=1"});
  t.number<&Choices::parallel, &Parallel::exchange, &model::Dispatcher::capacity_factor>(
       "moe.capacity_factor", 0, 1e6,
       "Rows that an expert takes of a rank's microbatch, over the even share, such as 1.25; 0: all rows.")
      .also_called(
          {"moe_expert_capacity_factor", "expert_capacity_factor", "train_capacity_factor", "moe_capacity_factor"})
      .acts(changes_maths,
            "Gives each expert so many places for a rank's rows; the choices with the lowest gates beyond them are "
            "dropped, empty places are padded. Sizes are known before the router has run: no host stall, equal "
            "exchanges, equal groups for the experts' products.",
            "rows of padding; dropped choices are not computed", page("capacity"));
  t.number<&Choices::parallel, &Parallel::exchange, &model::Dispatcher::room_factor>(
       "moe.room_factor", 0, 1e6,
       "Rows of experts that a rank has room for, over the even share, such as 2; 0: the host waits for their "
       "counts.")
      .acts(bitwise,
            "Makes room for so many rows before they are counted, so that the host never waits in a step; rows "
            "travel as by the plain exchange. A second round takes what finds no room.",
            "memory for all of the room; on cuda messages of that size", page("room"))
      .tried({64.0, 0.5, 1.0, 1.5})
      .beside({"mesh.dp=2", "mesh.ep=2", "train.microbatch=1"});
  t.boolean<&Choices::parallel, &Parallel::exchange, &model::Dispatcher::second_round>(
       "moe.second_round", "Rows that find no room of moe.room_factor have a second round of the step.")
      .acts(bitwise,
            "Takes rows of a rank that its room has no place for in a second round of the same layer, forward and "
            "backward. Off, they end the run.",
            "memory for the rows of one layer wherever they go; the overflowing rank computes its experts again in "
            "the backward; on cuda messages for all of these rows, always",
            page("room"))
      .beside({"mesh.dp=2", "mesh.ep=2", "train.microbatch=1", "moe.room_factor=64"});
  t.word<&Choices::device, &OnDevice::expert_product>(
       "moe.product",
       "Kernel of the experts' products: grouped, one kernel over experts of any size; batched, one over experts "
       "with equal rows; serial, one expert after the other; auto: the fastest for each product.")
      .also_called({"moe_grouped_gemm", "use_gmm", "moe_use_legacy_grouped_gemm", "experts_implementation"})
      .acts(bitwise,
            "Chooses for each product of experts, by rows, experts and widths, one kernel over experts of any "
            "size, one over experts with equal rows, or one expert after the other.",
            "nothing; on cuda cuBLASLt, where it is found, sums equal groups in an order of its own",
            page("expert_products"))
      .beside({"moe.capacity_factor=1.25"});
}

void memory_settings(Table& t) {
  t.groups<&Memory::recompute>("memory.recompute",
                               "Values that the backward computes again instead of keeping them.",
                               passes::recompute_words(), passes::recompute_groups)
      .also_called(
          {"activation_checkpointing", "gradient_checkpointing", "recompute_granularity", "recompute_modules"})
      .acts(bitwise,
            "The backward computes these values again from kept ones, instead of keeping them since the forward; "
            "with \">1.25\" only where more rows came to a layer's experts than 1.25 times their even share.",
            "the ops run twice; gathers and exchanges send twice", page("recompute"))
      .planned({"norm, activation", "medium", "moe", "full"});
  t.groups<&Memory::offload>("memory.offload", "Values that wait for the backward on the host.",
                             passes::offload_words(), passes::offload_groups)
      .also_called({"cpu_offloading", "activation_offload", "offload_activations"})
      .acts(bitwise, "These values wait for the backward on the host; those that could not return in time stay.",
            "two copies of each beside the computation, and the host's memory", page("offload"))
      .planned({"input", "layer", "input, layer"}, Planned::Where::own_memory);
  t.word<&Choices::memory, &Memory::optimizer>(
       "memory.optimizer", "Place of master weights and moments, and the processor that updates them.")
      .also_called({"optimizer_cpu_offload", "offload_optimizer"})
      .acts(
          bitwise,
          "swap keeps master weights and moments on the host, and slices of them stream through three slots on the "
          "device while they are updated; mapped keeps the moments there, and updates them where they lie; host "
          "sends gradients there, the host's processor updates, and weights come back; auto chooses by cost.",
          "swap: the state crosses the link to the host once each way a step, and takes the host's memory; mapped "
          "holds up the device meanwhile; host: gradients cross out, weights in, and the host sweeps over its "
          "memory",
          page("optimizer_state"))
      .planned({"swap", "mapped", "host"}, Planned::Where::own_memory)
      .residency()
      .tried({"device", "swap", "mapped", "host"});
  t.groups<&Memory::weights>(
       "memory.weights",
       "Layers whose weights lie on the host: words, ranges of layers, all; auto: those that come in time.",
       passes::residency_words(), passes::residency_groups, "device")
      .also_called({"param_offload", "offload_params", "weight_offload", "offload_weights"})
      .acts(bitwise,
            "These weights lie on the host, and a copy of each is on the device while a microbatch uses it; auto: "
            "those that the link brings in time.",
            "a copy for the forward and one for the backward of every microbatch, and the host's memory",
            page("resident_weights"))
      .planned({"auto", "all"}, Planned::Where::own_memory)
      .residency()
      .tried({"auto", "all", "experts, attention:1"});
  t.groups<&Memory::gradients>("memory.gradients",
                               "Weights whose sums of gradients lie on the host; the words of memory.weights.",
                               passes::residency_words(), passes::residency_groups, "device")
      .also_called({"gradient_offload", "offload_gradients", "grad_offload"})
      .acts(bitwise,
            "These sums of gradients lie on the host, and each is on the device while a microbatch adds to it; "
            "with auto those that the link brings and takes in time.",
            "a copy each way for every microbatch, fp32, and the host's memory", page("resident_weights"))
      .planned({"auto", "all"}, Planned::Where::own_memory)
      .residency()
      .tried({"auto", "all", "experts, attention:1"});
  t.word<&Choices::memory, &Memory::master>("memory.master", "Form of the fp32 master of a bf16 weight.")
      .also_called({"reuse_fp32_param"})
      .acts(bitwise, "split keeps a master as the bf16 weight and the 16 bits that it lacks, 2 bytes instead of 4.",
            "none; where weights are packed, on one rank, nothing is saved", page("split_master"))
      .planned({"split"}, Planned::Where::narrow_weights)
      .residency();
  t.bytes_or_share<&Memory::budget_bytes, &Memory::budget_share>(
       "memory.budget",
       "Bytes of a rank's device that a step stays within for any routing, or a share of its memory, such as "
       "\"80%\"; 0: no budget.")
      .acts(bitwise,
            "Chooses for each stage what the backward computes again and beyond how many rows. On a device with a "
            "memory of its own it also chooses what goes to the host. A rank's arena then stays within these bytes "
            "for any routing, and the predicted step is the shortest found; keys that are set stay as they are.",
            "what is chosen costs", page("memory_budget"))
      .tried({int64_t{0}});
  t.number<&Choices::memory, &Memory::crowding>(
      "memory.crowding", 0, 1e6,
      "Load that memory.budget has room for, in times the even share of rows; 0: any routing.");
  t.number<&Choices::memory, &Memory::host_rate>(
      "memory.host_rate", 0, 1e6,
      "GB/s between device and host, by which offload is estimated; 0: usual for the backend.");
  t.number<&Choices::memory, &Memory::update_rate>(
      "memory.update_rate", 0, 1e6,
      "GB/s of the host's processor to its memory, read and written together, by which memory.optimizer auto "
      "estimates; 0: usual for the backend.");
}

void fusion_settings(Table& t) {
  t.fusion("norm", reassociates,
           "Adds the residual and normalises in one op; the residual's gradient joins inside the norm's.",
           "none in memory; one pass less over the hidden state each way", page("fusions"));
  t.fusion("swiglu", reassociates, "Computes silu(gate) * up in one op straight from the joint projection.",
           "saves three activations of the MLP's width; the backward computes silu again", page("fusions"));
  const std::vector<std::string> biased{"model.attention=grouped", "model.attention_bias=all",
                                        "model.mlp_bias=true"};
  t.fusion("bias_swiglu", reassociates, "Adds the bias of the joint projection inside SwiGLU.",
           "none; one pass less over the MLP's widest activation", page("fusions"))
      .as_switch->beside = biased;
  t.fusion("gelu", reassociates, "Adds the bias of an MLP's first product inside GELU.",
           "none; one pass less over the MLP's activation", page("fusions"))
      .as_switch->beside = {"model.activation=gelu_tanh", "model.mlp_bias=true"};
  t.fusion("bias", reassociates,
           "Adds a bias inside the product before it, and sums its gradient with the weight's.",
           "none; one pass less over the product each way", page("fusions"))
      .as_switch->beside = biased;
  t.fusion("dropout_add", reassociates, "Adds a bias, drops and adds to the residual stream in one op.",
           "none; two passes less over the hidden state", page("fusions"))
      .as_switch->beside = {"model.attention=grouped", "model.attention_bias=all", "model.mlp_bias=true",
                            "model.residual_dropout=0.25"};
  t.fusion("rope", reassociates, "Rotates queries and the shared key and assembles all keys and values in one op.",
           "none; saves copies of queries and of the rotary key", page("fusions"));
  t.fusion("router", reassociates, "Scores, top-k choice and gate weights in one op.", "none; fewer small ops",
           page("fusions"));
  t.fusion("combine", reassociates,
           "Adds the shared expert's output while the routed rows are summed, so that the sum is rounded once.",
           "none; saves one activation of hidden size", page("fusions"));
  t.fusion("loss", reassociates,
           "Output head, cross-entropy and both their gradients in one sweep over blocks of rows.",
           "never holds tokens x vocabulary; the head's weight gradient runs together with the input gradient",
           page("fusions"));
  t.fusion("adamw", bitwise, "The optimizer writes the rounded copy of the weight that the kernels read.",
           "none; one pass less over the weights", page("fusions"));
}

}  // namespace

const std::vector<Setting<Choices>>& settings() {
  static const std::vector<Setting<Choices>> all = [] {
    Table t;
    train_settings(t);
    adapter_settings(t);
    device_settings(t);
    mesh_settings(t);
    parallel_settings(t);
    expert_settings(t);
    memory_settings(t);
    fusion_settings(t);
    return t.take();
  }();
  return all;
}

}  // namespace heddle::plan
