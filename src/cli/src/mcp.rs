//! `weir mcp`: the recorded runs for an assistant, by the Model Context Protocol over standard input and output: one JSON-RPC
//! message a line. Its tools read runs and nothing else: none starts a job, and none takes a command.
//!
//! A tool is a command of weir with `--json`, run as a child: a run that cannot be read, or a replay that takes too long,
//! ends the child alone.

use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Versions of the protocol that this speaks, the newest first.
const VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];
/// A longer message is refused.
const MOST_MESSAGE: u64 = 1 << 20;
/// What a tool answers at most: more is of no use to an assistant.
const MOST_ANSWER: usize = 256 << 10;
/// How long a tool may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Arguments of `weir mcp`.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  claude mcp add weir -- weir mcp
  weir mcp --dir /shared/journals         the runs of this directory only")]
pub(crate) struct Arguments {
    /// The directory of the runs; default: WEIR_DIR, else ~/.local/state/weir
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A tool: a command of weir that reads runs.
struct Tool {
    name: &'static str,
    help: &'static str,
    command: &'static str,
    /// Arguments, with the option that each stands for; the empty one is the run.
    takes: &'static [(&'static str, &'static str, &'static str)],
}

const RUN: (&str, &str, &str) =
    ("run", "", "The name of a run as weir_list shows it, or a process id; default: the newest run");

const TOOLS: [Tool; 4] = [
    Tool {
        name: "weir_list",
        help: "List the recorded runs: command, process, state, peak, cap",
        command: "list",
        takes: &[],
    },
    Tool {
        name: "weir_report",
        help: "Report why a job ran out of GPU memory, what holds it, and remedies that were replayed",
        command: "report",
        takes: &[RUN, ("at", "--at", "A moment: oom, peak, end or a step like 165")],
    },
    Tool {
        name: "weir_replay",
        help: "Replay a recorded job: would it fit into another cap, or with another allocator?",
        command: "replay",
        takes: &[
            RUN,
            ("cap", "--cap", "The cap to try, like 6GiB or 50%; default: the smallest one is looked for"),
            ("policy", "--policy", "Allocators to try: weir, bfc, bfc-growth, torch"),
        ],
    },
    Tool {
        name: "weir_plan",
        help: "Would a recorded job fit another GPU?",
        command: "plan",
        takes: &[RUN, ("gpu", "--gpu", "The GPU: a size like 24GiB or a name like A100-40GB")],
    },
];

/// Runs `weir mcp` until its standard input ends.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let mut input = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        match input.by_ref().take(MOST_MESSAGE).read_until(b'\n', &mut line) {
            Ok(0) => return ExitCode::SUCCESS,
            Ok(_) => {}
            Err(error) => {
                eprintln!("weir mcp: {error}");
                return ExitCode::FAILURE;
            }
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if let Some(reply) = answer(&line, arguments) {
            let mut out = std::io::stdout().lock();
            if writeln!(out, "{reply}").and_then(|()| out.flush()).is_err() {
                return ExitCode::SUCCESS;
            }
        }
    }
}

/// The reply to a message; none to a notification.
fn answer(line: &[u8], arguments: &Arguments) -> Option<Value> {
    let failed = |id: Value, code: i32, why: &str| {
        Some(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}))
    };
    let Ok(message) = serde_json::from_slice::<Value>(line) else {
        return failed(Value::Null, -32700, "not a JSON-RPC message of at most 1 MiB on one line");
    };
    let id = message.get("id")?.clone();
    let parameters = &message["params"];
    let result = match message["method"].as_str() {
        Some("initialize") => {
            let wanted = parameters["protocolVersion"].as_str().unwrap_or_default();
            let version = VERSIONS.iter().find(|version| **version == wanted).unwrap_or(&VERSIONS[0]);
            json!({
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "weir", "version": env!("CARGO_PKG_VERSION")},
            })
        }
        Some("ping") => json!({}),
        Some("tools/list") => json!({"tools": TOOLS.iter().map(described).collect::<Vec<_>>()}),
        Some("tools/call") => {
            let name = parameters["name"].as_str().unwrap_or_default();
            let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else {
                return failed(id, -32602, &format!("no tool {name:?}; tools/list has them"));
            };
            match words(tool, &parameters["arguments"]).and_then(|words| call(tool, words, arguments)) {
                Ok(text) => json!({"content": [{"type": "text", "text": text}], "isError": false}),
                Err(why) => json!({"content": [{"type": "text", "text": why}], "isError": true}),
            }
        }
        method => return failed(id, -32601, &format!("no method {method:?}")),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

fn described(tool: &Tool) -> Value {
    let property =
        |(name, _, help): &(&str, &str, &str)| ((*name).to_owned(), json!({"type": "string", "description": help}));
    let properties: serde_json::Map<String, Value> = tool.takes.iter().map(property).collect();
    json!({
        "name": tool.name,
        "description": tool.help,
        "inputSchema": {"type": "object", "properties": properties, "additionalProperties": false},
        "annotations": {"readOnlyHint": true},
    })
}

/// The words that a tool's arguments are on the command line. No argument can be another option.
fn words(tool: &Tool, given: &Value) -> Result<Vec<String>, String> {
    let none = serde_json::Map::new();
    let given = given.as_object().unwrap_or(&none);
    let mut options = Vec::new();
    let mut last = Vec::new();
    for (name, value) in given {
        let Some((_, option, _)) = tool.takes.iter().find(|(known, _, _)| known == name) else {
            return Err(format!("{} has no argument {name:?}", tool.name));
        };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if text.is_empty() || text.starts_with('-') || text.contains(char::is_control) {
            return Err(format!("{name}: {text:?} is not a value"));
        }
        if option.is_empty() { last.push(text) } else { options.push(format!("{option}={text}")) }
    }
    options.extend(last);
    Ok(options)
}

fn call(tool: &Tool, words: Vec<String>, arguments: &Arguments) -> Result<String, String> {
    let own = std::env::current_exe().map_err(|error| format!("cannot find the path of this command: {error}"))?;
    let mut command = Command::new(own);
    command.arg(tool.command).arg("--json");
    if let Some(dir) = &arguments.dir {
        let mut option = OsString::from("--dir=");
        option.push(dir);
        command.arg(option);
    }
    let child = command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("cannot start weir {}: {error}", tool.command))?;
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let ended = wait(&mut child);
    let [out, err] = [out, err].map(|reader| reader.join().unwrap_or_default());
    match ended {
        Some(status) if status.success() => Ok(out),
        // weir plan: it does not fit.
        Some(_) if !out.trim().is_empty() => Ok(out),
        Some(_) => Err(err.trim().to_owned()),
        None => Err(format!("weir {} took longer than {} s", tool.command, PATIENCE.as_secs())),
    }
}

/// Reads a pipe to its end and keeps the beginning.
fn reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let Some(mut pipe) = pipe else { return String::new() };
        let mut kept = Vec::new();
        let _ = pipe.by_ref().take(MOST_ANSWER as u64).read_to_end(&mut kept);
        let more = std::io::copy(&mut pipe, &mut std::io::sink()).unwrap_or(0);
        let text = String::from_utf8_lossy(&kept).into_owned();
        if more > 0 { format!("{text}\n({more} more bytes left out)") } else { text }
    })
}

fn wait(child: &mut Child) -> Option<std::process::ExitStatus> {
    let end = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> Option<Value> {
        answer(text.as_bytes(), &Arguments { dir: None })
    }

    #[test]
    fn what_is_no_request_is_answered_as_the_protocol_says() {
        assert_eq!(ask(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#), None);
        let code = |text: &str| ask(text).unwrap()["error"]["code"].clone();
        assert_eq!(code("{nonsense"), -32700);
        assert_eq!(code(r#"{"id":1,"method":"resources/list"}"#), -32601);
        assert_eq!(code(r#"{"id":1,"method":"tools/call","params":{"name":"rm"}}"#), -32602);
        let version = |wanted: &str| {
            let text = json!({"id": 1, "method": "initialize", "params": {"protocolVersion": wanted}}).to_string();
            ask(&text).unwrap()["result"]["protocolVersion"].clone()
        };
        assert_eq!((version("2024-11-05"), version("1999-01-01")), (json!("2024-11-05"), json!(VERSIONS[0])));
    }

    #[test]
    fn no_argument_is_another_option() {
        let plan = &TOOLS[3];
        assert_eq!(words(plan, &json!({"run": "4711", "gpu": "24GiB"})), Ok(vec!["--gpu=24GiB".into(), "4711".into()]));
        for bad in
            [json!({"run": "--html=/etc/x"}), json!({"run": "a\nb"}), json!({"command": "sh"}), json!({"run": ""})]
        {
            assert!(words(plan, &bad).is_err(), "{bad}");
        }
    }
}
