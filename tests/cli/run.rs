//! `weir run`: exit codes, what cannot be started, standard input and output, the environment of the job.

use crate::scene::Scene;
use serde_json::Value;
use weir_tests::harness::{Job, Suite, stage};

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("run: the exit code is the job's", exit_code);
    suite.add("run: a command that cannot be started ends as under env(1)", not_started);
    suite.add("run: standard input and output are the job's", input_and_output);
    suite.add("run: arguments of the job are passed unchanged", arguments);
    suite.add("run: the job's environment", environment);
    suite.add("run: --print-env for shells, Docker, Kubernetes and Slurm", print_env);
    suite.add("run: a job without CUDA leaves no output and no file", without_cuda);
}

fn exit_code() {
    let scene = Scene::new();
    for (code, command) in [(0, "true"), (1, "false")] {
        let _ = scene.weir(format!("run -- {command}")).run().code(code);
    }
    for (code, script) in [(7, "exit 7"), (255, "exit 255"), (137, "kill -9 $$"), (139, "kill -SEGV $$")] {
        let _ = scene.weir("run -- sh -c").arg(script).run().code(code);
    }
}

fn not_started() {
    let scene = Scene::new();
    std::fs::write(scene.at("plain"), "text").expect("a file");
    assert!(scene.error(127, "run -- no-such-command").contains("no-such-command"));
    let _ = scene.weir("run --").arg(scene.at("plain")).run().code(126);
    let _ = scene.weir("run --").arg(scene.folder()).run().code(126);
    for (words, expected) in [
        ("--cap 8XiB -- true", "--cap"),
        ("--group a/b -- true", "--group"),
        ("--on-cap never -- true", "--on-cap"),
        ("--keep x -- true", "--keep"),
        ("--vgpu much -- true", "--vgpu"),
        ("", "no command"),
        ("--vgpu 8 -- true", "did you mean 8GiB?"),
        ("--no-such-option", "--no-such-option"),
        ("--library /nowhere.so -- true", "/nowhere.so"),
    ] {
        let error = scene.error(125, format!("run {words}"));
        assert!(error.contains(expected), "{words}: {error}");
    }
    assert!(!scene.out("run --help").is_empty());
}

fn input_and_output() {
    let done = Scene::new().weir("run -- cat").input("hello\n").run().quiet();
    assert_eq!(done.out, "hello\n");
}

fn arguments() {
    let scene = Scene::new();
    let job = scene.weir("run --cap 1GiB sh -c").arg(r#"echo "$@""#).words("x --json -o --cap");
    assert_eq!(job.run().well().out, "--json -o --cap\n");
}

/// The environment of a job under `weir run OPTIONS`.
fn seen_by(job: Job) -> Value {
    job.words("-- python3 -c").arg("import json, os; print(json.dumps(dict(os.environ)))").run().well().json()
}

fn environment() {
    let scene = Scene::new();
    let library = stage().weir().canonicalize().expect("the library");
    let seen = seen_by(scene.weir("run --cap 1GiB"));
    let preload = seen["LD_PRELOAD"].as_str().expect("a preload");
    assert_eq!(std::path::Path::new(preload).canonicalize().expect("a file"), library);
    // Without a choice the library decides, in the process that loads TensorFlow.
    assert_eq!((&seen["WEIR_CAP"], &seen["TF_GPU_ALLOCATOR"]), (&"1GiB".into(), &Value::Null));
    assert_eq!(seen_by(scene.weir("run --tf-allocator pool"))["TF_GPU_ALLOCATOR"], "cuda_malloc_async");
    let other = "/lib/x86_64-linux-gnu/libdl.so.2";
    let seen = seen_by(scene.weir("run").env("LD_PRELOAD", other));
    let preloads: Vec<&str> = seen["LD_PRELOAD"].as_str().expect("a preload").split(':').collect();
    assert!(preloads.len() == 2 && preloads[0] == other, "{preloads:?}");
    let seen = seen_by(scene.weir("run").env("LD_PRELOAD", &library));
    assert!(!seen["LD_PRELOAD"].as_str().expect("a preload").contains(':'), "the library is listed twice: {seen}");
    let seen = seen_by(scene.weir("run").set("TF_GPU_ALLOCATOR=cuda_malloc"));
    assert_eq!(seen["TF_GPU_ALLOCATOR"], "cuda_malloc");
    assert_eq!(seen_by(scene.weir("run --tf-allocator keep"))["TF_GPU_ALLOCATOR"], Value::Null);
    let seen = seen_by(scene.weir("run --vgpu 2GiB").set("LD_LIBRARY_PATH=/x"));
    assert_eq!(seen["VGPU_MEM"], "2GiB");
    assert!(seen["LD_LIBRARY_PATH"].as_str().expect("a path").ends_with("/vgpu:/x"), "{seen}");
}

fn print_env() {
    let scene = Scene::new();
    let caps = "0=1GiB,1=50%";
    let shell = scene.weir(format!("run --cap {caps} -o")).arg("it's here").arg("--print-env").run().well().out;
    let script = shell + "env -i WEIR_CAP=$WEIR_CAP WEIR_DIR=\"$WEIR_DIR\" env";
    let shown = Job::new("sh").arg("-c").arg(script).run().well().out;
    let folder = scene.folder().display();
    assert!(
        shown.contains(&format!("WEIR_CAP={caps}\n")) && shown.contains(&format!("WEIR_DIR={folder}/it's here\n")),
        "{shown}"
    );
    for (form, expected) in [
        ("docker", format!("ENV WEIR_CAP=\"{caps}\"")),
        ("k8s", format!("env:\n- name: WEIR_CAP\n  value: \"{caps}\"\n")),
        ("slurm", format!("export WEIR_CAP={caps}")),
    ] {
        let shown = scene.out(format!("run --cap {caps} --print-env={form}"));
        assert!(shown.contains(&expected), "{shown}");
    }
}

fn without_cuda() {
    let scene = Scene::new();
    assert_eq!(scene.weir("run -- echo hello").run().quiet().out, "hello\n");
    assert!(scene.names("runs").is_empty(), "{:?}", scene.names("runs"));
}
