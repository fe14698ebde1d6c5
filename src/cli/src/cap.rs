//! `weir cap`: shows the caps of living jobs, and changes one while the job runs. It touches ledger files only.

use crate::{output, settings};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;
use weir_ledger::Category;
use weir_ledger::LedgerDir;
use weir_ledger::control::{self, DeviceState, Target, Visit};
use weir_settings::limit::{Selector, uuid_text};
use weir_settings::size::{Amount, Human, parse_amount};

/// Arguments of `weir cap`.
#[derive(Args)]
#[command(after_long_help = "Examples:
  weir cap                      all caps here, and how much of each is used
  weir cap 4711 6GiB            set the cap of a running job
  weir cap team-a 50%           set the cap of a group
  weir cap --json | jq '.[].devices[].used'")]
pub(crate) struct Arguments {
    /// A process id, or the name of a group (WEIR_GROUP); default: everything that has a cap
    #[arg(value_name = "PID|GROUP")]
    target: Option<String>,
    /// The new cap: a size like 6GiB or a percentage of the device like 50%; default: show the current one
    #[arg(value_name = "SIZE")]
    size: Option<String>,
    /// The device, by its UUID or the beginning of it; default: every device that the job uses
    #[arg(long, value_name = "GPU-UUID")]
    device: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `weir cap`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match answer(arguments) {
        Ok(text) => {
            if arguments.json {
                output::exact(&text);
            } else {
                put!("{text}");
            }
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("weir cap: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn answer(arguments: &Arguments) -> Result<String, String> {
    let settings = settings::own();
    let place = LedgerDir::from_variables(settings.own_dir.as_deref(), settings.runtime_dir.as_deref());
    let Some(target) = &arguments.target else {
        let all: Vec<_> = control::list(&place).into_iter().map(|visit| (visit.devices(), visit)).collect();
        if arguments.json {
            return Ok(as_json(all.iter().map(|(devices, visit)| (visit, devices.as_slice()))));
        }
        let text: String = all.iter().map(|(devices, visit)| shown(visit, devices)).collect();
        return Ok(if text.is_empty() { "no running process has a cap\n".into() } else { text });
    };
    let target = match target.parse::<u32>() {
        Ok(pid) => Target::Process(pid),
        Err(_) => Target::Group(target.clone()),
    };
    let visit = control::find(&place, &target).map_err(|e| e.to_string())?;
    let mut devices = visit.devices();
    if let Some(wanted) = &arguments.device {
        let Selector::Uuid(start) = Selector::parse(wanted).map_err(|e| e.to_string())? else {
            return Err(format!("--device {wanted}: not a UUID; expected one like GPU-5f1c…"));
        };
        devices.retain(|device| uuid_text(device.uuid).replace('-', "").to_lowercase()[3..].starts_with(&start));
        if devices.len() != 1 {
            return Err(match devices.len() {
                0 => format!("--device {wanted}: no such device of {target}"),
                many => format!("--device {wanted}: ambiguous: {many} devices of {target} match"),
            });
        }
    }
    if let Some(size) = &arguments.size {
        let amount = parse_amount(size).map_err(|e| e.to_string())?;
        order(&visit, &target, &devices, amount)?;
        devices = visit.devices().into_iter().filter(|now| devices.iter().any(|d| d.uuid == now.uuid)).collect();
    }
    Ok(if arguments.json { as_json(std::iter::once((&visit, devices.as_slice()))) } else { shown(&visit, &devices) })
}

/// JSON: a list, of one element where a target was named.
fn as_json<'a>(visits: impl Iterator<Item = (&'a Visit, &'a [DeviceState])>) -> String {
    let device = |device: &DeviceState| {
        let holdings: Vec<_> = device
            .holdings
            .iter()
            .map(|holding| json!({"pid": holding.pid, "charged": holding.charged, "waits_for": holding.waits_for}))
            .collect();
        json!({"uuid": uuid_text(device.uuid), "cap": device.cap, "set_while_running": device.ordered,
               "used": device.used, "peak": device.peak, "processes": holdings})
    };
    let all: Vec<_> = visits
        .map(|(visit, devices)| {
            json!({"target": visit.target.to_string(), "devices": devices.iter().map(device).collect::<Vec<_>>()})
        })
        .collect();
    format!("{:#}\n", serde_json::Value::from(all))
}

fn order(visit: &Visit, target: &Target, devices: &[DeviceState], amount: Amount) -> Result<(), String> {
    if devices.is_empty() {
        return Err(format!("{target} has not used a device yet"));
    }
    for device in devices {
        visit
            .order_cap(device.uuid, amount)
            .ok_or_else(|| format!("{amount} is not a possible cap of {target} on {}", uuid_text(device.uuid)))?;
    }
    Ok(())
}

fn shown(visit: &Visit, devices: &[DeviceState]) -> String {
    use std::fmt::Write;
    let mut text = format!("{}\n", visit.target);
    for device in devices {
        let cap = device.cap.map_or_else(|| "no cap".into(), |cap| format!("cap {}", Human(cap)));
        let ordered = if device.ordered { ", set while it runs" } else { "" };
        let (uuid, used, peak) = (uuid_text(device.uuid), Human(device.used), Human(device.peak));
        let _ = writeln!(text, "  {uuid}: {cap}{ordered}; used {used}, at most {peak}");
        for holding in &device.holdings {
            let waits = holding.waits_for.map(|b| format!(", waits for {}", Human(b))).unwrap_or_default();
            let spilled = holding.by_category.get(Category::Spilled as usize).copied().filter(|bytes| *bytes > 0);
            let spilled = spilled.map(|b| format!(", and {} of the host's memory", Human(b))).unwrap_or_default();
            let _ = writeln!(text, "    process {}: {}{spilled}{waits}", holding.pid, Human(holding.charged));
        }
    }
    text
}
