/* A wall clock that is off, for a process that preloads this: by as many milliseconds as the file named by SHIFTED_CLOCK
   holds (an int64 that may change at any time). Monotonic clocks are left alone. Waits until a moment of the wall clock end
   when the process believes it has come. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;

typedef int (*timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static timedwait real_timedwait;

__attribute__((constructor)) static void begin(void) {
    real_timedwait = (timedwait)dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real_timedwait) real_timedwait = (timedwait)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    const char *path = getenv("SHIFTED_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) shift = mapped;
    close(file);
}

static void add(struct timespec *at, int64_t millis) {
    int64_t nanos = at->tv_sec * 1000000000LL + at->tv_nsec + millis * 1000000LL;
    at->tv_sec = nanos / 1000000000LL;
    at->tv_nsec = nanos % 1000000000LL;
}

static int64_t off(void) { return shift ? *shift : 0; }

int clock_gettime(clockid_t which, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, which, at);
    if (!failed && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) add(at, off());
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

int timespec_get(struct timespec *at, int base) { return clock_gettime(CLOCK_REALTIME, at) ? 0 : base; }

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

/* A moment beyond 2001 is of the wall clock, an earlier one of the monotonic clock: uptime. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec shifted = *until;
    if (until->tv_sec > 1000000000) add(&shifted, -off());
    return real_timedwait(condition, mutex, &shifted);
}

/* C11's wait does not go through the one above. Its kinds of mutex and condition are POSIX's, in glibc. */
int cnd_timedwait(void *condition, void *mutex, const struct timespec *until) {
    int failed = pthread_cond_timedwait(condition, mutex, until);
    return failed == 0 ? 0 : failed == 110 ? 4 : 2; /* ETIMEDOUT is thrd_timedout; else thrd_error */
}
