// Counts the calls that a program makes into the file system below a folder, and ends it or lets a call fail at the
// Nth: preloaded (LD_PRELOAD) into the program as it is.
//
//   FAIL_FOLDER  absolute path; calls that concern nothing below it are neither counted nor touched
//   FAIL_AT      the number of the call, from 1; 0 or unset: none
//   FAIL_POINT   NAME GLOB: only calls of that name (*: any; one in a folder, such as openat, has the name of the other)
//                on a path below the folder that fits the glob are counted
//   FAIL_HOW     kill: the process ends at the call, of a write after half of it; ENOSPC, EIO: the call fails so and does
//                nothing, of a write after half of it; onwards: all calls that write fail from there on with ENOSPC;
//                always: all calls from there on fail with ESTALE;
//                short: of calls that write alone, the call does half of its work and says so; slow: all calls from
//                there on take FAIL_SLOW_MS longer; once: that call alone does
//   FAIL_ONCE    a file: the process that takes it away is the one that is struck, and all others are not
//   FAIL_LOG     a file that gets a line a call: number, name, path
//   FAIL_CLOCKS  HOST:SECONDS ...: on the host that HEDDLE_HOST names, the clock that people set is so much ahead; beside
//                all of the above
//
// What is counted: whatever makes, changes, flushes, names, removes, locks, opens, reads or closes a file or a folder.
// What the C library calls within itself (stdio) passes by.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum how { KILL, FAIL, FAIL_ON, FAIL_ALL, SHORT, SLOW, SLOW_ONCE };

static const char *folder, *once, *point_glob;
static char point_name[32];
static long at;
static struct timespec slow;
static enum how how;
static int code, log_file = -1;
static long count, ahead_s;

__attribute__((constructor)) static void begin(void) {
  const char *text = getenv("FAIL_AT");
  at = text ? atol(text) : 0;
  text = getenv("FAIL_HOW");
  how = !text || !strcmp(text, "kill") ? KILL
        : !strcmp(text, "onwards")     ? FAIL_ON
        : !strcmp(text, "always")      ? FAIL_ALL
        : !strcmp(text, "short")       ? SHORT
        : !strcmp(text, "slow")        ? SLOW
        : !strcmp(text, "once")        ? SLOW_ONCE
                                       : FAIL;
  code = text && !strcmp(text, "EIO") ? EIO : how == FAIL_ALL ? ESTALE : ENOSPC;
  text = getenv("FAIL_LOG");
  if (text) log_file = (int)syscall(SYS_openat, AT_FDCWD, text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  text = getenv("FAIL_SLOW_MS");
  const long slow_ms = text ? atol(text) : 0;
  slow.tv_sec = slow_ms / 1000;
  slow.tv_nsec = slow_ms % 1000 * 1000000;
  text = getenv("FAIL_POINT");
  const char *space = text ? strchr(text, ' ') : NULL;
  if (space && space - text < (long)sizeof point_name) {
    memcpy(point_name, text, (size_t)(space - text));
    point_glob = space + 1;
  }
  text = getenv("FAIL_CLOCKS");
  const char *host = getenv("HEDDLE_HOST");
  const size_t host_size = host ? strlen(host) : 0;
  for (; text && host_size && *text; text = strchr(text, ' ') ? strchr(text, ' ') + 1 : "") {
    if (!strncmp(text, host, host_size) && text[host_size] == ':') ahead_s = atol(text + host_size + 1);
  }
  folder = getenv("FAIL_FOLDER");
  once = getenv("FAIL_ONCE");
}

// The path of a name given relative to a folder's descriptor, as far as it takes to see where it leads.
static void resolve(int at_folder, const char *name, char *path) {
  path[0] = 0;
  int held = 0, size_of_held = 0;  // "/proc/self/fd/12/step-000001": of a folder that is held open
  if (name && sscanf(name, "/proc/self/fd/%d/%n", &held, &size_of_held) == 1 && size_of_held > 0) {
    at_folder = held;
    name += size_of_held;
  } else if (name && name[0] == '/') {
    snprintf(path, PATH_MAX, "%s", name);
    return;
  }
  char link[64], base[PATH_MAX];
  if (at_folder == AT_FDCWD) {
    snprintf(link, sizeof link, "/proc/self/cwd");
  } else {
    snprintf(link, sizeof link, "/proc/self/fd/%d", at_folder);
  }
  const ssize_t size = syscall(SYS_readlinkat, AT_FDCWD, link, base, sizeof base - 1);
  if (size <= 0) return;
  base[size] = 0;
  if (name) {
    if (snprintf(path, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) path[0] = 0;
  } else {
    snprintf(path, PATH_MAX, "%s", base);
  }
}

// Whether a call is of a name: openat is of open's, as renameat2 is of rename's.
static int is_named(const char *call, const char *name) {
  const size_t size = strlen(name);
  return !strcmp(name, "*") || !strcmp(name, call) ||
         (!strncmp(call, name, size) && (!strcmp(call + size, "at") || !strcmp(call + size, "at2")));
}

// Counts a call. Whether it is to fail; a call at which the process is to end does not come back unless it is a write,
// which does the half of its work first.
static int hit(const char *call, int at_folder, const char *name, int changes, int is_write) {
  if (!folder) return 0;
  char path[PATH_MAX];
  const int before = errno;
  resolve(at_folder, name, path);
  errno = before;
  const size_t size = strlen(folder);
  if (strncmp(path, folder, size) != 0 || (path[size] != '/' && path[size] != 0)) return 0;
  if (how == SHORT && !is_write) return 0;
  if (point_glob && !is_named(call, point_name)) return 0;
  if (point_glob && fnmatch(point_glob, path + size + (path[size] == '/'), 0) != 0) return 0;
  const long number = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
  if (log_file >= 0) {
    char line[PATH_MAX + 64];
    const int length = snprintf(line, sizeof line, "%ld %s %s\n", number, call, path);
    (void)!syscall(SYS_write, log_file, line, (size_t)length);
  }
  const int goes_on = how == FAIL_ON || how == FAIL_ALL || how == SLOW;
  if (at <= 0 || number < at || (!goes_on && number > at)) return 0;
  if (how == FAIL_ON && !changes) return 0;
  if (once && syscall(SYS_unlinkat, AT_FDCWD, once, 0) != 0 && how != SLOW) {
    errno = before;
    return 0;
  }
  if (how == SLOW || how == SLOW_ONCE) {
    nanosleep(&slow, NULL);
    errno = before;
    return 0;
  }
  if (how == KILL && !is_write) _exit(137);
  errno = code;
  return 1;
}

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

#define OPEN_CHANGES(flags) (((flags) & (O_CREAT | O_TRUNC)) != 0)
#define MODE_OF(flags)                              \
  mode_t mode = 0;                                  \
  if ((flags) & (O_CREAT | __O_TMPFILE)) {          \
    va_list more;                                   \
    va_start(more, flags);                          \
    mode = va_arg(more, mode_t);                    \
    va_end(more);                                   \
  }

int open(const char *name, int flags, ...) {
  MODE_OF(flags)
  return hit("open", AT_FDCWD, name, OPEN_CHANGES(flags), 0) ? -1 : REAL(open)(name, flags, mode);
}
int open64(const char *name, int flags, ...) {
  MODE_OF(flags)
  return hit("open", AT_FDCWD, name, OPEN_CHANGES(flags), 0) ? -1 : REAL(open64)(name, flags, mode);
}
int openat(int at_folder, const char *name, int flags, ...) {
  MODE_OF(flags)
  return hit("openat", at_folder, name, OPEN_CHANGES(flags), 0) ? -1 : REAL(openat)(at_folder, name, flags, mode);
}
int openat64(int at_folder, const char *name, int flags, ...) {
  MODE_OF(flags)
  return hit("openat", at_folder, name, OPEN_CHANGES(flags), 0) ? -1 : REAL(openat64)(at_folder, name, flags, mode);
}
FILE *fopen64(const char *name, const char *how_to) {
  return hit("fopen", AT_FDCWD, name, how_to[0] != 'r', 0) ? NULL : REAL(fopen64)(name, how_to);
}
ssize_t read(int file, void *into, size_t size) {
  return hit("read", file, NULL, 0, 0) ? -1 : REAL(read)(file, into, size);
}
ssize_t write(int file, const void *from, size_t size) {
  if (hit("write", file, NULL, 1, 1)) {
    if (how == SHORT) return REAL(write)(file, from, (size + 1) / 2);
    const int failed = errno;
    (void)!REAL(write)(file, from, size / 2);
    if (how == KILL) _exit(137);
    errno = failed;
    return -1;
  }
  return REAL(write)(file, from, size);
}
ssize_t pwrite(int file, const void *from, size_t size, off_t where) {
  if (hit("pwrite", file, NULL, 1, 1)) {
    if (how == SHORT) return REAL(pwrite)(file, from, (size + 1) / 2, where);
    const int failed = errno;
    (void)!REAL(pwrite)(file, from, size / 2, where);
    if (how == KILL) _exit(137);
    errno = failed;
    return -1;
  }
  return REAL(pwrite)(file, from, size, where);
}
int close(int file) {
  if (hit("close", file, NULL, 0, 0)) {
    REAL(close)(file);  // the descriptor is gone even where close says no
    errno = code;
    return -1;
  }
  return REAL(close)(file);
}
int fsync(int file) { return hit("fsync", file, NULL, 1, 0) ? -1 : REAL(fsync)(file); }
int fdatasync(int file) { return hit("fdatasync", file, NULL, 1, 0) ? -1 : REAL(fdatasync)(file); }
int flock(int file, int operation) { return hit("flock", file, NULL, 0, 0) ? -1 : REAL(flock)(file, operation); }
int ftruncate(int file, off_t size) { return hit("ftruncate", file, NULL, 1, 0) ? -1 : REAL(ftruncate)(file, size); }
int ftruncate64(int file, off64_t size) {
  return hit("ftruncate", file, NULL, 1, 0) ? -1 : REAL(ftruncate64)(file, size);
}
int rename(const char *from, const char *to) {
  return hit("rename", AT_FDCWD, to, 1, 0) ? -1 : REAL(rename)(from, to);
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
  return hit("renameat", to_folder, to, 1, 0) ? -1 : REAL(renameat)(from_folder, from, to_folder, to);
}
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
  return hit("renameat2", to_folder, to, 1, 0) ? -1 : REAL(renameat2)(from_folder, from, to_folder, to, flags);
}
int unlink(const char *name) { return hit("unlink", AT_FDCWD, name, 1, 0) ? -1 : REAL(unlink)(name); }
int unlinkat(int at_folder, const char *name, int flags) {
  return hit("unlinkat", at_folder, name, 1, 0) ? -1 : REAL(unlinkat)(at_folder, name, flags);
}
int rmdir(const char *name) { return hit("rmdir", AT_FDCWD, name, 1, 0) ? -1 : REAL(rmdir)(name); }
int remove(const char *name) { return hit("remove", AT_FDCWD, name, 1, 0) ? -1 : REAL(remove)(name); }
int mkdir(const char *name, mode_t mode) { return hit("mkdir", AT_FDCWD, name, 1, 0) ? -1 : REAL(mkdir)(name, mode); }
int mkdirat(int at_folder, const char *name, mode_t mode) {
  return hit("mkdirat", at_folder, name, 1, 0) ? -1 : REAL(mkdirat)(at_folder, name, mode);
}
int posix_fallocate(int file, off_t from, off_t size) {
  return hit("fallocate", file, NULL, 1, 0) ? code : REAL(posix_fallocate)(file, from, size);
}
int posix_fallocate64(int file, off64_t from, off64_t size) {
  return hit("fallocate", file, NULL, 1, 0) ? code : REAL(posix_fallocate64)(file, from, size);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
  const int result = REAL(clock_gettime)(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead_s;
  return result;
}
time_t time(time_t *into) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (into) *into = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(struct timeval *now, void *zone) {
  const int result = REAL(gettimeofday)(now, zone);
  if (result == 0) now->tv_sec += ahead_s;
  return result;
}
