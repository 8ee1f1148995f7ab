// What glibc got after 2.28 and compilers or their libraries call, for libraries that run with older ones
// (tools/old_glibc.py). Everything here is hidden: it serves the library it is linked into.
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>

extern "C" {

// 2.30: a wait until a time of any clock, which std::condition_variable::wait_for asks for. As libstdc++ did
// before, it waits as long by the clock of the day: who calls it looks at its own clock again.
int pthread_cond_clockwait(pthread_cond_t* signal, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  constexpr int64_t kSecond = 1'000'000'000;
  const auto ns = [](const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; };
  timespec now, today;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &today) != 0) return EINVAL;
  const int64_t left = ns(*until) - ns(now);
  const int64_t end = ns(today) + (left > 0 ? left : 0);
  const timespec by_day{.tv_sec = end / kSecond, .tv_nsec = end % kSecond};
  return pthread_cond_timedwait(signal, mutex, &by_day);
}

// 2.32: whether one thread has been all there was, with which libstdc++ saves atomic operations.
char __libc_single_threaded = 0;

// 2.33: before it a caller named the layout of `struct stat`.
int __xstat(int layout, const char* path, struct stat* status);
int __lxstat(int layout, const char* path, struct stat* status);
int __fxstat(int layout, int file, struct stat* status);
int __fxstatat(int layout, int folder, const char* path, struct stat* status, int flags);
#ifdef __x86_64__
static constexpr int kLayout = 1;
#else
static constexpr int kLayout = 0;
#endif
int stat(const char* path, struct stat* status) noexcept { return __xstat(kLayout, path, status); }
int lstat(const char* path, struct stat* status) noexcept { return __lxstat(kLayout, path, status); }
int fstat(int file, struct stat* status) noexcept { return __fxstat(kLayout, file, status); }
int fstatat(int folder, const char* path, struct stat* status, int flags) noexcept {
  return __fxstatat(kLayout, folder, path, status, flags);
}
// On processors of 64 bits both layouts are one.
static_assert(sizeof(struct stat) == sizeof(struct stat64));
int stat64(const char* path, struct stat64* status) noexcept {
  return stat(path, reinterpret_cast<struct stat*>(status));
}
int lstat64(const char* path, struct stat64* status) noexcept {
  return lstat(path, reinterpret_cast<struct stat*>(status));
}
int fstat64(int file, struct stat64* status) noexcept {
  return fstat(file, reinterpret_cast<struct stat*>(status));
}
int fstatat64(int folder, const char* path, struct stat64* status, int flags) noexcept {
  return fstatat(folder, path, reinterpret_cast<struct stat*>(status), flags);
}

// 2.36: random bits for std::random_device.
uint32_t arc4random() noexcept {
  uint32_t drawn;
  if (getentropy(&drawn, sizeof drawn) != 0) std::abort();
  return drawn;
}

}  // extern "C"
