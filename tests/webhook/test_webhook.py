"""The admission webhook as an API server meets it: AdmissionReviews over TLS, whole, partial and hostile ones. Its patches are applied
by python-jsonpatch, the pods that come out judged by Kubernetes' schemas, and one is run with what it got on the virtual GPU."""
import base64
import contextlib
import copy
import http.client
import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys

import pytest
import yaml
from conftest import MIB, PATIENCE, ROOT, STAGE, TESTS, Conversation, environment, need, on_vgpu, python_of, run, until

WEBHOOK = STAGE / "bin/weir-webhook"
DEPLOY = ROOT / "examples/deploy/kubernetes"
# The newest schemas that the validator has.
KUBERNETES = "1.37"


@pytest.fixture(scope="module")
def judge():
    python = python_of("webhook", TESTS / "webhook/requirements.txt")
    with Conversation([python, TESTS / "webhook/judge.py"], environment()) as judge:
        yield judge


def judged(judge, thing, patch=None, version=KUBERNETES):
    found = json.loads(judge.do(object=thing, patch=patch, version=version))
    assert found["problem"] is None, found["problem"]
    return found["object"]


def manifest(*arguments):
    """The Secret and the registration that an administrator applies."""
    secret, registration = json.loads(run(WEBHOOK, "manifest", *arguments, quiet=True).stdout)["items"]
    return secret, registration


class Served:
    """A webhook with its certificate, and a client that trusts what the registration names, as the API server does."""

    def __init__(self, folder, *arguments):
        self.folder = folder
        folder.mkdir()
        self.renew()
        command = [WEBHOOK, "serve", "--listen", "127.0.0.1:0", "--certificate", folder, *arguments]
        self.log = open(folder / "log", "w+")
        self.process = subprocess.Popen([str(word) for word in command], env=environment(), stderr=self.log)
        line = lambda: re.search(r"https://127\.0\.0\.1:(\d+)/mutate", (folder / "log").read_text())
        self.port = int(until(line, lambda: (folder / "log").read_text())[1])

    def renew(self):
        """Another certificate, put in place as the kubelet does it."""
        secret, registration = manifest("--url", "https://127.0.0.1:8443/mutate")
        for name, data in secret["data"].items():
            (self.folder / "new").write_bytes(base64.b64decode(data))
            (self.folder / "new").rename(self.folder / name)
        self.trust = base64.b64decode(registration["webhooks"][0]["clientConfig"]["caBundle"]).decode()

    def connect(self, trust=None):
        context = ssl.create_default_context(cadata=trust or self.trust)
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=PATIENCE)

    def send(self, body, method="POST", path="/mutate", kind="application/json", connection=None):
        connection = connection or self.connect()
        connection.request(method, path, body, {"Content-Type": kind} if kind else {})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def ask(self, pod, connection=None, **more):
        """The response to a review of a pod."""
        status, body = self.send(json.dumps(review(pod, **more)), connection=connection)
        assert status == 200, (status, body)
        answer = json.loads(body)
        assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        assert answer["response"]["uid"] == UID
        return answer["response"]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0
        self.log.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    served = Served(tmp_path_factory.mktemp("webhook") / "certificate")
    yield served
    served.end()


UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def pod(annotations=None, resources=None, **container):
    """A pod as the API server hands it over: with its defaults and the volume of a service account."""
    token = "kube-api-access-x7k2p"
    main = {
        "name": "train", "image": "registry.example/train:1", "command": ["python", "train.py"], "resources": resources or {},
        "volumeMounts": [{"name": token, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent", **container,
    }
    sources = [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
               {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]
    metadata = {"generateName": "train-", "namespace": "team", "labels": {"app": "train/1~a"}, "creationTimestamp": None}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {
        "kind": "Pod", "apiVersion": "v1", "metadata": metadata,
        "spec": {
            "volumes": [{"name": token, "projected": {"sources": sources, "defaultMode": 420}}],
            "containers": [main, {"name": "logs", "image": "registry.example/logs:1", "resources": {}}],
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "default",
            "securityContext": {}, "schedulerName": "default-scheduler", "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
        "status": {},
    }


def review(pod, **more):
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request = {
        "uid": UID, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource, "namespace": "team", "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": ["system:authenticated"]},
        "object": pod, "oldObject": None, "dryRun": False, "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}, **more,
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


GPU = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}


def without(made, before):
    """What the webhook has added to a pod is taken away again: what is left must be the pod as it was."""
    left = copy.deepcopy(made)
    left["metadata"]["annotations"].pop("weir/injected")
    if "annotations" not in before["metadata"]:
        left["metadata"].pop("annotations")
    left["spec"]["volumes"] = [one for one in left["spec"]["volumes"] if not one["name"].startswith("weir")]
    for one, old in zip(left["spec"]["containers"], before["spec"]["containers"]):
        for key in ("env", "volumeMounts"):
            if key in one:
                one[key] = one[key][:len(old.get(key, []))]
                if key not in old:
                    one.pop(key)
    return left


def test_an_annotated_pod_gets_library_cap_and_journals(served, judge):
    before = pod({"weir/cap": "8GiB"}, GPU)
    judged(judge, before)
    answer = served.ask(before)
    assert answer["allowed"] and answer["patchType"] == "JSONPatch"
    print(base64.b64decode(answer["patch"]).decode())
    made = judged(judge, before, answer["patch"])
    assert without(made, before) == before, "nothing else is changed"
    train, logs = made["spec"]["containers"]
    given = {one["name"]: one.get("value", one.get("valueFrom")) for one in train["env"]}
    assert given["WEIR_CAP"] == "8GiB" and given["LD_PRELOAD"] == "/opt/weir/libweir.so" and given["WEIR_DIR"] == "/var/lib/weir"
    mounted = {one["mountPath"]: one for one in train["volumeMounts"]}
    volumes = {one["name"]: one for one in made["spec"]["volumes"]}
    assert volumes[mounted["/opt/weir"]["name"]]["hostPath"]["path"] == "/opt/weir" and mounted["/opt/weir"]["readOnly"]
    assert volumes[mounted["/var/lib/weir"]["name"]]["hostPath"]["path"] == "/var/lib/weir"
    assert logs == before["spec"]["containers"][1], "a container without a GPU stays as it is"
    assert made["metadata"]["annotations"]["weir/injected"] == "train"
    # It is called once more when another webhook has changed the pod.
    assert "patch" not in served.ask(made)


def resolved(container, fields):
    """The environment that the kubelet makes of a container's."""
    made = {}
    for one in container["env"]:
        value = fields[one["valueFrom"]["fieldRef"]["fieldPath"]] if "valueFrom" in one else one.get("value", "")
        made[one["name"]] = re.sub(r"\$\((\w+)\)", lambda name: made.get(name[1], name[0]), value)
    return made


@pytest.mark.parametrize("annotations, resources, cap", [
    ({"weir/cap": "64MiB"}, GPU, 64 * MIB),
    (None, {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "96"}}, 96 * MIB),
    (None, {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "25"}}, 256 * MIB),
    ({"weir/cap": "none"}, GPU, None),
])
def test_a_job_with_what_its_pod_got_is_capped_and_recorded(served, judge, tmp_path, annotations, resources, cap):
    before = pod(annotations, resources)
    made = judged(judge, before, served.ask(before)["patch"])
    given = resolved(made["spec"]["containers"][0], {"metadata.uid": "0b6f1a52-8c1f-4f0e-9a53-1f2d7f0a9b3c", "metadata.name": "train-x7k2p"})
    # The node's folders, where this machine has them.
    places = {"/opt/weir": STAGE / "lib", "/var/lib/weir": tmp_path}
    for path, place in places.items():
        given = {name: value.replace(path, str(place)) for name, value in given.items()}
    more = {"VGPU_MEM": "1GiB", "VGPU_BACKING": "none", "WEIR_RING": "64K", "WEIR_OOM_TEXT": "off"}
    done = run(sys.executable, TESTS / "caps/limits.py", "takes_all", env=on_vgpu(**more, **given))
    taken = json.loads(done.stdout)["physical"]
    assert done.stderr == "", "no word about a variable"
    assert taken > 1000 * MIB if cap is None else cap - 16 * MIB <= taken <= cap, taken
    assert len(list(tmp_path.glob("*.weir"))) == 1
    if cap is not None:
        listed = json.loads(run(STAGE / "bin/weir", "list", "--json", "--dir", tmp_path).stdout)
        assert listed[0]["devices"][0]["cap"] == cap


def test_an_image_brings_the_library_where_pods_may_not_mount_folders_of_the_node(judge, tmp_path):
    served = Served(tmp_path / "c", "--library", "image:registry.example/weir:0.1.0", "--journals", "claim:journals", "--default-cap", "50%")
    try:
        before = pod(None, GPU)
        before["spec"]["initContainers"] = [{"name": "fetch", "image": "registry.example/fetch:1"}]
        made = judged(judge, before, served.ask(before)["patch"])
        first, fetch = made["spec"]["initContainers"]
        assert first["image"] == "registry.example/weir:0.1.0" and fetch == before["spec"]["initContainers"][0]
        assert {"name": "WEIR_CAP", "value": "50%"} in made["spec"]["containers"][0]["env"]
        assert {"name": "weir-journals", "persistentVolumeClaim": {"claimName": "journals"}} in made["spec"]["volumes"]
        assert not any("hostPath" in volume for volume in made["spec"]["volumes"])
        assert "patch" not in served.ask(made)
        # Its command is run: on the layout of a package, and with the volume at its mount.
        image, volume = tmp_path / "image", tmp_path / "volume"
        (image / "usr/lib/weir").mkdir(parents=True)
        shutil.copy(STAGE / "lib/libweir.so", image / "usr/lib/weir")
        volume.mkdir()
        (at,) = [mount["mountPath"] for mount in first["volumeMounts"]]
        command = [word.replace("/usr/lib", f"{image}/usr/lib").replace(at, str(volume)) for word in first["command"]]
        run(*command)
        assert (volume / "libweir.so").exists()
        fake = copy.deepcopy(made)
        fake["spec"]["initContainers"][0]["image"] = "registry.example/mine:1"
        refused = served.ask(fake)
        assert not refused["allowed"] and "another container named weir" in refused["status"]["message"]
    finally:
        served.end()


def test_a_pod_that_asks_for_nothing_is_let_through_unchanged(served):
    for asked in (pod(), pod({"other": "x"}, GPU), pod({}, {"limits": {"cpu": "1"}})):
        assert served.ask(asked) == {"uid": UID, "allowed": True}
    annotated = pod({"weir/cap": "8GiB"}, GPU)
    kind = {"group": "apps", "version": "v1", "kind": "Deployment"}
    for more in ({"operation": "UPDATE"}, {"operation": "DELETE", "object": None}, {"subResource": "ephemeralcontainers"}, {"kind": kind}):
        assert served.ask(annotated, **more) == {"uid": UID, "allowed": True}, more
    assert "patch" in served.ask(annotated, dryRun=True)


@pytest.mark.parametrize("annotations, container, why", [
    ({"weir/cap": "8"}, {}, "did you mean 8GiB"),
    ({"weir/cap": ""}, {}, "weir/cap"),
    ({"weir/cpa": "8GiB"}, {}, "unknown annotation weir/cpa"),
    ({"weir/cap": "8GiB", "weir/containers": "eval"}, {}, "no container \"eval\"; expected some of train, logs"),
    ({"weir/cap": "8GiB"}, {"env": [{"name": "WEIR_CAP", "value": "16GiB"}]}, "is more than the limit of 8.00 GiB"),
    ({"weir/cap": "8GiB"}, {"env": [{"name": "WEIR_CAP", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]}, "valueFrom"),
    ({"weir/cap": "8GiB"}, {"env": [{"name": "LD_PRELOAD", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]}, "LD_PRELOAD"),
    ({"weir/cap": "8GiB"}, {"env": [{"name": "WEIR_STRICT", "value": "0"}]}, "WEIR_STRICT"),
    ({"weir/cap": "8GiB"}, {"volumeMounts": [{"name": "mine", "mountPath": "/opt/weir"}]}, "something else is mounted at /opt/weir"),
    ({"weir/cap": "8GiB"}, {"resources": {"limits": {"nvidia.com/gpumem": "1024"}}}, "more than the limit of 1.00 GiB"),
    ({}, {"resources": {"limits": {"nvidia.com/gpumem": "1.5"}}}, "nvidia.com/gpumem"),
    ({}, {"resources": {"limits": {"nvidia.com/gpumem": "1024", "nvidia.com/gpumem-percentage": "5"}}}, "expected one of them"),
])
def test_what_cannot_be_done_is_refused_with_the_reason(served, annotations, container, why):
    answer = served.ask(pod(annotations, **container))
    assert answer["allowed"] is False and "patch" not in answer and answer["status"]["code"] == 422
    assert answer["status"]["message"].startswith("weir: ") and why in answer["status"]["message"], answer


def places(value, path=()):
    """Every place in a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(value, path, make):
    value = copy.deepcopy(value)
    place = value
    for key in path[:-1]:
        place = place[key]
    if make is None:
        del place[path[-1]]
    else:
        place[path[-1]] = make()
    return value


def test_every_part_of_a_pod_may_be_missing_or_of_another_kind(served, judge):
    """The answer is a refusal or a patch that applies and puts the library into what it left; never an error of the server's."""
    env = [{"name": "LD_PRELOAD", "value": "/x.so"}, {"name": "WEIR_CAP", "value": "4GiB"}]
    whole = pod({"weir/cap": "8GiB"}, GPU, env=env)
    connection, answers = served.connect(), {"patched": 0, "refused": 0, "unchanged": 0}
    for path in places(whole):
        for make in (None, lambda: None, lambda: 7, lambda: "x", list, dict, lambda: [[]], lambda: {"name": {}}):
            asked = changed(whole, path, make)
            answer = served.ask(asked, connection=connection)
            if not answer["allowed"]:
                answers["refused"] += 1
                assert answer["status"]["message"].startswith("weir: ")
            elif "patch" in answer:
                answers["patched"] += 1
                made = judged(judge, asked, answer["patch"], version=None)
                assert "patch" not in served.ask(made, connection=connection), path
            else:
                answers["unchanged"] += 1
    assert answers["patched"] > 100 and answers["refused"] > 50 and answers["unchanged"] >= 3, answers


def test_what_is_no_review_is_refused_and_the_next_one_answered(served):
    good = review(pod({"weir/cap": "8GiB"}, GPU))
    beta = {**good, "apiVersion": "admission.k8s.io/v1beta1"}
    for body, status in [
        (b"", 400), (b"{", 400), (b"[]", 400), (b"null", 400), (b"\xff\xfe", 400), (b'{"apiVersion": "admission.k8s.io/v1"}', 400),
        (json.dumps(beta), 400), (json.dumps(changed(good, ("request", "uid"), None)), 400), (json.dumps(changed(good, ("request", "uid"), lambda: 7)), 400),
        (b"[" * 100_000, 400), (b'{"a":' * 100_000, 400),
    ]:
        got, text = served.send(body)
        assert got == status and text.startswith(b"weir: "), (body[:60], got, text[:200])
    # The connection may be closed before all of it was sent.
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        assert served.send(json.dumps({**good, "x": "y" * (9 << 20)}))[0] == 413
    for method, path, kind, status in [
        ("POST", "/mutate", "text/plain", 415), ("POST", "/mutate", None, 415), ("GET", "/mutate", "application/json", 405),
        ("POST", "/", "application/json", 404), ("POST", "/mutate/../mutate", "application/json", 404), ("GET", "/healthz", None, 200),
    ]:
        assert served.send(json.dumps(good), method, path, kind)[0] == status, (method, path, kind)
    assert served.ask(pod({"weir/cap": "8GiB"}, GPU))["allowed"]


def test_a_name_cannot_write_lines_of_its_own_into_the_log(served):
    named = pod({"weir/cap": "8"}, GPU)
    named["metadata"]["generateName"] = "a\nweir-webhook: pod b in team runs under weir\n\x1b[2J"
    served.ask(named)
    lines = (served.folder / "log").read_text().splitlines()
    assert not any(line.startswith("weir-webhook: pod b") for line in lines) and "\x1b" not in "".join(lines)


def test_connections_that_say_nothing_or_nonsense_hold_up_nobody(served):
    context = ssl.create_default_context(cadata=served.trust)
    held = []
    try:
        for number in range(60):
            plain = socket.create_connection(("127.0.0.1", served.port))
            held.append(plain)
            if number % 3 == 0:
                plain.sendall(b"POST /mutate HTTP/1.1\r\nHost: x\r\n\r\n")
            elif number % 3 == 1:
                secure = context.wrap_socket(plain, server_hostname="127.0.0.1")
                held[-1] = secure
                secure.sendall(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{")
        assert served.ask(pod({"weir/cap": "8GiB"}, GPU))["allowed"]
    finally:
        for one in held:
            one.close()
    assert served.ask(pod({"weir/cap": "8GiB"}, GPU))["allowed"]


def test_many_ask_at_a_time(served):
    connections = [served.connect() for _ in range(20)]
    body = json.dumps(review(pod({"weir/cap": "8GiB"}, GPU)))
    for connection in connections:
        connection.request("POST", "/mutate", body, {"Content-Type": "application/json"})
    answers = {connection.getresponse().read() for connection in connections}
    assert len(answers) == 1 and b"JSONPatch" in answers.pop()


def test_only_who_has_the_registrations_authority_is_believed_and_a_renewed_certificate_is_used(tmp_path):
    served = Served(tmp_path / "c")
    try:
        earlier = served.trust
        asked = json.dumps(review(pod()))
        assert served.send(asked)[0] == 200
        served.renew()
        until(lambda: served.send(asked, connection=served.connect(served.trust))[0] == 200, "the new certificate")
        with pytest.raises(ssl.SSLCertVerificationError):
            served.send(asked, connection=served.connect(earlier))
        # One that cannot be used costs a line, and no service.
        (served.folder / "tls.crt").write_text("no certificate")
        assert served.send(asked)[0] == 200
        assert "the earlier certificate stays in use" in (served.folder / "log").read_text()
    finally:
        served.end()


def test_a_wrong_word_of_the_administrators_is_named(tmp_path):
    for words, why in [
        (["--library", "/opt/weir"], "expected host:DIR or image:IMAGE"), (["--journals", "host:x"], "absolute path"),
        (["--resource", "nvidia.com/gpumem=MB"], "unknown unit"), (["--default-cap", "8"], "did you mean 8GiB"),
        (["--certificate", tmp_path], "tls.crt"), (["--certificate", tmp_path, "--listen", "nowhere:x"], "tls.crt"),
    ]:
        done = run(WEBHOOK, "serve", *words, code=None)
        assert done.returncode in (1, 2) and why in done.stderr, done.stderr


def test_without_a_cluster_a_review_is_answered_on_standard_output():
    asked = json.dumps(review(pod({"weir/cap": "8GiB"}, GPU)))
    done = subprocess.run([WEBHOOK, "review"], input=asked, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True)
    assert json.loads(done.stdout)["response"]["patchType"] == "JSONPatch"


def test_kubectl_builds_what_the_schemas_take(judge):
    need("kubectl", "kubernetes-client")
    parts = []
    for folder in (DEPLOY, DEPLOY / "webhook", DEPLOY.parent / "kubernetes-lake"):
        parts += [part for part in yaml.safe_load_all(run("kubectl", "kustomize", folder).stdout) if part]
    secret, registration = manifest()
    for part in (*parts, secret, registration):
        judged(judge, part)
    kinds = {(part["kind"], part["metadata"]["name"]): part for part in parts}
    deployment, service = kinds["Deployment", "weir-webhook"], kinds["Service", "weir-webhook"]
    template = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    assert service["spec"]["ports"][0]["targetPort"] in [port["name"] for port in container["ports"]]
    (volume,) = template["spec"]["volumes"]
    assert volume["secret"]["secretName"] == secret["metadata"]["name"] and secret["metadata"]["namespace"] == service["metadata"]["namespace"]
    called = registration["webhooks"][0]["clientConfig"]["service"]
    assert (called["name"], called["namespace"], called["port"]) == (service["metadata"]["name"], service["metadata"]["namespace"], service["spec"]["ports"][0]["port"])
    # Its words are those that the program takes, and its port the one that it listens on.
    words = container["command"]
    assert words[0] == "weir-webhook"
    refused = run(WEBHOOK, *words[1:], "--certificate", "/nowhere", code=1).stderr
    assert "/nowhere/tls.crt" in refused, "no word was refused before"
    assert f":{container['ports'][0]['containerPort']}]" in run(WEBHOOK, "serve", "--help").stdout


def test_the_certificate_is_for_the_services_name(tmp_path):
    secret, registration = manifest("--namespace", "gpu")
    for name, data in (*secret["data"].items(), ("ca.crt", registration["webhooks"][0]["clientConfig"]["caBundle"])):
        (tmp_path / name).write_bytes(base64.b64decode(data))
    need("openssl")
    run("openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "weir-webhook.gpu.svc", "-CAfile", tmp_path / "ca.crt", tmp_path / "tls.crt")
    run("openssl", "verify", "-verify_hostname", "other.gpu.svc", "-CAfile", tmp_path / "ca.crt", tmp_path / "tls.crt", code=2)
    assert registration["webhooks"][0]["failurePolicy"] == "Fail" and registration["webhooks"][0]["namespaceSelector"]["matchLabels"] == {"weir": "enabled"}
