//! A mutating admission webhook for Kubernetes: pods that ask for it by an annotation, or by a resource of a scheduler, get
//! libweir.so, a cap and a folder for their journals. docs/how-to/kubernetes.md sets it up.
//!
//! | module | for |
//! |---|---|
//! | `config` | what the administrator has set |
//! | `inject` | what becomes of a pod |
//! | `quantity` | Kubernetes' numbers |
//! | `review` | the API server's question and the answer |
//! | `server` | HTTPS |
//! | `manifest` | certificate and registration |

mod config;
mod inject;
mod manifest;
mod quantity;
mod review;
mod server;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use config::Config;

/// Kubernetes' pods run under weir: a mutating admission webhook.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer the API server over HTTPS
    Serve {
        /// Address and port to listen on
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8443")]
        listen: String,
        /// The directory with tls.crt and tls.key, read again when they change
        #[arg(long, value_name = "DIR", default_value = "/certificate")]
        certificate: PathBuf,
        #[command(flatten)]
        config: Config,
    },
    /// Print a certificate (Secret) and the registration of the webhook, for `kubectl apply -f -`
    Manifest(manifest::Arguments),
    /// Read an AdmissionReview from standard input and print the answer
    Review {
        #[command(flatten)]
        config: Config,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Serve { listen, certificate, config } => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| error.to_string())
            .and_then(|runtime| runtime.block_on(server::serve(&listen, &certificate, config))),
        Command::Manifest(arguments) => manifest::list(&arguments).and_then(|list| print(&list)),
        Command::Review { config } => {
            let mut body = Vec::new();
            let read = std::io::stdin().read_to_end(&mut body).map_err(|error| error.to_string());
            read.and_then(|_| review::answer(&body, &config)).and_then(|(answer, _)| print(&answer))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("weir-webhook: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn print(value: &serde_json::Value) -> Result<(), String> {
    writeln!(std::io::stdout(), "{value:#}").map_err(|error| error.to_string())
}
