# Which descriptors of an epoll set are ready, without the objects that select.epoll makes. For the compiled twins only.

cdef extern from *:
    """
    #ifdef __linux__
    #include <sys/epoll.h>
    enum { READY_MAX = 64 };
    static int wait_ready(int set, int *descriptors, unsigned int *events) {
        struct epoll_event ready[READY_MAX];
        int count = epoll_wait(set, ready, READY_MAX, 0);
        for (int i = 0; i < count; i++) {
            descriptors[i] = ready[i].data.fd;
            events[i] = ready[i].events;
        }
        return count;
    }
    #else
    enum { READY_MAX = 64 };
    static int wait_ready(int set, int *descriptors, unsigned int *events) {
        return -1;
    }
    #endif
    """
    int wait_ready(int set, int* descriptors, unsigned int* events) noexcept nogil
