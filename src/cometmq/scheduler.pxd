# Let another thread have the processor. For the compiled twins only.

cdef extern from "sched.h":
    int sched_yield() noexcept nogil
