//! Which limit a task gets, and with it which variables: from the job's options, its shards, the administrator's words and
//! the task's environment. Pure.

use std::path::Path;

use weir_settings::limit::{CapSetting, parse_group};
use weir_settings::size::{Amount, parse_amount};

use crate::arguments::Arguments;

/// What is known of a task when it is about to start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Task {
    /// --gpu-mem.
    pub(crate) gpu_mem: Option<String>,
    /// --gpu-mem-per-task.
    pub(crate) each: Option<String>,
    /// What the whole job requests by --gpu-mem, if a step requests something of its own.
    pub(crate) job_gpu_mem: Option<String>,
    /// SLURM_JOB_PARTITION.
    pub(crate) partition: String,
    /// SLURM_SHARDS_ON_NODE.
    pub(crate) shards: Option<String>,
    /// GPUs in CUDA_VISIBLE_DEVICES.
    pub(crate) gpus: u32,
    /// Job, step and place of the task in it.
    pub(crate) job: u32,
    /// The step, in words.
    pub(crate) step: String,
    /// The task's number in the step.
    pub(crate) number: u32,
    /// Tasks of the step on this node.
    pub(crate) tasks: u32,
    /// The user's number.
    pub(crate) user: u32,
    /// The name of the node.
    pub(crate) node: String,
    /// The task's own WEIR_CAP.
    pub(crate) cap: Option<String>,
    /// Its WEIR_GROUP.
    pub(crate) group: Option<String>,
    /// Its WEIR_DIR.
    pub(crate) dir: Option<String>,
    /// Its WEIR_RUN.
    pub(crate) runs: Option<String>,
    /// Its LD_PRELOAD.
    pub(crate) preload: Option<String>,
}

/// What becomes of the task's environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Variables to set.
    pub(crate) set: Vec<(&'static str, String)>,
    /// The limit of the group, with the group's name.
    pub(crate) limit: Option<(String, Amount)>,
    /// What the user should know.
    pub(crate) notes: Vec<String>,
}

impl Task {
    /// The variables of the task, or why it must not start. `run` is where its processes report themselves.
    pub(crate) fn plan(&self, arguments: &Arguments, run: Option<&Path>) -> Result<Plan, String> {
        let mut plan = Plan::default();
        let library = arguments.library.to_string_lossy();
        let preload = self.preload.as_deref().unwrap_or_default();
        let there = preload.split([':', ' ']).any(|file| file.ends_with("/libweir.so"));
        if !there {
            let text = if preload.is_empty() { library.into_owned() } else { format!("{preload}:{library}") };
            plan.set.push(("LD_PRELOAD", text));
        }
        if let (Some(pattern), None) = (&arguments.dir, &self.dir) {
            plan.set.push(("WEIR_DIR", self.filled(pattern)));
        }
        if let Some(run) = run.map(|run| run.to_string_lossy()) {
            let others = self.runs.as_deref().unwrap_or_default();
            if !others.split(':').any(|other| other == run) {
                plan.set.push(("WEIR_RUN", if others.is_empty() { run.into() } else { format!("{run}:{others}") }));
            }
        }
        let Some((limit, of_task)) = self.limit(arguments)? else { return Ok(plan) };
        let (cap, note) = self.lowered(limit, arguments)?;
        plan.notes.extend(note);
        let group = self.group(of_task);
        let replaced = self.group.as_deref().filter(|own| !own.is_empty() && !own.starts_with("slurm-"));
        plan.notes.extend(
            replaced.map(|own| format!("WEIR_GROUP={own} is replaced: the job's limit has a group of its own")),
        );
        plan.set.push(("WEIR_CAP", cap));
        plan.set.push(("WEIR_GROUP", group.clone()));
        // A limit that cannot be in force fails the job's cuInit, whatever the job has set.
        plan.set.push(("WEIR_STRICT", "1".into()));
        plan.limit = Some((group, limit));
        Ok(plan)
    }

    /// The limit on each GPU, and whether it is this task's alone.
    fn limit(&self, arguments: &Arguments) -> Result<Option<(Amount, bool)>, String> {
        let read = |option: &str, text: &Option<String>| -> Result<Option<Amount>, String> {
            let Some(text) = text else { return Ok(None) };
            amount(text).map(Some).map_err(|problem| format!("--{option}={problem}"))
        };
        let requested = read("gpu-mem", &self.gpu_mem)?;
        let per_task = read("gpu-mem-per-task", &self.each)?;
        let of_job = read("gpu-mem", &self.job_gpu_mem)?;
        if requested.is_some() && per_task.is_some() {
            return Err("--gpu-mem and --gpu-mem-per-task exclude each other".into());
        }
        let tasks = u64::from(self.tasks.max(1));
        let together = requested.or_else(|| per_task.map(|each| times(each, tasks)));
        let size = arguments.gpu;
        // What nobody may exceed: the most of the partition, the job's share of the GPUs, what the job was given.
        let share = self.share(arguments)?;
        let most = arguments.most_of(&self.partition);
        let bounds = [
            (most, format!("the maximum of partition {}", self.partition)),
            (share, "the job's shards".to_owned()),
            (of_job, "the job's --gpu-mem".to_owned()),
        ];
        let bounds = bounds.iter().filter_map(|(bound, name)| bound.map(|bound| (bound, name)));
        if let Some(wanted) = together {
            for (bound, name) in bounds {
                match less(wanted, bound, size) {
                    Some(true) => {}
                    Some(false) => return Err(format!("{wanted} of GPU memory is more than {name}, {bound}")),
                    None => {
                        return Err(format!(
                            "{wanted} cannot be compared with {name}, {bound}: gpu_size= is not set in plugstack.conf"
                        ));
                    }
                }
            }
            return Ok(Some((per_task.unwrap_or(wanted), per_task.is_some())));
        }
        // Who asks for nothing gets the default, never more than any bound.
        let mut limit = arguments.default_of(&self.partition);
        for (bound, name) in bounds {
            limit = Some(match limit.map(|limit| (limit, less(limit, bound, size))) {
                None | Some((_, Some(false))) => bound,
                Some((limit, Some(true))) => limit,
                Some((limit, None)) => {
                    return Err(format!(
                        "{limit} cannot be compared with {name}, {bound}: gpu_size= is not set in plugstack.conf"
                    ));
                }
            });
        }
        Ok(limit.map(|limit| (limit, false)))
    }

    /// The share of a GPU that the job's shards are: of each, where they are spread over several.
    fn share(&self, arguments: &Arguments) -> Result<Option<Amount>, String> {
        let Some(text) = &self.shards else { return Ok(None) };
        let Some(shards) = shards(text) else {
            return Err(format!("SLURM_SHARDS_ON_NODE={text}: expected a number, or TYPE:NUMBER"));
        };
        let Some(each) = arguments.shards else {
            return Err("the job has shards, but shards_per_gpu= is not set in plugstack.conf".into());
        };
        let of = u64::from(each) * u64::from(self.gpus.max(1));
        if shards == 0 {
            return Ok(None);
        }
        let millionths = (shards.saturating_mul(1_000_000) / of).clamp(1, 1_000_000);
        Ok(Some(Amount::Share(u32::try_from(millionths).unwrap_or(1_000_000))))
    }

    /// WEIR_CAP: the limit, or what the task has set itself where that is less.
    fn lowered(&self, limit: Amount, arguments: &Arguments) -> Result<(String, Option<String>), String> {
        let Some(text) = self.cap.as_deref().filter(|text| !text.trim().is_empty()) else {
            return Ok((written(limit), None));
        };
        let own = CapSetting::parse(text).map_err(|bad| format!("WEIR_CAP={bad}"))?;
        let mut incomparable = false;
        let mut least = |own: Amount| match less(own, limit, arguments.gpu) {
            Some(true) => own,
            Some(false) => limit,
            None => {
                incomparable = true;
                limit
            }
        };
        let mut entries = vec![written(own.default.map_or(limit, &mut least))];
        entries.extend(own.named.iter().map(|(device, amount)| format!("{device}={}", written(least(*amount)))));
        let note =
            incomparable.then(|| format!("WEIR_CAP={text} cannot be compared with the job's limit; {limit} applies"));
        Ok((entries.join(","), note))
    }

    /// The group that shares the limit.
    fn group(&self, of_task: bool) -> String {
        let start = if of_task {
            format!("slurm-{}-{}-{}", self.job, self.step, self.number)
        } else {
            format!("slurm-{}", self.job)
        };
        let fits = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
        let node: String = self.node.chars().filter(fits).collect();
        let mut name = format!("{start}-{node}");
        name.truncate(64);
        // Only what the grammar of names takes is left in it.
        parse_group(&name).unwrap_or(start)
    }

    fn filled(&self, pattern: &str) -> String {
        let (user, job) = (self.user.to_string(), self.job.to_string());
        pattern.replace("%u", &user).replace("%j", &job).replace("%n", &self.node)
    }
}

/// Reads a limit that somebody asks for.
pub(crate) fn amount(text: &str) -> Result<Amount, String> {
    match parse_amount(text) {
        Ok(Amount::Bytes(0) | Amount::Share(0)) => Err(format!("\"{text}\": a limit of 0 leaves the job no memory")),
        Ok(amount) => Ok(amount),
        Err(bad) => Err(bad.to_string()),
    }
}

/// `2`, `a100:2` or `a100:2,h100:1`.
fn shards(text: &str) -> Option<u64> {
    let number = |entry: &str| entry.rsplit(':').next()?.trim().parse::<u32>().ok().map(u64::from);
    text.split(',').map(number).sum()
}

/// Whether one is at most the other; none if only a GPU's size could decide that.
pub(crate) fn less(one: Amount, other: Amount, gpu: Option<u64>) -> Option<bool> {
    match (one, other) {
        (Amount::Bytes(one), Amount::Bytes(other)) => Some(one <= other),
        (Amount::Share(one), Amount::Share(other)) => Some(one <= other),
        _ => gpu.map(|size| one.of(size) <= other.of(size)),
    }
}

fn times(amount: Amount, tasks: u64) -> Amount {
    match amount {
        Amount::Bytes(bytes) => Amount::Bytes(bytes.saturating_mul(tasks)),
        // More than the whole is refused by what it is compared with, or means the whole.
        Amount::Share(part) => Amount::Share(u32::try_from(u64::from(part).saturating_mul(tasks)).unwrap_or(u32::MAX)),
    }
}

/// So that it is read back exactly.
fn written(amount: Amount) -> String {
    const UNITS: [(&str, u64); 2] = [("GiB", 1 << 30), ("MiB", 1 << 20)];
    match amount {
        Amount::Share(_) => amount.to_string(),
        Amount::Bytes(bytes) => {
            let unit = UNITS.iter().find(|(_, size)| bytes % size == 0);
            unit.map_or_else(|| format!("{bytes}B"), |(name, size)| format!("{}{name}", bytes / size))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &str) -> Arguments {
        Arguments::read(words.split_whitespace()).unwrap()
    }

    fn task() -> Task {
        let node = "n1".to_owned();
        Task {
            partition: "main".into(),
            gpus: 1,
            job: 7,
            step: "0".into(),
            tasks: 1,
            user: 1000,
            node,
            ..Task::default()
        }
    }

    fn set(plan: &Plan, name: &str) -> Option<String> {
        plan.set.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone())
    }

    fn cap(task: &Task, arguments: &str) -> Result<String, String> {
        task.plan(&words(arguments), None).map(|plan| set(&plan, "WEIR_CAP").unwrap_or_default())
    }

    fn asking(size: &str) -> Task {
        Task { gpu_mem: Some(size.into()), ..task() }
    }

    #[test]
    fn what_is_requested_is_the_limit_up_to_the_maximum_of_the_partition() {
        assert_eq!(cap(&asking("8G"), ""), Ok("8GiB".into()));
        assert_eq!(cap(&asking("8G"), "default=2G max=8G"), Ok("8GiB".into()));
        let refused = cap(&asking("9G"), "max=16G max:main=8G").unwrap_err();
        assert!(
            refused.contains("9.00 GiB") && refused.contains("partition main") && refused.contains("8.00 GiB"),
            "{refused}"
        );
        assert_eq!(cap(&asking("9G"), "max=16G max:small=8G"), Ok("9GiB".into()));
        assert_eq!(cap(&asking("1.5M"), ""), Ok("1572864B".into()), "to the byte");
        for bad in ["0", "8", "-1G", "lots", ""] {
            assert!(cap(&asking(bad), "").unwrap_err().starts_with("--gpu-mem="), "{bad}");
        }
    }

    #[test]
    fn who_asks_for_nothing_gets_the_default_and_never_more_than_the_maximum() {
        assert_eq!(cap(&task(), ""), Ok(String::new()), "no limit at all");
        assert_eq!(cap(&task(), "default=4G"), Ok("4GiB".into()));
        assert_eq!(cap(&task(), "default=4G max=2G"), Ok("2GiB".into()));
        assert_eq!(cap(&task(), "max=2G"), Ok("2GiB".into()));
        assert!(cap(&task(), "default=4G max=50%").unwrap_err().contains("gpu_size"));
        assert_eq!(cap(&task(), "default=4G max=50% gpu_size=6G"), Ok("50%".into()));
    }

    #[test]
    fn shards_are_a_share_of_each_gpu_that_the_job_has() {
        let with = |shards: &str, gpus| Task { shards: Some(shards.into()), gpus, ..task() };
        assert_eq!(cap(&with("2", 1), "shards_per_gpu=8"), Ok("25%".into()));
        assert_eq!(cap(&with("a100:2", 1), "shards_per_gpu=8"), Ok("25%".into()), "with a type");
        assert_eq!(cap(&with("a100:2,h100:2", 2), "shards_per_gpu=4"), Ok("50%".into()), "over two GPUs");
        assert_eq!(cap(&with("1", 1), "shards_per_gpu=3"), Ok("33.3333%".into()), "never more than the part");
        assert_eq!(cap(&with("2", 1), "shards_per_gpu=8 default=1G gpu_size=8G"), Ok("1GiB".into()));
        assert!(cap(&with("2", 1), "").unwrap_err().contains("shards_per_gpu"), "a limit that cannot be known");
        assert!(cap(&with("a100:many", 1), "shards_per_gpu=8").is_err());
        let more = Task { gpu_mem: Some("50%".into()), ..with("2", 1) };
        assert!(cap(&more, "shards_per_gpu=8").unwrap_err().contains("shards"));
        let less = Task { gpu_mem: Some("10%".into()), ..with("2", 1) };
        assert_eq!(cap(&less, "shards_per_gpu=8"), Ok("10%".into()));
    }

    #[test]
    fn a_tasks_own_variable_lowers_and_never_raises_it() {
        let with = |own: &str| Task { cap: Some(own.into()), ..asking("8G") };
        assert_eq!(cap(&with("2GiB"), ""), Ok("2GiB".into()));
        assert_eq!(cap(&with("16GiB"), ""), Ok("8GiB".into()));
        assert_eq!(cap(&with("0=2GiB,1=16GiB"), ""), Ok("8GiB,0=2GiB,1=8GiB".into()), "by device");
        assert_eq!(cap(&with("GPU-5f=2GiB,3GiB"), ""), Ok("3GiB,GPU-5f=2GiB".into()));
        assert_eq!(cap(&with("50%"), "gpu_size=8G"), Ok("50%".into()));
        let unknown = with("50%").plan(&words(""), None).unwrap();
        assert_eq!(set(&unknown, "WEIR_CAP").unwrap(), "8GiB");
        assert!(unknown.notes.iter().any(|note| note.contains("50%")), "{:?}", unknown.notes);
        assert!(cap(&with("8"), "").unwrap_err().contains("WEIR_CAP"), "a bad value is no value");
        assert_eq!(
            cap(&Task { cap: Some("3GiB".into()), ..task() }, ""),
            Ok(String::new()),
            "without a limit it stays"
        );
    }

    #[test]
    fn a_step_cannot_ask_for_more_than_its_job() {
        let step = |job: &str| Task { job_gpu_mem: Some(job.into()), ..asking("8G") };
        assert_eq!(cap(&step("8G"), ""), Ok("8GiB".into()));
        assert!(cap(&step("4G"), "").unwrap_err().contains("the job's --gpu-mem"));
        assert_eq!(cap(&Task { job_gpu_mem: Some("4G".into()), ..task() }, ""), Ok("4GiB".into()));
    }

    #[test]
    fn tasks_of_a_job_on_a_node_share_a_group_unless_each_has_its_own_limit() {
        let group = |task: &Task| set(&task.plan(&words(""), None).unwrap(), "WEIR_GROUP").unwrap();
        let second = Task { number: 1, step: "3".into(), ..asking("8G") };
        assert_eq!(group(&asking("8G")), group(&second));
        assert_ne!(group(&asking("8G")), group(&Task { node: "n2".into(), ..asking("8G") }));
        let each = |number| Task { each: Some("2G".into()), number, tasks: 4, ..task() };
        assert_eq!(group(&each(1)), "slurm-7-0-1-n1");
        assert_ne!(group(&each(0)), group(&each(1)));
        assert_eq!(cap(&each(0), "max=8G"), Ok("2GiB".into()));
        assert!(cap(&each(0), "max=7G").unwrap_err().contains("8.00 GiB"), "all tasks together");
        assert!(cap(&Task { gpu_mem: Some("1G".into()), ..each(0) }, "").unwrap_err().contains("exclude"));
        let odd = Task { node: format!("n/1 {}", "x".repeat(90)), ..asking("8G") };
        assert!(parse_group(&group(&odd)).is_ok());
    }

    #[test]
    fn what_the_user_has_set_otherwise_is_kept() {
        let run = Path::new("/run/weir-slurm/7/processes");
        let own = Task {
            preload: Some("/x/first.so".into()),
            dir: Some("/data".into()),
            runs: Some("/a:/b".into()),
            group: Some("team".into()),
            ..asking("8G")
        };
        let plan = own.plan(&words("dir=/var/weir/%u/%j-%n"), Some(run)).unwrap();
        assert_eq!(set(&plan, "LD_PRELOAD").unwrap(), "/x/first.so:/usr/lib/weir/libweir.so");
        assert_eq!(set(&plan, "WEIR_RUN").unwrap(), "/run/weir-slurm/7/processes:/a:/b");
        assert_eq!(set(&plan, "WEIR_DIR"), None);
        assert!(plan.notes[0].contains("WEIR_GROUP=team"));
        // A step of a batch script, which has inherited all of it.
        let inherited = Task {
            preload: set(&plan, "LD_PRELOAD"),
            runs: set(&plan, "WEIR_RUN"),
            group: set(&plan, "WEIR_GROUP"),
            ..asking("8G")
        };
        let again = inherited.plan(&words("dir=/var/weir/%u/%j-%n"), Some(run)).unwrap();
        assert_eq!((set(&again, "LD_PRELOAD"), set(&again, "WEIR_RUN")), (None, None));
        assert_eq!(set(&again, "WEIR_DIR").unwrap(), "/var/weir/1000/7-n1");
        assert!(again.notes.is_empty());
    }
}
