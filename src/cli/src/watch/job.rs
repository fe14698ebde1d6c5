//! One job: its journal, read again whenever something was written since the last look.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Serialize;
use weir_forensics::names;
use weir_forensics::xla::Live;
use weir_journal::reader::{Device, Error, Reader, open_file};
use weir_journal::{Class, journal_life};

use super::history::History;
use super::holders::{Key, LiveHolder, Names, sums};
use super::{Charges, clean};

/// Holders of one device that are kept, largest first.
const MOST_HOLDERS: usize = 100;

/// Whether a job lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Life {
    /// It runs.
    Alive,
    /// Unknown: the process is in another pid namespace.
    Unknown,
    /// It exited in order.
    Ended,
    /// It is gone without a word.
    Killed,
}

/// The latest out-of-memory failure of a job.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Oom {
    /// Seconds since 1970.
    pub(crate) at: f64,
    /// Bytes requested.
    pub(crate) requested: u64,
    /// `cap`, `fragmentation`, `freed_too_late`, `device_full`, `unknown`.
    pub(crate) cause: String,
    /// Operation and Python line of the request; may be empty.
    pub(crate) by: String,
}

/// What a job has on one device.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Gpu {
    /// Its number in the journal.
    pub(crate) device: u8,
    /// Its UUID.
    pub(crate) uuid: String,
    /// Its name.
    pub(crate) name: String,
    /// Its memory.
    pub(crate) total: u64,
    /// The cap in force.
    pub(crate) cap: Option<u64>,
    /// Bytes that the job holds: requested and not freed.
    pub(crate) live: u64,
    /// Allocations of the job.
    pub(crate) blocks: u64,
    /// The most bytes the job ever took from the device.
    pub(crate) peak: u64,
    /// Physical bytes taken from the device.
    pub(crate) charged: u64,
    /// Of these, kept by the pool for the next request.
    pub(crate) cached: u64,
    /// Bytes charged to other processes of the same group.
    pub(crate) by_others: u64,
    /// Bytes that the job waits for at the cap.
    pub(crate) waits_for: Option<u64>,
    /// Bytes a second, over the last minute, where there is growth.
    pub(crate) growth: Option<f64>,
    /// Seconds until the cap, or the device's end, is reached at that growth.
    pub(crate) full_in: Option<f64>,
    /// Seconds that `change` of the holders covers.
    pub(crate) span: f64,
    /// Age in seconds and live bytes, oldest first.
    pub(crate) history: Vec<(f64, u64)>,
    /// Who holds it, largest first.
    pub(crate) holders: Vec<LiveHolder>,
}

impl Gpu {
    /// What the job may take at most: its cap, else the device.
    pub(crate) fn limit(&self) -> u64 {
        self.cap.filter(|cap| *cap < self.total || self.total == 0).unwrap_or(self.total)
    }
}

/// A job at one moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Job {
    /// Process id, in its own namespace.
    pub(crate) pid: u32,
    /// Whether it lives.
    pub(crate) life: Life,
    /// Its command line.
    pub(crate) command: String,
    /// Its group, if it shares a cap.
    pub(crate) group: Option<String>,
    /// Its user, by name where the machine knows it.
    pub(crate) user: String,
    /// The job of a scheduler that it belongs to: SLURM_JOB_ID, with the step.
    pub(crate) scheduler_id: Option<String>,
    /// The pod that it runs in: WEIR_POD, which a deployment sets.
    pub(crate) pod: Option<String>,
    /// When the journal was begun, in seconds since 1970.
    pub(crate) started: f64,
    /// The journal.
    pub(crate) journal: PathBuf,
    /// Events recorded so far.
    pub(crate) events: u64,
    /// Out-of-memory failures so far.
    pub(crate) ooms: u64,
    /// The latest one that was dumped.
    pub(crate) last_oom: Option<Oom>,
    /// Why weir turned itself off in this job.
    pub(crate) turned_off: Option<String>,
    /// Bytes of host memory in use, at the last sample.
    pub(crate) resident: u64,
    /// What it has on each device.
    pub(crate) gpus: Vec<Gpu>,
}

/// A user's name, where the machine knows it; else the number.
pub(crate) fn user_name(number: u32) -> String {
    let number = number.to_string();
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| clean(name))
    });
    named.unwrap_or(number)
}

/// Whose a run is: its user, its scheduler's job and its pod.
fn owner(reader: &Reader) -> (String, Option<String>, Option<String>) {
    let job = reader.job().ok().flatten().unwrap_or_default();
    let value = |name: &str| job.variable(name).map(|value| clean(&value.to_string_lossy()));
    let step = value("SLURM_STEP_ID").map(|step| format!(".{step}")).unwrap_or_default();
    (user_name(reader.header().identity.user), value("SLURM_JOB_ID").map(|job| job + &step), value("WEIR_POD"))
}

/// A journal that is being watched.
pub(super) struct Watched {
    path: PathBuf,
    file: File,
    reader: Reader,
    names: Names,
    xla: Live,
    history: History,
    /// The tables when the journal had so many events.
    read_at: Option<u64>,
    sums: HashMap<Key, (u64, u64)>,
    last_oom: (u64, Option<Oom>),
    /// Whether it has been seen alive, or began and ended between two looks.
    lived: bool,
    /// Its user, its scheduler's job and its pod.
    owner: (String, Option<String>, Option<String>),
}

impl Watched {
    /// Opens a journal; of a living job, with the last minute before now. A run that began after `began` has lived while it
    /// was watched.
    pub(super) fn open(path: &Path, now: f64, began: f64) -> Result<Self, Error> {
        let reader = Reader::open(path)?;
        let file = open_file(path)?;
        let lived = journal_life(&file, Some(reader.header())) != weir_journal::Life::Dead;
        let mut names = Names::default();
        let mut xla = Live::default();
        let history =
            if lived { History::from_journal(&reader, now, &mut names, (&mut xla, path))? } else { History::default() };
        let lived = lived || reader.header().started.realtime as f64 / 1e9 >= began;
        let (path, sums, owner) = (path.to_owned(), HashMap::new(), owner(&reader));
        Ok(Self { path, file, reader, names, xla, history, read_at: None, sums, last_oom: (0, None), lived, owner })
    }

    /// Whether the job lived while it was watched.
    pub(super) fn lived(&self) -> bool {
        self.lived
    }

    /// How the job is now.
    pub(super) fn look(&mut self, now: f64, charges: &Charges) -> Result<Job, Error> {
        let life = journal_life(&self.file, Some(self.reader.header()));
        // After that: what a job wrote right before its end is seen.
        self.reader.refresh()?;
        let events = self.reader.header().counters.events;
        if self.read_at != Some(events) {
            let live = self.reader.state()?.live;
            self.sums = sums(&live, &self.reader, &mut self.names, Some((&mut self.xla, &self.path)));
            self.read_at = Some(events);
        }
        let devices = self.reader.devices()?;
        let totals = devices.iter().map(|device| (device.number, live_bytes(device))).collect();
        if life != weir_journal::Life::Dead {
            self.history.note(now, totals, &self.sums);
        }
        self.note_oom()?;
        let header = self.reader.header();
        let pid = header.identity.pid;
        // A ledger knows processes by their number, which may be another's by now.
        let (dead, none) = (life == weir_journal::Life::Dead, Charges::new());
        let charges = if dead { &none } else { charges };
        let of_pid = |device: &Device| charges.get(&(pid, device.uuid));
        Ok(Job {
            pid,
            life: match life {
                weir_journal::Life::Alive => Life::Alive,
                weir_journal::Life::Unknown => Life::Unknown,
                weir_journal::Life::Dead if header.clean_exit => Life::Ended,
                weir_journal::Life::Dead => Life::Killed,
            },
            command: clean(&header.command.join(" ")),
            group: devices.iter().filter_map(of_pid).find_map(|charge| charge.group.clone()),
            user: self.owner.0.clone(),
            scheduler_id: self.owner.1.clone(),
            pod: self.owner.2.clone(),
            started: header.started.realtime as f64 / 1e9,
            journal: self.path.clone(),
            events,
            ooms: header.counters.oom_seen,
            last_oom: self.last_oom.1.clone(),
            turned_off: header.turned_off.as_ref().map(|(_, reason)| clean(reason)),
            resident: header.resident,
            gpus: devices.iter().filter(|device| device.number < 63).map(|d| self.gpu(d, now, pid, charges)).collect(),
        })
    }

    fn gpu(&self, device: &Device, now: f64, pid: u32, charges: &Charges) -> Gpu {
        let charge = charges.get(&(pid, device.uuid));
        let live = live_bytes(device);
        let of = |wanted: Class, peak: bool| {
            let found = device.usage.iter().find(|(class, _, _)| *class == wanted);
            found.map_or(0, |(_, now, most)| if peak { *most } else { *now })
        };
        // Without a ledger: what the pool has taken for its blocks, and what came straight from the driver.
        let taken = |peak: bool| {
            let direct: u64 =
                [Class::Device, Class::Managed, Class::Array, Class::Imported, Class::Overhead, Class::Other]
                    .into_iter()
                    .map(|class| of(class, peak))
                    .sum();
            // Meshing lets blocks share memory: handles may then be fewer bytes than blocks.
            let pooled = if of(Class::Handle, true) > 0 { of(Class::Handle, peak) } else { of(Class::Block, peak) };
            direct + pooled
        };
        let charged = charge.map_or_else(|| taken(false), |charge| charge.charged);
        let mut holders: Vec<LiveHolder> = self
            .sums
            .iter()
            .filter(|((on, ..), (bytes, _))| *on == device.number && *bytes > 0)
            .map(|(key, (bytes, blocks))| LiveHolder {
                op: key.1.clone(),
                line: key.2.clone(),
                class: key.3,
                bytes: *bytes,
                blocks: *blocks,
                change: *bytes as i64 - self.history.before(key) as i64,
            })
            .collect();
        holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| (&a.line, &a.op).cmp(&(&b.line, &b.op))));
        let blocks = holders.iter().map(|holder| holder.blocks).sum();
        holders.truncate(MOST_HOLDERS);
        let trend = self.history.trend(device.number, now).filter(weir_forensics::trend::Trend::grows);
        let mut gpu = Gpu {
            device: device.number,
            uuid: weir_settings::limit::uuid_text(device.uuid),
            name: clean(&device.name),
            total: device.total,
            cap: charge.map_or_else(|| Some(device.cap).filter(|cap| *cap != 0), |charge| charge.cap),
            live,
            blocks,
            peak: charge.map_or_else(|| taken(true), |charge| charge.peak).max(charged),
            charged,
            cached: charged.saturating_sub(live),
            by_others: charge.map_or(0, |charge| charge.by_others),
            waits_for: charge.and_then(|charge| charge.waits_for),
            growth: trend.map(|trend| trend.slope),
            full_in: None,
            span: self.history.span(now),
            history: self.history.of_device(device.number, now),
            holders,
        };
        gpu.full_in = trend.and_then(|trend| trend.until(gpu.limit().saturating_sub(gpu.by_others) as f64));
        gpu
    }

    /// Reads the latest dump when there is a new one.
    fn note_oom(&mut self) -> Result<(), Error> {
        let dumps = self.reader.header().counters.oom_dumps;
        if dumps == self.last_oom.0 {
            return Ok(());
        }
        let latest = self.reader.oom_dumps()?.pop();
        let dump_json = latest.and_then(|dump| serde_json::from_str::<serde_json::Value>(&dump.json).ok());
        self.last_oom = (
            dumps,
            dump_json.map(|dump_json| {
                let text = |name: &str| clean(dump_json[name].as_str().unwrap_or_default());
                Oom {
                    at: dump_json["realtime_ns"].as_u64().unwrap_or(0) as f64 / 1e9,
                    requested: dump_json["requested"].as_u64().unwrap_or(0),
                    cause: text("cause"),
                    by: format!("{} {}", names::base_name(&text("python")), text("op")).trim().to_owned(),
                }
            }),
        );
        Ok(())
    }
}

fn live_bytes(device: &Device) -> u64 {
    device.usage.iter().filter(|(class, ..)| weir_forensics::is_held(*class)).map(|(_, live, _)| live).sum()
}
