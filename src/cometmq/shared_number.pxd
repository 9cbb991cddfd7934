# Numbers that two threads tell each other without a lock, and a wait for a descriptor with a limit of nanoseconds.
# For the compiled twins only.

cdef extern from *:
    """
    #include <poll.h>
    #include <time.h>
    /* In one order for all threads: whoever says "I sleep" and then looks for work, and whoever leaves work and then
       looks for a sleeper, cannot miss each other. */
    static long long read_shared(long long *number) { return __atomic_load_n(number, __ATOMIC_SEQ_CST); }
    static void write_shared(long long *number, long long value) {
        __atomic_store_n(number, value, __ATOMIC_SEQ_CST);
    }
    static int wait_readable(int descriptor, long long limit_ns) {
        struct pollfd wanted = {descriptor, POLLIN, 0};
    #ifdef __linux__
        struct timespec limit = {limit_ns / 1000000000LL, limit_ns % 1000000000LL};
        return ppoll(&wanted, 1, &limit, 0) > 0;
    #else
        return poll(&wanted, 1, (int)((limit_ns + 999999) / 1000000)) > 0;
    #endif
    }
    """
    long long read_shared(long long* number) noexcept nogil
    void write_shared(long long* number, long long value) noexcept nogil
    bint wait_readable(int descriptor, long long limit_ns) noexcept nogil
