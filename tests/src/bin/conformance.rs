//! `conformance`: shows which rules of the CUDA driver API the loaded `libcuda.so.1` keeps.

use std::io::Write;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use weir_settings::profile::PROFILES;
use weir_tests::rule::{Rule, Scope};
use weir_tests::runner::{self, Met, Outcome, Verdict};
use weir_tests::{rules, worker};

const HELP: &str = "\
Shows which documented rules of the CUDA driver API the loaded libcuda.so.1 keeps.

usage: conformance [--list] [--filter X]... [--json FILE] [--markdown] [--lines] [--portable] [--jobs N] [--seconds N] [--budget BYTES]
       conformance --profiles [--filter X]...

  --list       print the rules and don't run them
  --filter X   only rules whose id contains X; several are joined by or
  --json FILE  write one JSON line a rule to FILE
  --markdown   print the table as Markdown
  --lines      print one JSON line a rule, as it comes, instead of the table
  --seconds N  begin no rule after so long
  --budget N   leave out rules that take more device memory than N bytes; on the virtual GPU one that does fails
  --portable   leave out what only the virtual GPU can show, as a real driver does
  --jobs N     processes at a time (default: 2 on the virtual GPU, 1 on a real one)
  --profiles   on the virtual GPU: show the rules on every profile, with late loading, and print one row a profile

LD_LIBRARY_PATH decides which libcuda.so.1 is found. Exit code 1 if a rule failed.";

// Each is a switch of its own on the command line.
#[allow(clippy::struct_excessive_bools)]
#[derive(Default)]
struct Wish {
    list: bool,
    profiles: bool,
    markdown: bool,
    filters: Vec<String>,
    json: Option<String>,
    jobs: Option<usize>,
    lines: bool,
    portable: bool,
    seconds: Option<u64>,
    budget: Option<u64>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // The suite starts itself again with these; nobody else needs them.
    match arguments.split_first() {
        Some((first, rest)) if first == "--worker" => leave(worker::run(rest)),
        Some((first, rest)) if first == "--peer" && rest.len() == 1 => leave(worker::peer(&rest[0])),
        Some((first, _)) if first == "--probe" => leave(worker::probe()),
        _ => {}
    }
    match wish(&arguments) {
        Ok(Some(wish)) => suite(&wish),
        Ok(None) => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("conformance: {message}; see --help");
            ExitCode::from(2)
        }
    }
}

/// Ends the process at once: a rule may have left threads of the driver waiting.
fn leave(code: i32) -> ! {
    std::process::exit(code)
}

fn wish(arguments: &[String]) -> Result<Option<Wish>, String> {
    let mut wish = Wish::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().cloned().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "-h" | "--help" => return Ok(None),
            "--list" => wish.list = true,
            "--profiles" => wish.profiles = true,
            "--markdown" => wish.markdown = true,
            "--portable" => wish.portable = true,
            "--lines" => wish.lines = true,
            "--seconds" | "--budget" => {
                let text = value()?;
                let number = text.parse().map_err(|_| format!("{argument} {text} is not a number"))?;
                *(if argument == "--seconds" { &mut wish.seconds } else { &mut wish.budget }) = Some(number);
            }
            "--filter" => wish.filters.push(value()?),
            "--json" => wish.json = Some(value()?),
            "--jobs" => {
                let text = value()?;
                let jobs = text.parse().map_err(|_| format!("--jobs {text} is not a number"))?;
                wish.jobs = Some(jobs);
            }
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    Ok(Some(wish))
}

fn suite(wish: &Wish) -> ExitCode {
    let chosen: Vec<Rule> = rules::all()
        .into_iter()
        .filter(|r| wish.filters.is_empty() || wish.filters.iter().any(|f| r.id.contains(f)))
        .collect();
    if chosen.is_empty() {
        eprintln!("conformance: no rule matches");
        return ExitCode::from(2);
    }
    if wish.list {
        print_list(&chosen, wish.markdown);
        return ExitCode::SUCCESS;
    }
    let this = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let this_program = || {
        let mut command = Command::new(&this);
        command.envs(wish.budget.map(|bytes| (worker::BUDGET, bytes.to_string())));
        command
    };
    let met = match runner::meet(&this_program) {
        Ok(met) => met,
        Err(message) => {
            eprintln!("conformance: no driver to test: {message}");
            return ExitCode::from(2);
        }
    };
    if wish.profiles {
        return profiles(&this_program, &chosen, &met);
    }
    let portable = |r: &Rule| !wish.portable || r.scope == Scope::Portable;
    let chosen: Vec<Rule> = chosen.into_iter().filter(|r| runner::applies(r, &met) && portable(r)).collect();
    let jobs = wish.jobs.unwrap_or(if met.is_virtual { 2 } else { 1 });
    let start = Instant::now();
    let end = wish.seconds.map(|seconds| start + Duration::from_secs(seconds));
    let each = |verdict: &Verdict| {
        if wish.lines {
            println!("{}", json(verdict, &met));
        }
    };
    let verdicts = runner::run_until(&this_program, &chosen, jobs, end, &each);
    let failed = verdicts.iter().any(|v| matches!(v.outcome, Outcome::Failed(_)));
    if wish.lines {
        return ExitCode::from(u8::from(failed));
    }
    print_table(&verdicts, wish.markdown);
    if let Some(file) = &wish.json
        && let Err(e) = write_json(file, &verdicts, &met)
    {
        eprintln!("conformance: {file} can't be written: {e}");
        return ExitCode::from(2);
    }
    let count = |f: fn(&Outcome) -> bool| verdicts.iter().filter(|v| f(&v.outcome)).count();
    let failed = count(|o| matches!(o, Outcome::Failed(_)));
    println!(
        "{} rules on the {} driver {}: {} passed, {failed} failed, {} skipped in {:.1} s",
        verdicts.len(),
        if met.is_virtual { "virtual" } else { "real" },
        met.version,
        count(|o| *o == Outcome::Passed),
        count(|o| matches!(o, Outcome::Skipped(_))),
        start.elapsed().as_secs_f64(),
    );
    ExitCode::from(u8::from(failed > 0))
}

/// Shows the rules on each profile of the virtual GPU: a row of a Markdown table a profile, what failed on stderr.
fn profiles(program: runner::Start, rules: &[Rule], met: &Met) -> ExitCode {
    if !met.is_virtual {
        eprintln!("conformance: only the virtual GPU has profiles");
        return ExitCode::from(2);
    }
    println!("| profile | machine | pass | fail | not applicable |\n|---|---|---|---|---|");
    let mut all_failed = 0;
    let none = [("", "no profile")];
    for (name, machine) in none.into_iter().chain(PROFILES.iter().map(|p| (p.name, p.machine))) {
        let start = || {
            let mut command = program();
            command.env("VGPU_PROFILE", name).env("CUDA_MODULE_LOADING", "LAZY");
            command
        };
        let verdicts = runner::run(&start, rules, 2);
        let count = |f: fn(&Outcome) -> bool| verdicts.iter().filter(|v| f(&v.outcome)).count();
        let failed = count(|o| matches!(o, Outcome::Failed(_)));
        for v in &verdicts {
            if let Outcome::Failed(why) = &v.outcome {
                eprintln!("{name}: {}: {why}", v.rule.id);
            }
        }
        let shown = if name.is_empty() { "none".to_owned() } else { format!("`{name}`") };
        let (passed, skipped) = (count(|o| *o == Outcome::Passed), count(|o| matches!(o, Outcome::Skipped(_))));
        println!("| {shown} | {machine} | {passed} | {failed} | {skipped} |");
        all_failed += failed;
    }
    ExitCode::from(u8::from(all_failed > 0))
}

fn print_list(rules: &[Rule], markdown: bool) {
    if markdown {
        println!("| rule | function | says | where |\n|---|---|---|---|");
    }
    for r in rules {
        let place = if r.scope == Scope::Portable { "any driver" } else { "virtual GPU" };
        if markdown {
            println!("| `{}` | `{}` | {} | {place} |", r.id, r.function, r.says);
        } else {
            println!("{:<48} {:<36} {} [{place}]", r.id, r.function, r.says);
        }
    }
    println!("{} rules", rules.len());
}

fn print_table(verdicts: &[Verdict], markdown: bool) {
    if markdown {
        println!("| rule | function | says | result |\n|---|---|---|---|");
    }
    for v in verdicts {
        let (word, detail) = words(&v.outcome);
        if markdown {
            println!("| `{}` | `{}` | {} | {word} {detail} |", v.rule.id, v.rule.function, v.rule.says);
        } else {
            println!("{:<48} {word:<7} {detail}", v.rule.id);
        }
    }
}

fn words(outcome: &Outcome) -> (&'static str, &str) {
    match outcome {
        Outcome::Passed => ("pass", ""),
        Outcome::Failed(why) => ("FAIL", why),
        Outcome::Skipped(why) => ("skip", why),
    }
}

fn write_json(file: &str, verdicts: &[Verdict], met: &Met) -> std::io::Result<()> {
    let mut out = std::fs::File::create(file)?;
    for v in verdicts {
        writeln!(out, "{}", json(v, met))?;
    }
    Ok(())
}

fn json(v: &Verdict, met: &Met) -> serde_json::Value {
    let (result, detail) = words(&v.outcome);
    serde_json::json!({
        "rule": v.rule.id, "function": v.rule.function, "says": v.rule.says,
        "portable": v.rule.scope == Scope::Portable, "result": result.to_lowercase(), "detail": detail,
        "milliseconds": v.took.as_millis() as u64, "virtual": met.is_virtual, "driver": met.version,
    })
}
