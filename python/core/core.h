// The engine as a shared library, libheddle_core, which the Python module and the program of the wheel share.
//
// Every function reports what goes wrong as a Failure. All memory that is returned belongs to the caller; views
// into a class belong to its object.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#define HEDDLE_CORE_API __attribute__((visibility("default")))

namespace heddle::core {

/// An error with the message of the program `heddle`, without its leading "heddle: ".
class HEDDLE_CORE_API Failure : public std::exception {
 public:
  enum class Kind : uint8_t { input, bug, system, memory, stopped };  // `input`: the user's own
  Failure(Kind kind, std::string text);
  ~Failure() override;
  const char* what() const noexcept override { return text_.c_str(); }
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
  std::string text_;
};

/// The version of this build, as "0.1.0".
HEDDLE_CORE_API std::string version();

/// The program `heddle`: runs its command line on the standard streams and returns the exit status.
HEDDLE_CORE_API int run_program(int count, char** arguments);

/// Functions that learn of a command while it works. Any thread may call them, several at once.
struct Listener {
  /// A line that the program would print on standard error.
  std::function<void(std::string_view line)> line;
  /// The work under way and its share that is done, 0 to 1; negative: unknown.
  std::function<void(std::string_view what, double share)> progress;
  /// A training step: its line of the metrics log, a JSON object. False ends the run after it.
  std::function<bool(std::string_view json)> step;
};

struct Answer {
  int status = 0;    // the exit status of the program
  std::string text;  // what the program prints on standard output
};

/// Runs a command of the program in this process, such as {"search", "--model", "DeepSeek-V3", …}. One runs at a
/// time: a second call waits. Throws Failure.
HEDDLE_CORE_API Answer run_command(const std::vector<std::string>& arguments, const Listener& listener);
/// Asks the command that runs to end: `gently`, with what it has (a run: after its step, with a checkpoint), or as
/// soon as it can, by a Failure of kind `stopped`.
HEDDLE_CORE_API void stop_command(bool gently);

/// A tokenizer file or a folder that keeps one. Immutable: threads may share it.
class HEDDLE_CORE_API Tokenizer {
 public:
  explicit Tokenizer(const std::string& path);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  int32_t vocabulary() const;   // one more than the largest id
  int32_t end_of_text() const;  // -1: none
  /// The ids of a text. `added`: contents of added tokens are read as those tokens.
  std::vector<int32_t> encode(std::string_view text, bool added) const;
  /// A document as training reads it, with the end-of-text token last.
  std::vector<int32_t> encode_document(std::string_view text) const;
  /// The bytes of ids, which need be no whole UTF-8.
  std::string decode(const std::vector<int32_t>& ids) const;

 private:
  struct Held;
  std::unique_ptr<Held> held_;
};

/// The checked layout of a token file, PREFIX.bin with PREFIX.idx.
struct TokenFileLayout {
  std::string bin_path, weights_path;  // "": ids have no weights
  int64_t documents = 0, tokens = 0;
  int id_bytes = 4, weight_bytes = 0;  // 2: u16, 4: i32; weights: 1 is u8, 4 is f32
};
HEDDLE_CORE_API TokenFileLayout token_file_layout(const std::string& prefix);
/// Position of the first token of each document, then the number of tokens: documents + 1 numbers.
HEDDLE_CORE_API std::vector<int64_t> token_file_begins(const std::string& prefix);

/// A checkpoint of a run: a step's folder, or a folder of them, of which the newest whole one is taken. All bytes
/// are compared with their checksums. Tensors are whole, however many ranks have written them.
class HEDDLE_CORE_API Checkpoint {
 public:
  struct Tensor {
    std::string name, type;  // type as in safetensors: "F32", "BF16", …
    std::vector<int64_t> shape;
    int64_t size_bytes = 0;
  };
  explicit Checkpoint(const std::string& path);
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  std::string path() const;
  int64_t step() const;  // steps done
  std::vector<Tensor> tensors() const;
  /// Copies a tensor's bytes, row-major, into `into`, which has its size_bytes.
  void read(const std::string& name, void* into) const;

 private:
  struct Held;
  std::unique_ptr<Held> held_;
};

/// The checked place of a tensor in a safetensors file.
struct TensorPlace {
  std::string name, type;  // type as in the file: "F32", "BF16", …
  std::vector<int64_t> shape;
  std::string path;
  int64_t offset_bytes = 0, size_bytes = 0;
};
/// Tensors of a safetensors file, or of all such files of a folder.
HEDDLE_CORE_API std::vector<TensorPlace> tensors_in(const std::string& path);

}  // namespace heddle::core
