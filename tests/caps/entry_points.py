"""Every entry point that takes device memory, one by one: take until refused, never above the cap, give back, and again.

usage: entry_points.py ENTRY CAP   (a job of `run`; prints one line of JSON)
"""
import ctypes as c
import json
import random
import sys

from cuda import *

STREAM = P()
POOL = P()


def by_alloc(size):
    return alloc(size)


def by_pitch(size):
    at, pitch = U64(), SIZE()
    call("cuMemAllocPitch_v2", c.byref(at), c.byref(pitch), SIZE(1000), SIZE(max(1, size // 1024)), 4)
    return at.value


def by_managed(size):
    at = U64()
    call("cuMemAllocManaged", c.byref(at), SIZE(size), 1)
    # Resident on the device, as after a kernel touched it.
    D.cuMemPrefetchAsync(at, SIZE(size), 0, None)
    call("cuCtxSynchronize")
    return at.value


def by_async(size, name="cuMemAllocAsync"):
    at = U64()
    call(name, c.byref(at), SIZE(size), STREAM)
    return at.value


def by_async_ptsz(size):
    return by_async(size, "cuMemAllocAsync_ptsz")


def by_from_pool(size, name="cuMemAllocFromPoolAsync"):
    at = U64()
    call(name, c.byref(at), SIZE(size), POOL, STREAM)
    return at.value


def by_from_pool_ptsz(size):
    return by_from_pool(size, "cuMemAllocFromPoolAsync_ptsz")


def by_create(size):
    handle = U64()
    prop = AllocationProp(type=1, location=Location(1, 0))
    size = -(-size // PAGE) * PAGE
    call("cuMemCreate", c.byref(handle), SIZE(size), c.byref(prop), U64(0))
    return handle.value


def by_array(size, name="cuArrayCreate_v2", shape=Array2D):
    array = P()
    width = 1024
    d = shape(width, max(1, min(size // (4 * width), 65536)), 32, 1)
    call(name, c.byref(array), c.byref(d))
    return array.value


def by_array3d(size, name="cuArray3DCreate_v2", shape=Array3D):
    array = P()
    d = shape(256, 64, max(1, min(size // (256 * 64 * 4), 2048)), 32, 1, 0)
    call(name, c.byref(array), c.byref(d))
    return array.value


class Narrow2D(c.Structure):
    _fields_ = [("width", UINT), ("height", UINT), ("format", INT), ("channels", UINT)]


class Narrow3D(c.Structure):
    _fields_ = [("width", UINT), ("height", UINT), ("depth", UINT), ("format", INT), ("channels", UINT), ("flags", UINT)]


def by_array_v1(size):
    return by_array(size, "cuArrayCreate", Narrow2D)


def by_array3d_v1(size):
    return by_array3d(size, "cuArray3DCreate", Narrow3D)


def by_mipmap(size):
    array = P()
    side = max(16, int((size / 6) ** 0.5))
    d = Array3D(side, side, 0, 32, 1, 0)
    call("cuMipmappedArrayCreate", c.byref(array), c.byref(d), 12)
    return array.value


def release_array(handle):
    call("cuArrayDestroy", P(handle))


def release_async(at):
    call("cuMemFreeAsync", U64(at), STREAM)


ENTRIES = {
    "cuMemAlloc_v2": (by_alloc, free),
    "cuMemAllocPitch_v2": (by_pitch, free),
    "cuMemAllocManaged": (by_managed, free),
    "cuMemAllocAsync": (by_async, release_async),
    "cuMemAllocAsync_ptsz": (by_async_ptsz, release_async),
    "cuMemAllocFromPoolAsync": (by_from_pool, release_async),
    "cuMemAllocFromPoolAsync_ptsz": (by_from_pool_ptsz, release_async),
    "cuMemCreate": (by_create, lambda h: call("cuMemRelease", U64(h))),
    "cuArrayCreate": (by_array_v1, release_array),
    "cuArrayCreate_v2": (by_array, release_array),
    "cuArray3DCreate": (by_array3d_v1, release_array),
    "cuArray3DCreate_v2": (by_array3d, release_array),
    "cuMipmappedArrayCreate": (by_mipmap, lambda h: call("cuMipmappedArrayDestroy", P(h))),
}
SIZES = {
    "large": lambda r: r.choice([2, 3, 5, 8]) * MIB,
    "odd": lambda r: r.randrange(1, 6 * MIB),
    "small": lambda r: r.randrange(1, MIB),
}


def main():
    entry, cap, sizes, made = sys.argv[1], int(sys.argv[2]), SIZES[sys.argv[3]], sys.argv[4:]
    random_ = random.Random(7)
    start()
    call("cuStreamCreate", c.byref(STREAM), 1)
    if made:
        call("cuMemPoolCreate", c.byref(POOL), c.byref(PoolProps(type=1, location=Location(1, 0))))
    else:
        call("cuDeviceGetDefaultMemPool", c.byref(POOL), 0)
    take, give = ENTRIES[entry]
    answer = {"peak": 0, "best": [], "code": None, "left": None}

    def look():
        answer["peak"] = max(answer["peak"], physical())

    for _ in range(3):
        held, got, best = [], 0, 0
        refusals = 0
        while refusals < 8 and len(held) < 40000:
            size = sizes(random_)
            try:
                held.append(take(size))
                got += size
            except Failed as failed:
                answer["code"] = failed.code
                refusals += 1
            look()
            best = max(best, physical())
        # Holes everywhere, then again: what shares a chunk must not be forgotten.
        random_.shuffle(held)
        for at in held[: len(held) * 9 // 10]:
            give(at)
        held = held[len(held) * 9 // 10:]
        call("cuCtxSynchronize")
        look()
        refusals = 0
        while refusals < 8 and len(held) < 40000:
            try:
                held.append(take(sizes(random_)))
            except Failed as failed:
                answer["code"] = failed.code
                refusals += 1
            look()
        for at in held:
            give(at)
        call("cuCtxSynchronize")
        answer["best"].append(best)
    caps = status()["caps"]["devices"][0]
    answer["uses"] = caps["uses"]
    answer["pending"] = caps["pending"]
    answer["free"] = info()[0]
    print(json.dumps(answer))


main()
