#include "heddle/base/failure.h"

#include <new>

namespace heddle {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return "out of memory on the host";
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception of no known kind";
  }
}

std::exception_ptr with_place(const std::exception_ptr& error, const std::string& where) {
  const auto text = [&](const std::exception& known) { return fmt::format("{} ({})", known.what(), where); };
  try {
    std::rethrow_exception(error);
  } catch (const PeerError&) {
    return error;
  } catch (const SystemError& known) {
    SystemError placed(known.code, text(known));
    placed.rank = known.rank;
    return std::make_exception_ptr(placed);
  } catch (const InternalError& known) {
    return std::make_exception_ptr(InternalError(text(known)));
  } catch (const ConfigError& known) {
    return std::make_exception_ptr(ConfigError(text(known)));
  } catch (const std::bad_alloc&) {
    return std::make_exception_ptr(Error(fmt::format("{} ({})", text_of(error), where)));
  } catch (...) {
    return error;
  }
}

}  // namespace heddle
