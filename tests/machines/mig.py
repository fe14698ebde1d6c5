"""A job on a part of a GPU (MIG).

usage: mig.py names          prints the UUIDs of the part and of the GPU that it belongs to, as NVML writes them
       mig.py total BYTES    the device is as large as its cap
       mig.py refused        cuInit fails, because a cap names no device
"""
from machine import *


def names():
    nvml = c.CDLL("libnvidia-ml.so.1")
    assert nvml.nvmlInit_v2() == 0
    gpu, part = P(), P()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(gpu)) == 0
    assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0, c.byref(part)) == 0

    def uuid(device):
        text = c.create_string_buffer(96)
        assert nvml.nvmlDeviceGetUUID(device, text, 96) == 0
        return text.value.decode()

    print(json.dumps({"gpu": uuid(gpu), "part": uuid(part)}))


def total_(bytes_):
    call("cuInit", 0)
    assert total() == int(bytes_), total()


def refused():
    assert D.cuInit(0) != 0


main({**globals(), "total": total_})
