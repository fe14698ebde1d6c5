"""Applies JSON patches and validates objects by Kubernetes' schemas: a line of JSON for each line of JSON. In an environment of
its own, so that nothing of weir's takes part.

{"object": …, "patch": base64 or null, "version": "1.37"} is answered by {"object": …, "problem": null or a text}."""
import base64
import json
import sys

import jsonpatch
import kubernetes_validate

for line in sys.stdin:
    order = json.loads(line)
    changed, problem = order["object"], None
    try:
        if order.get("patch"):
            changed = jsonpatch.apply_patch(changed, base64.b64decode(order["patch"], validate=True).decode())
        if order.get("version"):
            kubernetes_validate.validate(changed, order["version"], strict=True)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    print(json.dumps({"object": changed, "problem": problem}), flush=True)
