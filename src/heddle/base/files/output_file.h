// Files that are written, and tell at once when the disk refuses.
//
// Open::replace  appears whole or not at all: written beside its place, then renamed by `commit`. Gone unless
//                committed; what stood at the path before still stands then.
// Open::begin    written at its place from its start on; unbuffered: what `write` returned from has reached the
// Open::append   kernel and survives the end of the process.
//
// Every call is checked; a failure is a SystemError with the path and errno's text. Temporary names are random and
// the file is made by this call or not at all. No link is followed at the end of a path (a link is replaced, or
// refused by begin and append). So nobody who may write into the folder chooses what is overwritten.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

class OutputFile {
 public:
  enum class Open : uint8_t { replace, begin, append };
  /// Readers of the file, as far as the user's mask allows: all, or the owner alone.
  enum class Access : uint8_t { all, owner };
  /// The wait of `commit`: until file and name are on disk, or none. Without, a loss of power may leave an empty
  /// file.
  enum class Flush : uint8_t { to_disk, to_system };

  explicit OutputFile(std::string path, Open how = Open::replace, Access access = Access::all,
                      Flush flush = Flush::to_disk);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  void write(const void* data, size_t size_bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  template <class T>
  void write_number(T value) {
    write(&value, sizeof value);
  }

  /// For begin and append. Writes like write, but a failure takes back the part that was written, so that the file
  /// ends where it did before.
  void write_whole(std::string_view bytes);
  /// For begin and append. Cuts the file to `size_bytes`; the next write goes there.
  void truncate(int64_t size_bytes);

  /// Hands what is buffered to the system and waits until it is on disk. A replacing file stays temporary.
  void sync();
  /// For replace. Closes, and renames to the path. Nothing may be written after.
  void commit();
  /// For begin and append. Closes and reports what the file system held back until now. Later calls do nothing.
  void close();

  /// Bytes that were written, and with append those that were there before.
  int64_t size_bytes() const { return size_bytes_; }
  const std::string& path() const { return path_; }

 private:
  void put(const char* bytes, size_t size_bytes);
  void flush();
  [[noreturn]] void fail(const char* doing, int code) const;

  std::string path_, temporary_;  // temporary_: of replace alone
  bool to_disk_;
  int file_ = -1;
  std::vector<char> buffer_;  // of replace alone
  int64_t size_bytes_ = 0;
};

/// Replaces `path` by a file with this text: readers see the old one or the new one, never a part.
void write_file(const std::string& path, std::string_view text,
                OutputFile::Flush flush = OutputFile::Flush::to_disk);

/// Reads a whole file. ConfigError and SystemError as open_to_read; ConfigError if it is larger than `most_bytes`,
/// SystemError if a read fails.
std::string read_file(const std::string& path, int64_t most_bytes);

/// Waits until the names in a folder are on disk, where its file system can.
void flush_folder(const std::string& path);

/// Takes a file that is on disk out of the system's memory, as far as the system follows: what is read next comes
/// from the disk.
void drop_cached(const std::string& path);

/// A name beside `path` that nobody has and nobody guesses: hidden, and known to is_temporary.
std::string temporary_beside(const std::string& path);
/// True if a name (without folders) is one that temporary_beside gives. A process that was killed leaves such
/// files.
bool is_temporary(std::string_view name);
/// Removes the temporary files and folders in a folder; only for whoever holds it (FolderLock).
void remove_temporaries(const std::string& folder);

}  // namespace heddle
