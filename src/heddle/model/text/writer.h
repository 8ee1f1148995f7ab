// Writes forward ops and their parameters: what every part of a model is made of. Straight-line and unfused.
//
// Shape legend, here and in the parts: T tokens of a microbatch on this rank, and U those of its tp group. U = T
// without tensor parallelism. H hidden, E experts, k chosen, R = T·k rows, S rows received, F width.
//
// Tensor parallel (Korthikanti et al., arXiv 2205.05198): between the blocks each rank of tp has its own T tokens.
// A block gathers them, works on its heads or its part of the width, and scatters the sum back.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/model/model_config.h"
#include "heddle/model/op_part.h"
#include "heddle/model/text/rank_spec.h"
#include "heddle/model/text/rank_text.h"

namespace heddle::model {

constexpr auto kAttention = Parameter::Part::attention;

class Writer {
 public:
  Writer(const ModelConfig& config, const RankSpec& spec);

  const ModelConfig& config() const { return config_; }
  const RankSpec& spec() const { return spec_; }
  int64_t runs() const { return runs_; }      // sequences of a microbatch
  int64_t whole() const { return whole_; }    // positions of each
  int64_t local() const { return local_; }    // of these, those that a tp group has
  int64_t tokens() const { return tokens_; }  // of this rank
  Dtype wide() const { return wide_; }        // of sums, norms and the router
  int64_t tp() const { return spec_.mesh.of(ir::Axis::tp); }
  int64_t cp() const { return spec_.mesh.of(ir::Axis::cp); }
  /// The neighbours of cp that have the same rows of each sequence for attention, and a part of its heads each.
  int64_t head_ranks() const {
    return spec_.context == Context::ulysses ? cp() : spec_.context == Context::hybrid ? spec_.context_inner : 1;
  }
  /// The runs of such neighbours, which have different rows.
  int64_t row_ranks() const { return cp() / head_ranks(); }
  /// The neighbours among whom keys go round before they go on to the next run; 1: to any rank alike.
  int64_t inner_ring() const { return spec_.context == Context::double_ring ? spec_.context_inner : 1; }
  bool predicts() const { return ir::ends_in_logits(spec_.purpose); }
  bool decodes() const { return spec_.purpose == ir::Purpose::decode; }
  bool caches() const { return decodes() || spec_.purpose == ir::Purpose::prefill; }
  int64_t depths() const { return predicts() ? 0 : config_.num_nextn_predict_layers; }
  /// True if layers of further tokens read the states that the head reads, behind its norm. Of streams they read
  /// each. Texts that only evaluate have the norm in the same stage.
  bool hands_on_normed() const { return config_.num_nextn_predict_layers > 0 && !config_.has_streams(); }

  /// Chunks are written in order; what follows belongs to the new one. Returns its index.
  int begin_chunk(const ir::Chunk& microbatches);
  /// Begins a layer: what follows belongs to it, −1 to none. Values get its number in front of their names.
  void begin_layer(int64_t layer) { layer_ = static_cast<int>(layer); }
  int layer() const { return layer_; }
  RankText take() { return std::move(text_); }

  /// A part of the layer, to which everything written while it lives belongs.
  class Part {
   public:
    Part(Writer& writer, OpPart part) : writer_(writer), before_(writer.part_) { writer.part_ = part; }
    ~Part() { writer_.part_ = before_; }
    Part(const Part&) = delete;

   private:
    Writer& writer_;
    OpPart before_;
  };

  std::vector<ir::ValueId> op(std::string_view kind, std::vector<ir::ValueId> in, std::vector<std::string> names,
                              ir::Attributes attributes = {}, std::string group = "",
                              std::vector<ir::ValueId> updates = {}, std::vector<ir::ValueId> mentions = {});
  const ir::Value& value(ir::ValueId id) const { return text_.listing.value(id); }
  int64_t columns(ir::ValueId id) const { return value(id).shape.back().count; }

  /// A value of an input, which the listing takes from now on.
  ir::ValueId load(const std::string& name, const ir::Input& input);
  /// An input of the microbatch, a number a row: `attributes` with `what` it is (model/microbatch_inputs.h).
  ir::ValueId load_rows(const std::string& name, std::string_view what, int64_t rows,
                        ir::Attributes attributes = {}, Dtype dtype = Dtype::i32);

  /// Rows of this rank to those of its tp group, and sums over the group back to this rank's rows.
  ir::ValueId gather(ir::ValueId x_T, const std::string& name);
  ir::ValueId scatter_sum(ir::ValueId x_U, const std::string& name);
  /// The name of a sum that scatter_sum takes.
  std::string partial(const std::string& name) const { return tp() == 1 ? name : name + "_part"; }

  /// `shape` is the whole tensor's; what is added is this rank's. One that the rank has already serves all its
  /// uses.
  ir::ValueId parameter(Parameter p, Dtype dtype, std::vector<int64_t> shape);
  ir::ValueId matrix(Parameter::Part part, const std::string& name, int64_t n, int64_t k,
                     std::vector<ReleasedPart> released = {}, std::vector<Cut> cuts = {});

  /// y + a vector of its columns, `name`, whose start is 0. `n`: of the whole; cut as `cuts` say.
  ir::ValueId add_bias(ir::ValueId y, Parameter::Part part, const std::string& name, int64_t n,
                       const std::string& out, std::vector<ReleasedPart> released = {}, std::vector<Cut> cuts = {});

  /// prefix + name is what the weight is called, `name` what comes out.
  ir::ValueId linear(ir::ValueId x, Parameter::Part part, const std::string& prefix, const std::string& name,
                     int64_t n);
  /// Output features cut among tp; x is of the whole group.
  ir::ValueId column_linear(ir::ValueId x_U, Parameter::Part part, const std::string& prefix,
                            const std::string& name, int64_t n, bool bias = false);
  /// Input features cut among tp, the sum scattered to each rank's rows; a bias is added to it after that.
  ir::ValueId row_linear(ir::ValueId x_U, Parameter::Part part, const std::string& prefix, const std::string& name,
                         int64_t k, const std::string& out, bool bias = false);

  /// Around a layer, of the model's kind; `name` is its gain's and ends in "weight", a bias, if any, stands beside
  /// it.
  ir::ValueId norm(ir::ValueId x, const std::string& name, const std::string& out);
  /// factor · x.
  ir::ValueId scaled(ir::ValueId x, double factor, const std::string& name);

  /// The root-mean-square norm of each run of `width` columns by itself.
  ir::ValueId norm(ir::ValueId x, const std::string& name, const std::string& out, double epsilon, int64_t width);

  /// The root-mean-square norm of each run of `width` columns, without a gain.
  ir::ValueId unit_norm(ir::ValueId x, const std::string& out, int64_t width);

  /// Dropout of x [T, H] at one place of a layer, if the listing trains and the model drops; else x.
  enum class Site : uint8_t { embedding, attention, mlp };
  ir::ValueId dropout(ir::ValueId x, Site site, const std::string& name);

  /// Says how the weight of that name, and its bias, follow the factors of the heads' logits.
  void scales_with_heads(const std::string& prefix, std::string_view name, const HeadRows& heads);

  /// A sum that lasts to the end of the step, and one loss added to it.
  ir::ValueId statistic(const Statistic& what, const std::vector<int64_t>& shape, Dtype dtype = Dtype::f64);
  void keep(ir::ValueId loss, const Statistic& what);

  /// The factors of the loss terms and the rotary table of the chunk that is being written.
  ir::ValueId scales() const { return scales_; }
  /// The rotary table of the layer that is being written.
  ir::ValueId rope_table() const { return turns_by_window() ? window_rope_ : rope_; }
  int64_t rotary_width() const {
    return turns_by_window() ? config_.with_rotation_of_windows().rotary_width() : config_.rotary_width();
  }
  void load_scales();
  void load_rope_table();
  /// The rotary table of this rank's own rows, which are a part of its tp group's; only where the model selects
  /// keys.
  ir::ValueId own_rope_table() const { return own_rope_; }
  /// The rotary table of so many entries, each of so many tokens, of layers without a window alone.
  ir::ValueId rope_table_of_entries(int64_t entries, int64_t tokens);

  /// The keys that the newest layer with an indexer has chosen, for layers that share them.
  ir::ValueId chosen() const { return chosen_; }
  void set_chosen(ir::ValueId chosen) { chosen_ = chosen; }

  /// Keys, with their positions, and values of a layer, and where a cache keeps them. Layers that share them take
  /// those of the newest layer of their kind, with a window or without.
  struct KeysValues {
    ir::ValueId k = ir::none, v = ir::none, k_cache = ir::none, v_cache = ir::none;
  };
  const KeysValues& kept_keys() const { return kept_keys_[config_.has_window(layer_) ? 1 : 0]; }
  void keep_keys(const KeysValues& made) { kept_keys_[config_.has_window(layer_) ? 1 : 0] = made; }

  /// A further embedding of this rank's rows for each layer (model.layer_embedding_size); empty without.
  const std::vector<ir::ValueId>& layer_rows() const { return layer_rows_; }
  void set_layer_rows(std::vector<ir::ValueId> rows) { layer_rows_ = std::move(rows); }

  /// The first position that each position of the microbatch's sequences may see; none where documents are not
  /// apart.
  ir::ValueId starts() const { return starts_; }
  /// It is the same for attention in the layer that is being written, whose chunks may begin behind that.
  ir::ValueId seen_from() const {
    return chunk_starts_ != ir::none && config_.chunk_of(layer_) > 0 ? chunk_starts_ : starts_;
  }
  /// True where ranks of cp share the sequences of recurrences and convolutions: each has two pieces of each.
  bool has_pieces() const { return cp() > 1 && spec_.context != Context::ulysses; }
  /// Starts of this rank's own rows, counted from the first of their piece; starts() where it has no pieces.
  ir::ValueId piece_starts() const { return has_pieces() ? piece_starts_ : starts_; }
  void load_starts();
  bool parts_documents() const { return spec_.documents_apart || spec_.document_end >= 0; }

  /// The position of each of this rank's rows, for a table of learned ones.
  ir::ValueId positions() const { return positions_; }
  void load_positions();
  /// The factor on each row of queries, by its position; none where none of this chunk's layers has one. Loads them
  /// for `layers` from `first` on, and for as many depths.
  ir::ValueId query_scales() const { return query_scales_; }
  void load_query_scales(int64_t first, int64_t layers, int64_t depths);
  /// Loads what dropout draws from, where it is wanted in this chunk, which attends or not.
  void load_dropout(bool attends);
  /// True if this listing drops probabilities of attention. Then the token of each row of queries, and the key.
  bool drops_probabilities() const { return trains_with(config_.attention_dropout); }
  std::array<ir::ValueId, 2> drawn_queries() const { return drawn_queries_; }
  int64_t site(Site at) const { return (layer_ + 1) * kSites + static_cast<int64_t>(at); }

  /// The token ids of this rank's rows, for layers that choose experts by them. Loads them where one of the layers
  /// from `first` on does.
  ir::ValueId ids_of_rows() const { return ids_of_rows_; }
  void load_ids_of_rows(int64_t first, int64_t layers);

  /// The places of this listing's rows in the cache. Rows are written there, into columns from `first` on of the
  /// layer's cache of that name, which is `width` wide.
  ir::ValueId places() const { return places_; }
  void load_places();
  /// `keys`: rows of it a sequence; 0: one a position.
  ir::ValueId cache(const std::string& name, int64_t width, int64_t keys = 0);
  void keep_rows(ir::ValueId x_TW, ir::ValueId cache, int64_t first = 0);
  /// A cache of `width` numbers for each sequence, which a recurrent layer goes on from.
  ir::ValueId cache_of_sequences(const std::string& name, int64_t width, Dtype dtype);

 private:
  const ModelConfig& config_;
  const RankSpec& spec_;
  RankText text_;
  int64_t runs_ = 0, whole_ = 0, local_ = 0, tokens_ = 0;
  Dtype wide_ = Dtype::f32;
  int layer_ = -1, chunk_ = 0;
  OpPart part_ = OpPart::none;
  ir::ValueId scales_ = ir::none, rope_ = ir::none, window_rope_ = ir::none, places_ = ir::none, starts_ = ir::none,
              chunk_starts_ = ir::none, piece_starts_ = ir::none, positions_ = ir::none, query_scales_ = ir::none;
  bool turns_by_window() const { return config_.has_window_rotation() && config_.has_window(layer_); }
  ir::Attributes attributes_of_positions(int64_t tp) const;
  void load_chunk_starts();
  ir::ValueId constant(const std::string& name, int64_t width);
  std::pair<ir::ValueId, ir::ValueId> gathered_{ir::none, ir::none};  // the last rows that were, and the group's
  ir::ValueId rope_table_of(const ModelConfig& rotation, const char* name, int64_t parts = 1);
  ir::ValueId own_rope_ = ir::none, chosen_ = ir::none, ids_of_rows_ = ir::none;
  std::array<KeysValues, 2> kept_keys_;
  std::vector<ir::ValueId> layer_rows_;
  static constexpr int64_t kSites = 3;
  bool trains_with(double rate) const { return rate > 0 && spec_.purpose == ir::Purpose::train; }
  ir::ValueId drawn_tokens_ = ir::none, drawn_key_ = ir::none;
  std::array<ir::ValueId, 2> drawn_queries_{ir::none, ir::none};
};

}  // namespace heddle::model
