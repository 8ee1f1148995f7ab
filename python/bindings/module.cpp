// heddle._core: the functions of the shared library for Python. The package `heddle` makes typed objects of them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/command_call.h"
#include "python/core/core.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T>
using Vector = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

// An array that owns these numbers.
template <class T>
Vector<T> array_of(std::vector<T> numbers) {
  auto* kept = new std::vector<T>(std::move(numbers));
  const nb::capsule owner(kept, [](void* held) noexcept { delete static_cast<std::vector<T>*>(held); });
  return Vector<T>(kept->data(), {kept->size()}, owner);
}

nb::tuple answer_of(const heddle::core::Answer& answer) {
  return nb::make_tuple(answer.status, nb::bytes(answer.text.data(), answer.text.size()));
}

nb::tuple shape_of(const std::vector<int64_t>& shape) {
  nb::list sizes;
  for (const int64_t size : shape) sizes.append(size);
  return nb::tuple(sizes);
}

void raise_failure(const std::exception_ptr& error, void* /*payload*/) {
  try {
    std::rethrow_exception(error);
  } catch (const heddle::core::Failure& failure) {
    const nb::object errors = nb::module_::import_("heddle._errors");
    const char* name = failure.kind() == heddle::core::Failure::Kind::input    ? "InputError"
                       : failure.kind() == heddle::core::Failure::Kind::bug    ? "BugError"
                       : failure.kind() == heddle::core::Failure::Kind::memory ? "OutOfMemoryError"
                                                                               : "Error";
    PyErr_SetString(nb::object(errors.attr(name)).ptr(), failure.what());
  }
}

}  // namespace

NB_MODULE(_core, m) {
  namespace core = heddle::core;
  m.doc() = "The engine of Heddle. Use the package heddle, which wraps it.";
  nb::register_exception_translator(raise_failure);

  m.def("version", core::version, "The version of the engine.");
  m.def(
      "run",
      [](const std::vector<std::string>& arguments, const nb::object& line, const nb::object& progress,
         const nb::object& step, bool gently) {
        return answer_of(heddle::python::CommandCall(arguments, line, progress, step, gently).run());
      },
      "arguments"_a, nb::kw_only(), "line"_a = nb::none(), "progress"_a = nb::none(), "step"_a = nb::none(),
      "gently"_a = false,
      "Runs a command of the program in this process, without the GIL.\n\n"
      "arguments: words of the command line. line(text): lines of standard error. progress(what, share): share is "
      "0\n"
      "to 1, negative where unknown. step(json): a training step; a return value of False ends the run.\n"
      "gently: on KeyboardInterrupt let the step under way end and return what there is.\n"
      "Returns the exit status and the bytes of the answer.");

  nb::class_<core::Tokenizer>(m, "Tokenizer", "A tokenizer that was read from a file or a folder.")
      .def(nb::init<const std::string&>(), "path"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("vocabulary", &core::Tokenizer::vocabulary)
      .def_prop_ro("end_of_text", &core::Tokenizer::end_of_text)
      .def(
          "encode",
          [](const core::Tokenizer& tokenizer, std::string_view text, bool added, bool document) {
            std::vector<int32_t> ids;
            {
              const nb::gil_scoped_release released;
              ids = document ? tokenizer.encode_document(text) : tokenizer.encode(text, added);
            }
            return array_of(std::move(ids));
          },
          "text"_a, "added"_a, "document"_a)
      .def(
          "decode",
          [](const core::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
            const std::string bytes = tokenizer.decode(ids);
            return nb::bytes(bytes.data(), bytes.size());
          },
          "ids"_a);

  m.def(
      "token_file_layout",
      [](const std::string& prefix) {
        const core::TokenFileLayout file = core::token_file_layout(prefix);
        return nb::make_tuple(file.bin_path, file.weights_path, file.documents, file.tokens, file.id_bytes,
                              file.weight_bytes);
      },
      "prefix"_a, "bin_path, weights_path, documents, tokens, bytes of an id, bytes of a weight.");
  m.def(
      "token_file_begins", [](const std::string& prefix) { return array_of(core::token_file_begins(prefix)); },
      "prefix"_a, "Position of the first token of each document, then the number of tokens.");
  m.def(
      "tensors_in",
      [](const std::string& path) {
        nb::list places;
        for (const core::TensorPlace& place : core::tensors_in(path)) {
          places.append(nb::make_tuple(place.name, place.type, shape_of(place.shape), place.path,
                                       place.offset_bytes, place.size_bytes));
        }
        return places;
      },
      "path"_a, "(name, type, shape, file, offset in bytes, size in bytes) of each tensor.");

  nb::class_<core::Checkpoint>(m, "Checkpoint", "A checkpoint whose bytes have been compared with its checksums.")
      .def(nb::init<const std::string&>(), "path"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("path", &core::Checkpoint::path)
      .def_prop_ro("step", &core::Checkpoint::step)
      .def("tensors",
           [](const core::Checkpoint& checkpoint) {
             nb::list tensors;
             for (const core::Checkpoint::Tensor& tensor : checkpoint.tensors())
               tensors.append(nb::make_tuple(tensor.name, tensor.type, shape_of(tensor.shape), tensor.size_bytes));
             return tensors;
           })
      .def(
          "read",
          [](const core::Checkpoint& checkpoint, const std::string& name, int64_t size_bytes) {
            std::vector<uint8_t> bytes(static_cast<size_t>(size_bytes));
            {
              const nb::gil_scoped_release released;
              checkpoint.read(name, bytes.data());
            }
            return array_of(std::move(bytes));
          },
          "name"_a, "size_bytes"_a);
}
