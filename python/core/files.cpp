// Tokenizers, token files, checkpoints and safetensors, read and checked by the engine's own readers.
#include <algorithm>
#include <filesystem>

#include "heddle/data/token_file.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/data/tokenizer/tokenizer.h"
#include "heddle/formats/safetensors.h"
#include "heddle/train/checkpoint.h"
#include "python/core/core.h"
#include "python/core/guarded.h"

namespace heddle::core {

struct Tokenizer::Held {
  data::Tokenizer tokenizer;
};

Tokenizer::Tokenizer(const std::string& path)
    : held_(guarded(
          [&] { return std::unique_ptr<Held>(new Held{data::Tokenizer(data::read_tokenizer(path), path)}); })) {}
Tokenizer::~Tokenizer() = default;

int32_t Tokenizer::vocabulary() const { return held_->tokenizer.vocabulary(); }
int32_t Tokenizer::end_of_text() const { return held_->tokenizer.end_of_text(); }

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool added) const {
  return guarded([&] {
    return data::Encoder(held_->tokenizer)
        .encode(text, added ? data::AddedTokens::parse : data::AddedTokens::plain);
  });
}

std::vector<int32_t> Tokenizer::encode_document(std::string_view text) const {
  return guarded([&] {
    std::vector<int32_t> ids;
    data::Encoder(held_->tokenizer).encode_document(text, ids);
    return ids;
  });
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids) const {
  return guarded([&] { return held_->tokenizer.decode(ids); });
}

TokenFileLayout token_file_layout(const std::string& prefix) {
  return guarded([&] {
    const data::TokenFile file(prefix);
    TokenFileLayout layout;
    layout.bin_path = file.bin_path();
    layout.documents = file.documents();
    layout.tokens = file.tokens();
    if (file.tokens() > 0)
      layout.id_bytes =
          static_cast<int>(static_cast<int64_t>(std::filesystem::file_size(file.bin_path())) / file.tokens());
    if (file.has_weights()) {
      layout.weights_path = prefix + ".weights";
      layout.weight_bytes = file.has_any_weights() ? 4 : 1;
    }
    return layout;
  });
}

std::vector<int64_t> token_file_begins(const std::string& prefix) {
  return guarded([&] {
    const data::TokenFile file(prefix);
    std::vector<int64_t> begins(static_cast<size_t>(file.documents()) + 1);
    file.document_begins(0, begins);
    return begins;
  });
}

struct Checkpoint::Held {
  train::Checkpoint checkpoint;
};

Checkpoint::Checkpoint(const std::string& path)
    : held_(guarded([&] { return std::unique_ptr<Held>(new Held{train::open_checkpoint(path)}); })) {}
Checkpoint::~Checkpoint() = default;

std::string Checkpoint::path() const { return held_->checkpoint.path(); }
int64_t Checkpoint::step() const { return held_->checkpoint.state().step; }

std::vector<Checkpoint::Tensor> Checkpoint::tensors() const {
  std::vector<Tensor> all;
  for (const train::SavedTensor& tensor : held_->checkpoint.tensors()) {
    all.push_back({tensor.name, std::string(formats::name_of(tensor.type)), tensor.shape,
                   tensor.elements() * formats::size_of(tensor.type)});
  }
  return all;
}

void Checkpoint::read(const std::string& name, void* into) const {
  guarded([&] {
    const train::SavedTensor& tensor = held_->checkpoint.at(name);
    tensor.copy(0, tensor.elements(), into);
  });
}

std::vector<TensorPlace> tensors_in(const std::string& path) {
  return guarded([&] {
    std::vector<std::string> files{path};
    if (std::filesystem::is_directory(path)) {
      files.clear();
      for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(path))
        if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
      std::sort(files.begin(), files.end());
      if (files.empty()) config_error("{}: no file of it ends in .safetensors", path);
    }
    std::vector<TensorPlace> places;
    for (const std::string& name : files) {
      const formats::SafetensorsFile file(name);
      for (const formats::StoredTensor& tensor : file.tensors()) {
        places.push_back({tensor.name, std::string(formats::name_of(tensor.type)), tensor.shape, name,
                          tensor.bytes.data() - file.header().data(), static_cast<int64_t>(tensor.bytes.size())});
      }
    }
    return places;
  });
}

}  // namespace heddle::core
