//! Which job a run is a part of, and which rank it is there, by the variables that the journal has kept: Slurm's, those of
//! torchrun, MPI and TensorFlow, and weir's own group. Pure.

use weir_journal::Job;

use crate::{Error, Run};

/// A process of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Member {
    /// SLURM_JOB_ID, and the step in it.
    pub job: Option<String>,
    /// See [`Member::job`].
    pub step: Option<String>,
    /// SLURM_RESTART_COUNT: how often the job had been requeued.
    pub restarts: u32,
    /// WEIR_GROUP.
    pub group: Option<String>,
    /// Its number among the ranks.
    pub rank: Option<u32>,
    /// How many ranks there are.
    pub ranks: Option<u32>,
    /// What TensorFlow calls it: `worker 1`.
    pub task: Option<String>,
    /// The node, else the beginning of the machine's boot id.
    pub host: String,
}

impl Member {
    /// What a run says of itself.
    pub fn of(run: &Run) -> Result<Self, Error> {
        let job = run.reader().job().map_err(|error| run.broken(&error))?.unwrap_or_default();
        let [a, b, c, d, ..] = run.header().identity.boot;
        Ok(Self::from(&job, &format!("{:08x}", u32::from_be_bytes([a, b, c, d]))))
    }

    fn from(job: &Job, boot: &str) -> Self {
        let text = |name: &str| job.variable(name)?.to_str().map(str::to_owned).filter(|text| !text.is_empty());
        let number = |names: &[&str]| names.iter().find_map(|name| text(name)?.trim().parse().ok());
        let cluster = text("TF_CONFIG").and_then(|config| tensorflow(&config));
        let of_cluster = cluster.as_ref().map(|cluster| (cluster.rank, cluster.ranks));
        Self {
            job: text("SLURM_JOB_ID"),
            step: text("SLURM_STEP_ID"),
            restarts: number(&["SLURM_RESTART_COUNT"]).unwrap_or(0),
            group: text("WEIR_GROUP"),
            // What the framework goes by comes before what has started it.
            rank: of_cluster
                .map(|(rank, _)| rank)
                .or_else(|| number(&["RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"])),
            // A batch script has the number of tasks that its steps will have, and is one process.
            ranks: of_cluster
                .map(|(_, ranks)| ranks)
                .or_else(|| number(&["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"]))
                .or_else(|| text("SLURM_STEP_ID").and_then(|_| number(&["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]))),
            task: cluster.map(|cluster| cluster.name),
            host: text("SLURMD_NODENAME").unwrap_or_else(|| boot.to_owned()),
        }
    }

    /// Whether it is a part of the job that a person calls so: Slurm's number, with or without the step, or a group.
    pub fn is_of(&self, name: &str) -> bool {
        let (job, step) = name.split_once('.').map_or((name, None), |(job, step)| (job, Some(step)));
        let of_job = self.job.as_deref() == Some(job) && step.is_none_or(|step| self.step.as_deref() == Some(step));
        of_job || self.group.as_deref() == Some(name)
    }

    /// The runs of the job that a person calls so: of one that was requeued its last turn.
    pub fn select(runs: Vec<Run>, name: &str) -> Result<Vec<Run>, Error> {
        let mut found = Vec::new();
        for run in runs {
            let member = Self::of(&run)?;
            if member.is_of(name) {
                found.push((member.restarts, run));
            }
        }
        let last = found.iter().map(|(restarts, _)| *restarts).max();
        Ok(found.into_iter().filter(|(restarts, _)| Some(*restarts) == last).map(|(_, run)| run).collect())
    }

    /// What to call it.
    pub fn label(&self) -> Option<String> {
        self.task.clone().or_else(|| self.rank.map(|rank| format!("rank {rank}")))
    }
}

struct Cluster {
    rank: u32,
    ranks: u32,
    name: String,
}

/// TF_CONFIG: ranks are counted through the chief and the workers, as TensorFlow does.
fn tensorflow(config: &str) -> Option<Cluster> {
    let config: serde_json::Value = serde_json::from_str(config).ok()?;
    let (kind, index) = (config["task"]["type"].as_str()?, u32::try_from(config["task"]["index"].as_u64()?).ok()?);
    let count = |kind: &str| config["cluster"][kind].as_array().map_or(0, |list| list.len() as u32);
    let order = ["chief", "master", "worker"];
    let own = order.iter().position(|name| *name == kind);
    let before = own.map_or(order.len(), |own| own);
    let rank = order.iter().take(before).map(|name| count(name)).sum::<u32>().checked_add(index)?;
    let ranks = order.iter().map(|name| count(name)).sum();
    // Others (ps, evaluator) are no ranks of the computation, but are known by their name.
    let kind: String = kind.chars().filter(|c| c.is_alphanumeric() || *c == '_').take(20).collect();
    Some(Cluster { rank, ranks, name: format!("{kind} {index}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(variables: &[(&str, &str)]) -> Member {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Member::from(&Job { variables, ..Job::default() }, "0a0b0c0d")
    }

    #[test]
    fn ranks_are_known_by_what_has_started_them() {
        let slurm =
            member(&[("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "3"), ("SLURM_NTASKS", "4")]);
        assert_eq!((slurm.rank, slurm.ranks, slurm.host.as_str()), (Some(3), Some(4), "0a0b0c0d"));
        let torch = member(&[("SLURM_PROCID", "0"), ("RANK", "5"), ("WORLD_SIZE", "8"), ("SLURMD_NODENAME", "n1")]);
        assert_eq!(
            (torch.rank, torch.ranks, torch.host.as_str()),
            (Some(5), Some(8), "n1"),
            "one launcher, eight ranks"
        );
        assert_eq!(member(&[("OMPI_COMM_WORLD_RANK", "2")]).label().unwrap(), "rank 2");
        assert_eq!(
            member(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]).ranks,
            None,
            "a batch script is one process"
        );
        assert_eq!(member(&[]).label(), None);
        assert_eq!(member(&[("RANK", "many")]).rank, None);
    }

    #[test]
    fn tensorflow_counts_the_chief_first() {
        let config = |task: &str| {
            let cluster = r#"{"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}"#;
            member(&[("TF_CONFIG", &format!(r#"{{"cluster": {cluster}, "task": {task}}}"#)), ("SLURM_PROCID", "9")])
        };
        let worker = config(r#"{"type": "worker", "index": 1}"#);
        assert_eq!((worker.rank, worker.ranks, worker.label().unwrap()), (Some(2), Some(3), "worker 1".into()));
        assert_eq!(config(r#"{"type": "chief", "index": 0}"#).rank, Some(0));
        assert_eq!(config(r#"{"type": "worker", "index": 4294967295}"#).rank, Some(9), "nonsense is none");
        assert_eq!(config("[]").rank, Some(9));
    }

    #[test]
    fn a_job_has_a_number_a_step_or_a_group() {
        let own = member(&[("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "1"), ("WEIR_GROUP", "team-a")]);
        assert!(own.is_of("7") && own.is_of("7.1") && own.is_of("team-a"));
        assert!(!own.is_of("7.0") && !own.is_of("71") && !own.is_of("team") && !own.is_of(""));
    }
}
