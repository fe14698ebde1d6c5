"""A process that loads TensorFlow (`tensorflow.c` stands in for it): which allocator serves its tensors, and how long a
request for one waits.

usage: tensors.py choice LIBRARY      prints what was chosen
       tensors.py waits LIBRARY       another thread frees while a request waits that BFC would try again
       tensors.py at_once LIBRARY     a request that BFC would not try again fails while the memory is still held
       tensors.py plain               without TensorFlow
"""
import threading
import time

from machine import *

GETENV = c.CDLL(None).getenv
GETENV.restype = c.c_char_p


def load(library):
    loaded = c.CDLL(library)
    loaded.tensor.restype = P
    call("cuInit", 0)
    return loaded


def reported():
    value = GETENV(b"TF_GPU_ALLOCATOR")
    said = status()
    return {"variable": value and value.decode(), "choices": said["choices"], "tensors": said["tensors"]}


def choice(library):
    load(library)
    # The driver may be initialised again: what weir has set is not taken for the job's own.
    call("cuInit", 0)
    context(0)
    alloc(MIB)
    print(json.dumps(reported()))


def plain():
    call("cuInit", 0)
    print(json.dumps(reported()))


class Job:
    def __init__(self, library):
        self.library = load(library)
        self.home = context(0)
        self.mempool, self.on = P(), stream()
        call("cuDeviceGetDefaultMemPool", c.byref(self.mempool), 0)
        self.held = []
        # All but less than what is requested next.
        while at := self.tensor(8 * MIB, False):
            self.held.append(at)
        assert self.held

    def tensor(self, size, retry):
        return self.library.tensor(D.cuMemAllocFromPoolAsync, D.cuStreamSynchronize, self.mempool, self.on, SIZE(size), int(retry))

    def free(self):
        call("cuCtxSetCurrent", self.home)
        for at in self.held:
            assert self.library.release(D.cuMemFreeAsync, U64(at), self.on) == 0


def waits(library):
    job = Job(library)
    requested = threading.Event()

    def other():
        requested.wait()
        # By now the request waits, or is about to: either way it is to succeed.
        time.sleep(0.5)
        job.free()

    thread = threading.Thread(target=other)
    thread.start()
    requested.set()
    assert job.tensor(16 * MIB, True), "it did not wait for the other thread"
    thread.join()


def at_once(library):
    job = Job(library)
    assert not job.tensor(16 * MIB, False)
    job.free()
    assert job.tensor(16 * MIB, False)


main(globals())
