"""The virtual GPU's log of calls (VGPU_TRACE), counted: what weir called of the driver, by a witness that is not weir's."""
import json


def count(file):
    """Copies between device addresses and waits for a whole context, neither of which `churn` calls itself; calls for memory."""
    reported = {"copies": 0, "copied": 0, "stops": 0, "calls": 0}
    with open(file) as lines:
        for line in lines:
            entry = json.loads(line)
            name = entry["fn"]
            if name == "cuMemcpy":
                reported["copies"] += 1
                reported["copied"] += entry["args"]["byte_count"]
            reported["stops"] += name == "cuCtxSynchronize"
            reported["calls"] += name in ("cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemSetAccess")
    return reported
