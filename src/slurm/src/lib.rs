//! A SPANK plugin: every task of a job on a cluster with Slurm runs under weir, with the limit of GPU memory that the job
//! requests (`--gpu-mem`), that its shards are, or that its partition gives. docs/how-to/slurm.md sets it up.
//!
//! | module | for |
//! |---|---|
//! | `arguments` | the administrator's words in plugstack.conf |
//! | `limit` | which limit a task gets, and with it which variables |
//! | `judge` | whether the limit was in force |
//! | `state` | what a node keeps of a job until its end |
//! | `end` | the end of a job: report, comment, nothing left behind |
//! | `spank` | Slurm's interface |
//!
//! A wrong request (too much, not a size) fails the task with one line on its standard error, if plugstack.conf calls the
//! plugin `required`. Everything else that goes wrong costs a line in the node's log. Nothing here may panic in Slurm's
//! processes; if something did, it is caught in `guarded`.
#![cfg_attr(test, allow(dead_code, clippy::unwrap_used))]

mod arguments;
mod end;
mod judge;
mod limit;
mod spank;
mod state;

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use arguments::Arguments;
use limit::Task;
use spank::{Choice, Context, FAILURE, Handle, Item, SUCCESS};
use state::{Facts, JobFolder};

/// What Slurm looks at before it calls a plugin.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
static plugin_name: [c_char; 5] = letters(b"weir\0");
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
static plugin_type: [c_char; 6] = letters(b"spank\0");
/// The release of Slurm that it was built for; see build.rs.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
static plugin_version: u32 = number(env!("WEIR_SLURM_NUMBER"));
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
static spank_plugin_version: u32 = 1;

const fn letters<const N: usize>(text: &[u8; N]) -> [c_char; N] {
    // SAFETY: both are N bytes.
    unsafe { std::mem::transmute_copy(text) }
}

const fn number(text: &str) -> u32 {
    match u32::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}

static GPU_MEM: Choice = Choice {
    name: c"gpu-mem",
    usage: c"limit of GPU memory on each GPU for all tasks of the job on a node, like 8G or 50%",
    number: 0,
    callback: given,
};
static PER_TASK: Choice = Choice {
    name: c"gpu-mem-per-task",
    usage: c"limit of GPU memory on each GPU for each task, like 8G or 50%",
    number: 1,
    callback: given,
};

/// Values of both options in this process.
static GIVEN: Mutex<[Option<String>; 2]> = Mutex::new([None, None]);
/// Tasks of this step on this node that have ended.
static ENDED: AtomicU32 = AtomicU32::new(0);

/// The step that is a batch script, and others that are not srun's (slurm.h, SLURM_BATCH_SCRIPT).
const BATCH: u32 = 0xffff_fffb;
/// Set for a batch script and what it starts: its end is the end of the job.
const IN_BATCH: &str = "SLURM_WEIR_BATCH";

/// Runs one of Slurm's calls; neither a panic nor a wrong word in plugstack.conf goes further.
fn guarded(count: c_int, words: *const *const c_char, act: impl FnOnce(&Arguments) -> Result<(), String>) -> c_int {
    // SAFETY: Slurm passes that many texts.
    let words = unsafe { spank::words(count, words) };
    let answer = catch_unwind(AssertUnwindSafe(|| {
        let arguments =
            Arguments::read(words.iter().map(String::as_str)).map_err(|bad| format!("plugstack.conf: {bad}"))?;
        act(&arguments)
    }));
    match answer {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(problem)) => {
            complain(&problem);
            FAILURE
        }
        Err(_) => {
            spank::log(true, "weir: internal error: a panic was caught");
            FAILURE
        }
    }
}

fn complain(problem: &str) {
    match spank::context() {
        Context::Local | Context::Allocator => spank::answer(&format!("weir: {problem}")),
        _ => spank::log(true, &format!("weir: {problem}")),
    }
}

/// An option was given: on the command line, in its variable, or with the step.
extern "C" fn given(number: c_int, value: *const c_char, _remote: c_int) -> c_int {
    // SAFETY: Slurm passes a text or null.
    let Some(text) = (unsafe { spank::text(value) }) else { return FAILURE };
    if let Err(problem) = limit::amount(&text) {
        let name = if number == 0 { "gpu-mem" } else { "gpu-mem-per-task" };
        complain(&format!("--{name}={problem}"));
        return FAILURE;
    }
    if let (Ok(mut values), Ok(number)) = (GIVEN.lock(), usize::try_from(number))
        && let Some(place) = values.get_mut(number)
    {
        *place = Some(text);
    }
    SUCCESS
}

/// Makes the options known.
#[unsafe(no_mangle)]
extern "C" fn slurm_spank_init(handle: Handle, count: c_int, words: *const *const c_char) -> c_int {
    if !matches!(spank::context(), Context::Local | Context::Allocator | Context::Remote) {
        return SUCCESS;
    }
    guarded(count, words, |_| {
        let known = [&GPU_MEM, &PER_TASK].into_iter().all(|choice| spank::register(handle, choice));
        known.then_some(()).ok_or_else(|| "Slurm did not take the options".into())
    })
}

/// Before the first step on a node, as root: what the whole job requests.
#[unsafe(no_mangle)]
extern "C" fn slurm_spank_job_prolog(handle: Handle, count: c_int, words: *const *const c_char) -> c_int {
    guarded(count, words, |arguments| {
        if let (Some(job), Some(requested)) = (spank::item(handle, Item::Job), spank::option(handle, &GPU_MEM)) {
            let folder = JobFolder::of(&arguments.state, job);
            folder.keep_requested(&requested).map_err(|error| format!("{}: {error}", arguments.state.display()))?;
        }
        Ok(())
    });
    // A failure here would drain the node.
    SUCCESS
}

/// Before the tasks of a step, as root: a folder in which its processes report themselves.
#[unsafe(no_mangle)]
extern "C" fn slurm_spank_init_post_opt(handle: Handle, count: c_int, words: *const *const c_char) -> c_int {
    if spank::context() != Context::Remote {
        return SUCCESS;
    }
    guarded(count, words, |arguments| {
        let number = |item| spank::item(handle, item);
        let (Some(job), Some(user), Some(group)) = (number(Item::Job), number(Item::User), number(Item::Group)) else {
            return Ok(());
        };
        if let Err(error) = JobFolder::of(&arguments.state, job).make(user, group) {
            // The job's limit is in force without it; only nobody will know.
            spank::log(true, &format!("weir: {}: {error}", arguments.state.display()));
        }
        Ok(())
    })
}

/// In each task before its program, as the user: its limit and its variables.
#[unsafe(no_mangle)]
extern "C" fn slurm_spank_task_init(handle: Handle, count: c_int, words: *const *const c_char) -> c_int {
    let mut problem = None;
    let code =
        guarded(count, words, |arguments| start(handle, arguments).inspect_err(|why| problem = Some(why.clone())));
    if let Some(problem) = problem {
        eprintln!("weir: this task is not started: {problem}");
    }
    code
}

fn start(handle: Handle, arguments: &Arguments) -> Result<(), String> {
    let variable = |name: &str| spank::variable(handle, name);
    let number = |item| spank::item(handle, item).unwrap_or(0);
    let [gpu_mem, per_task] = GIVEN.lock().map(|values| values.clone()).unwrap_or_default();
    let (job, step) = (number(Item::Job), number(Item::Step));
    let folder = JobFolder::of(&arguments.state, job);
    let gpus =
        variable("CUDA_VISIBLE_DEVICES").map_or(1, |list| list.split(',').filter(|name| !name.is_empty()).count());
    let task = Task {
        gpu_mem,
        each: per_task,
        job_gpu_mem: folder.requested(),
        partition: variable("SLURM_JOB_PARTITION").unwrap_or_default(),
        shards: variable("SLURM_SHARDS_ON_NODE"),
        gpus: u32::try_from(gpus).unwrap_or(1),
        job,
        step: if step < 0xffff_fff0 { step.to_string() } else { "batch".into() },
        number: number(Item::GlobalTask),
        tasks: spank::item(handle, Item::LocalTasks).unwrap_or(1),
        user: number(Item::User),
        node: node(handle),
        cap: variable("WEIR_CAP"),
        group: variable("WEIR_GROUP"),
        dir: variable("WEIR_DIR"),
        runs: variable("WEIR_RUN"),
        preload: variable("LD_PRELOAD"),
    };
    let processes = folder.processes();
    let plan = task.plan(arguments, folder.user().map(|_| processes.as_path()))?;
    if let Err(error) = std::fs::File::open(&arguments.library) {
        let missing = format!("{}: {error}", arguments.library.display());
        if let Some((_, limit)) = plan.limit {
            return Err(format!("the limit of {limit} cannot be in force: {missing}"));
        }
        spank::log(true, &format!("weir: the task runs without weir: {missing}"));
        return Ok(());
    }
    // One task speaks for all.
    if spank::item(handle, Item::Task) == Some(0) {
        for note in &plan.notes {
            eprintln!("weir: {note}");
        }
    }
    for (name, value) in &plan.set {
        if !spank::set_variable(handle, name, value) {
            return Err(format!("{name} could not be set"));
        }
    }
    if step == BATCH {
        spank::set_variable(handle, IN_BATCH, "1");
    }
    let names = ["HOME", "WEIR_DIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];
    let value = |name: &str| spank::variable(handle, name).map(|value| (name.to_owned(), value));
    let facts = Facts {
        folder: std::env::current_dir().unwrap_or_default(),
        variables: names.into_iter().filter_map(value).collect(),
    };
    let kept = folder.keep_facts(&facts).and_then(|()| match &plan.limit {
        Some((group, limit)) => folder.keep_limit(group, *limit),
        None => Ok(()),
    });
    if let Err(error) = kept {
        spank::log(true, &format!("weir: {}: {error}", processes.display()));
    }
    Ok(())
}

/// When a task has ended, as root.
#[unsafe(no_mangle)]
extern "C" fn slurm_spank_task_exit(handle: Handle, count: c_int, words: *const *const c_char) -> c_int {
    guarded(count, words, |arguments| {
        let number = |item| spank::item(handle, item);
        let last = ENDED.fetch_add(1, Ordering::SeqCst) + 1 >= number(Item::LocalTasks).unwrap_or(1);
        // A step of a batch script may have no need of a GPU; the script's end tells.
        let whole = number(Item::Step) == Some(BATCH) || spank::variable(handle, IN_BATCH).is_none();
        if let (true, true, Some(job)) = (last, whole, number(Item::Job)) {
            let killed = number(Item::Status).is_some_and(|status| status & 0x7f != 0);
            end::of_tasks(arguments, job, &node(handle), killed);
        }
        Ok(())
    })
}

/// At the end of the job on a node, as root.
#[unsafe(no_mangle)]
extern "C" fn slurm_spank_job_epilog(handle: Handle, count: c_int, words: *const *const c_char) -> c_int {
    guarded(count, words, |arguments| {
        if let Some(job) = spank::item(handle, Item::Job) {
            end::of_job(arguments, job, &node(handle));
        }
        Ok(())
    });
    // A failure here would drain the node.
    SUCCESS
}

/// The name of this node: Slurm's, else the machine's.
fn node(handle: Handle) -> String {
    let slurms = spank::variable(handle, "SLURMD_NODENAME").or_else(|| std::env::var("SLURMD_NODENAME").ok());
    let machines = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = slurms.filter(|name| !name.is_empty()).unwrap_or_else(machines);
    name.trim().split('.').next().unwrap_or_default().to_owned()
}
