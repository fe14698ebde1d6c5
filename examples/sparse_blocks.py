"""A job that fails with most of its memory free.

It takes many blocks of 512 KiB, gives three of four back, and then wants one large block. What is left
alive is spread over every page of the device, so that hardly a page can be given away: the plain driver
runs out of memory with a quarter of the device in use. Speaks to the CUDA driver directly, by ctypes.
"""
import ctypes
import random
import sys

MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")
OUT_OF_MEMORY = 2


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        raise RuntimeError(f"{name} failed with {code}")


def allocate(size):
    pointer = ctypes.c_uint64()
    code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
    if code == OUT_OF_MEMORY:
        return None
    if code:
        raise RuntimeError(f"cuMemAlloc failed with {code}")
    return pointer.value


def main():
    call("cuInit", 0)
    context = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))

    block = MIB // 2
    blocks = []
    while len(blocks) < total.value // block and (pointer := allocate(block)) is not None:
        blocks.append(pointer)
    marks = {pointer: bytes(random.randbytes(64)) for pointer in blocks}
    for pointer, mark in marks.items():
        call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), mark, ctypes.c_size_t(64))

    random.Random(1).shuffle(blocks)
    keep, drop = blocks[: len(blocks) // 4], blocks[len(blocks) // 4 :]
    for pointer in drop:
        call("cuMemFree_v2", ctypes.c_uint64(pointer))
    call("cuCtxSynchronize")

    live = len(keep) * block
    wanted = (total.value - live) * 2 // 3
    print(f"device {total.value / MIB:.0f} MiB, alive {live / MIB:.0f} MiB in {len(keep)} blocks, wanted {wanted / MIB:.0f} MiB more")
    large = allocate(wanted)
    if large is None:
        print("out of memory")
        return 1
    seen = ctypes.create_string_buffer(64)
    for pointer in keep:
        call("cuMemcpyDtoH_v2", seen, ctypes.c_uint64(pointer), ctypes.c_size_t(64))
        if seen.raw != marks[pointer]:
            print(f"the block at {pointer:#x} has changed")
            return 2
    print("it fits, and every block still holds what was written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
